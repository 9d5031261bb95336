"""The graph of a procedure: one task per step, and a mapped task group for the batches of a roll.

The batches are known when the plan is made, so the group is mapped over them at run time: a cluster of three nodes has
the same tasks as one of a thousand. Mapped instances of one group do not follow each other by themselves. The gate
before the stop keeps their order: it passes after all earlier batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, assert_never

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup, chain, task_group

from kafka_rollout.airflow.approvals.asking import PLAN_TASK
from kafka_rollout.airflow.gates.batch_sensors import BATCH_NAME, BatchGateSensor, OfflineGateSensor
from kafka_rollout.airflow.gates.sensor import GateSensor
from kafka_rollout.airflow.operators.ask_approval import ApprovalOperator
from kafka_rollout.airflow.operators.replace_batch import BeginRollbackOperator, ListBatchesOperator, ReplaceOperator
from kafka_rollout.airflow.operators.services import (
    OutcomeOperator,
    ReportOperator,
    StartTrafficOperator,
    StopTrafficOperator,
)
from kafka_rollout.airflow.operators.spark_scan import ScanForRunOperator, of_scans
from kafka_rollout.airflow.operators.step import (
    BranchOperator,
    DecidedStepOperator,
    StepOperator,
    UndoableStepOperator,
)
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.procedure.step import (
    ActStep,
    AnyStep,
    ApprovalStep,
    EachBatch,
    EachNode,
    GateStep,
    JoinStep,
    JumpStep,
    Procedure,
    Reaction,
    ReplaceStep,
    RunsAfter,
    ScanStep,
    Section,
    Service,
    ServiceStep,
    Step,
)
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf

NODES = "nodes"  # the group of the gates of all nodes


def draw(procedure: Procedure, cluster: ClusterSpec) -> None:
    """Add the tasks of the procedure to the DAG that is being defined."""
    procedure = procedure.for_cluster(cluster)
    drawing = _Drawing(cluster=cluster)
    drawing.add_all(procedure.parts)
    for task_id, step in drawing.steps.items():
        if isinstance(step, JumpStep):
            drawing.tasks[task_id].skipped = drawing.ids_after(task_id, past=step.jump.past)


@dataclass(slots=True, kw_only=True)
class _Drawing:
    """A graph while it is drawn."""

    cluster: ClusterSpec
    tasks: dict[str, Any] = field(default_factory=dict)  # in the order of the procedure
    steps: dict[str, AnyStep] = field(default_factory=dict)
    before: list[BaseOperator] = field(default_factory=list)
    """The tasks that the next step follows."""
    decided: list[BaseOperator] = field(default_factory=list)
    """Last tasks of the sections that run on a decision."""
    rolled: list[BaseOperator] = field(default_factory=list)
    """Tasks that the section of the rollback follows."""

    def add_all(self, parts: Sequence[AnyStep | EachBatch | EachNode | Section]) -> None:
        for part in parts:
            match part:
                case Step():
                    self._follow(self._task(part))
                case EachNode():
                    self._map(NODES, part.step.doc, partial(self._gate_of_node, part))
                case Section(parts=(EachBatch() as each,)):
                    self._map(part.id, part.doc, partial(self._parts_of_batch, each))
                    if not each.is_rollback:
                        self.rolled += self.before
                case Section():
                    self._section(part)

    def ids_after(self, task_id: str, *, past: str) -> list[str]:
        """Tasks after one, up to and including `past`."""
        ids = list(self.tasks)
        return ids[ids.index(task_id) + 1 : ids.index(past) + 1]

    def _section(self, section: Section) -> None:
        before, begin = self.before, list[BaseOperator]()
        with TaskGroup(section.id, tooltip=section.doc, prefix_group_id=section.prefixes):
            if not section.on_decision:
                for part in section.parts:
                    self.add_all((part,))
                    if isinstance(part, JumpStep):
                        begin = self.before
                    elif isinstance(part, JoinStep):
                        chain(begin, self.before)
                return
            if any(isinstance(part, EachNode) for part in section.parts):
                self._undo(section)
            else:
                self.before = self.rolled
                self.add_all(section.parts)
        self.decided += self.before
        self.before = before

    def _undo(self, section: Section) -> None:
        """The first step runs on the decision of an offline step. Without a decision it skips all but the last task."""
        begin, *others = section.parts
        if not isinstance(begin, ActStep):
            raise TypeError(f"Section {section.id} begins without a step.")
        deciders = [task_id for task_id, step in self.steps.items() if step.on_failure is Reaction.ASK_UNDO]
        first: Any = self._make(DecidedStepOperator, begin, step=begin, deciders=deciders)
        self._follow(first)
        self.add_all(others)
        ids = list(self.tasks)
        first.skipped = ids[ids.index(first.task_id) + 1 : -1]

    def _map(self, group_id: str, doc: str, add: Callable[[Any], None]) -> None:
        """Draw a task group that is mapped over the value of the task before it."""
        (listed,) = self.before

        def draw_one(batch: Any) -> None:
            self.before = []
            add(batch)

        task_group(group_id=group_id, tooltip=doc)(draw_one).expand(batch=listed.output)

    def _parts_of_batch(self, each: EachBatch, batch: Any) -> None:
        of = RollOf.ROLLBACK if each.is_rollback else RollOf.PLAN
        commands_s = sum(one.commands_s for one in self.cluster.nodes)  # a batch can have all nodes
        replaced = list[BaseOperator]()
        for step in each.steps:
            more: dict[str, Any] = {"of": of, "batch": batch, "map_index_template": BATCH_NAME}
            if isinstance(step, GateStep):
                gate = BatchPart(step.id)
                self._follow(self._waiting(BatchGateSensor, step, {**more, "gate": gate}))
                continue
            limit_s = step.limits.timeout_s + commands_s
            self._follow(self._waiting(ReplaceOperator, step, {**more, "limit_s": limit_s}))
            replaced = self.before
        # A gate that is marked as successful while it waits does not let the next step begin before the replacement.
        self.before = [*replaced, *self.before]

    def _gate_of_node(self, each: EachNode, batch: Any) -> None:
        of = RollOf.OFFLINE_UNDO if each.is_rollback else RollOf.OFFLINE
        name = "node {{ task.batch }}"
        more: dict[str, Any] = {"of": of, "batch": batch, "map_index_template": name}
        self._follow(self._waiting(OfflineGateSensor, each.step, more))

    def _waiting(self, operator: type[Any], step: GateStep | ReplaceStep, more: dict[str, Any]) -> BaseOperator:
        """Make a task that begins in the triggerer. It has no limit: Airflow would count the wait for its turn."""
        task = self._make(operator, step, step=step, **more)
        task.execution_timeout = None
        return task

    def _task(self, step: AnyStep) -> BaseOperator:
        has_plan = PLAN_TASK in self.tasks
        match step:
            case ServiceStep():
                return self._serve(step)
            case GateStep():
                return self._make(GateSensor, step, step=step)
            case ApprovalStep():
                task = self._make(ApprovalOperator, step, step=step)
                if step.approval.offers_roll_back:
                    self.rolled.append(task)
                return task
            case ScanStep():
                return self._make(ScanForRunOperator, step, step=step, has_plan=has_plan, **of_scans(self.cluster))
            case JoinStep():
                return self._make(EmptyOperator, step)
            case ActStep(lists=True):
                lists = BeginRollbackOperator if step.runs_after is RunsAfter.ANYTHING else ListBatchesOperator
                return self._make(lists, step, step=step, has_plan=has_plan)
            case ActStep():
                acts = UndoableStepOperator if step.on_failure is Reaction.ASK_UNDO else StepOperator
                return self._make(acts, step, step=step, has_plan=has_plan)
            case JumpStep():
                return self._make(BranchOperator, step, step=step, has_plan=has_plan)
            case ReplaceStep():
                raise TypeError(f"Step {step.id} is a part of a batch.")
            case _:
                assert_never(step)

    def _serve(self, step: ServiceStep) -> BaseOperator:
        match step.service:
            case Service.START_TRAFFIC:
                return self._make(StartTrafficOperator, step, step=step)
            case Service.STOP_TRAFFIC:
                return self._make(StopTrafficOperator, step)
            case Service.REPORT:
                return self._make(ReportOperator, step)
            case Service.OUTCOME:
                report, traffic = self._service(Service.REPORT), self._service(Service.STOP_TRAFFIC)
                return self._make(OutcomeOperator, step, report_task=report, traffic_task=traffic)

    def _service(self, service: Service) -> str | None:
        known = ((task_id, step) for task_id, step in self.steps.items() if isinstance(step, ServiceStep))
        return next((task_id for task_id, step in known if step.service is service), None)

    def _make(self, operator: type[Any], step: AnyStep, /, **more: Any) -> BaseOperator:
        """Make the task of a step, with the limits and the rule of its definition."""
        if operator is not EmptyOperator:
            more = {"cluster": self.cluster.name, **more}
        task: BaseOperator = operator(
            task_id=step.id,
            doc_md=step.doc,
            trigger_rule=step.runs_after.value,
            retries=step.limits.retries,
            retry_delay=timedelta(seconds=step.limits.pause_s),
            execution_timeout=timedelta(seconds=step.limits.timeout_s),
            **more,
        )
        task.params = type(task.params)()  # the DAG has them; Airflow would check and store them again for each task
        self.tasks[task.task_id] = task
        self.steps[task.task_id] = step
        return task

    def _follow(self, task: BaseOperator) -> None:
        """Put a task after the last one. The first step that ends the run also follows the sections on decision."""
        before = self.before
        if task.task_id == self._service(Service.STOP_TRAFFIC):
            before = [*before, *self.decided]
        if before:
            chain(before, task)
        self.before = [task]
