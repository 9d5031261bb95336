"""The parts of a batch as tasks: what they share, and the two gates as sensors that live in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.triggers.base import StartTriggerArgs

from kafka_rollout.airflow.approvals.airflow_records import map_index_of
from kafka_rollout.airflow.approvals.asking import (
    ask_how_to_continue,
    is_answer,
    read_answer,
    record_decision,
    show_waiting,
    why_ask_again,
)
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    frozen_plan,
    record_step,
)
from kafka_rollout.airflow.gates.batch_trigger import BatchTrigger
from kafka_rollout.airflow.gates.part_trigger import Told, name_way_on, place_of_instance
from kafka_rollout.base.errors import FatalError, RefusedError, StoppedError, TransientError
from kafka_rollout.control.approval import renew_invalid_approval
from kafka_rollout.lowering import offline
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.step import Reaction, Step
from kafka_rollout.roll import loop
from kafka_rollout.roll.loop import Roll
from kafka_rollout.run.events import Decision
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.projections.nodes import has_stopped_nodes
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf

BATCH_NAME = "{{ task.batch['name'] }}"  # of an instance that has run in a worker

_MEANINGS = {
    Decision.WAIT_ON: (
        "Continue without another start: after a pause with the next nodes, after a failure with the gate, for another "
        "gate timeout, or with the same step."
    ),
    Decision.RETRY: (
        "Start the nodes again that this run stopped and that failed; a process that hangs in its shutdown is killed. "
        "If the approval is invalid, this answer approves the plan again in your name."
    ),
    Decision.SPLIT: "Restart the nodes of this batch in parts that can be stopped together now.",
}
_NOTE = "This task can ask several times. The reason above is that of its first request."


class BatchTask(RolloutOperator):
    """One part of one batch: an instance of a task that is mapped over the batches.

    The place of the batch is the instance's map index. What the batch is, and whether it can act, is read from the plan
    and the history, never from the value that Airflow mapped (`batch`), which names the instance.
    """

    template_fields = ("batch",)
    gate: BatchPart

    def __init__(self, *, step: Step, of: RollOf, batch: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.of = of
        self.batch = batch

    def find(self, context: Context, ports: ClusterPorts) -> tuple[Roll, BatchStep]:
        """Return the batch of this instance, of the plan that the first task froze."""
        roll = loop.roll_of(Run(ports, frozen_plan(ports, context)), self.of)
        index = map_index_of(context)
        if not 0 <= index < len(roll.batches):
            raise RefusedError(
                f"The plan has {len(roll.batches)} batches, and this is batch {index + 1}.",
                remedy="Clear the task that lists the batches, with all downstream tasks.",
            )
        return roll, roll.batches[index]

    def wait(self, context: Context, gate: BatchPart, *, resumes: bool) -> NoReturn:
        """Wait in the triggerer for a gate of the batch. The state store keeps what a worker wrote last."""
        at = "before the stop" if gate is BatchPart.GATE_BEFORE else "after the start"
        show_waiting(context, f"the gate {at}; the newest lines of the log say what it waits for")
        trigger = BatchTrigger(
            cluster=self.cluster,
            of=self.of.value,
            part=gate.value,
            place=place_of_instance(context),
            resumes=resumes,
            records=self.records,
        )
        self.defer(trigger=trigger, method_name="gate_watched")

    @contextmanager
    def recorded(self, run: RunStore, context: Context, *, begins: bool, ends: bool) -> Iterator[None]:
        """Record only a failure: the loop records the begin of the part, and that it is done."""
        with record_step(run, self.task_id, context, batch=map_index_of(context), begins=False, ends=False):
            try:
                yield
            except StoppedError as stopped:
                raise name_way_on(stopped, self.of) from None

    @abstractmethod
    def go_on(self, context: Context) -> Any:
        """Continue with this part of the batch."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        return self.go_on(context)

    def gate_watched(self, context: Context, event: Any) -> Any:
        """Continue after the triggerer. `dag.test()` resumes also a task that it has ended, with the state as event."""
        if isinstance(event, str):
            if event != "success":
                raise (AirflowSkipException if event == "skipped" else AirflowFailException)(f"The task is {event}.")
            return None
        return super().gate_watched(context, event)

    def watched(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with what the triggerer found, or with a late answer to the request of an earlier attempt."""
        if is_answer(event):
            return self._decide(context, event, is_late=True)
        if event["state"] == Told.PASSED:
            return self.go_on(context)
        if event["state"] == Told.ENDED:
            raise (AirflowSkipException if event.get("skips") else AirflowFailException)(event["message"])
        with self.working(context, ends=False) as ports:
            self._react(context, ports, event)

    def _react(self, context: Context, ports: ClusterPorts, event: dict[str, Any]) -> NoReturn:
        """Ask what the triggerer found to ask, or let the task fail."""
        _, batch = self.find(context, ports)
        if event["state"] == Told.ERROR and (event.get("stops") or not self.asks(ports, is_fatal=event["asks"])):
            raise AirflowFailException(event["message"])
        self.ask(context, ports, batch, event["message"], is_pause=event["state"] == Told.PAUSES)

    def asks(self, ports: ClusterPorts, *, is_fatal: bool) -> bool:
        """Return whether an approver decides after an error; otherwise the task fails."""
        return is_fatal or (self.of is RollOf.PLAN and has_stopped_nodes(ports.run.events()))

    def ask_or_raise(
        self, context: Context, ports: ClusterPorts, batch: BatchStep, error: FatalError | RefusedError | TransientError
    ) -> NoReturn:
        """Request a decision after an error, or let the task fail."""
        if not self.asks(ports, is_fatal=isinstance(error, FatalError)):
            raise error
        self.ask(context, ports, batch, str(error))

    def ask(
        self, context: Context, ports: ClusterPorts, batch: BatchStep, why: str, *, is_pause: bool = False
    ) -> NoReturn:
        """Request a decision after a failure, or at a pause of the plan."""
        ask_how_to_continue(
            context,
            ports,
            what=loop.name_of(batch),
            why=why,
            options=self.options(ports, batch),
            meanings=self.meanings,
            subject=f"{loop.name_of(batch)} waits for a decision",
            note=_NOTE,
            is_pause=is_pause,
        )

    @property
    def meanings(self) -> Mapping[Decision, str]:
        return {**_MEANINGS, **self._stop_meaning}

    @property
    def _stop_meaning(self) -> Mapping[Decision, str]:
        stops = "End the run here. Nothing is undone, and a node that is down stays down."
        return {Decision.STOP_HERE: f"{stops} {self.of.how_to_continue}"}

    def options(self, ports: ClusterPorts, batch: BatchStep) -> tuple[Decision, ...]:
        """Return the answers, the same for every request of an instance: Airflow keeps those of the first one."""
        can_roll_back = self.step.on_failure is Reaction.ASK_ROLL_BACK
        # An older release can fail to load a coordinator partition, and only its log can show whether it did.
        rests_on_logs = self.gate is BatchPart.GATE_AFTER or batch.release_step.starts_older
        accept = (Decision.ACCEPT,) if rests_on_logs else ()
        split = (Decision.SPLIT,) if self.gate is BatchPart.GATE_BEFORE and len(batch.node_ids) > 1 else ()
        stop = () if can_roll_back and self.gate is BatchPart.GATE_AFTER else (Decision.STOP_HERE,)
        back = (Decision.ROLL_BACK,) if can_roll_back else ()
        return (Decision.WAIT_ON, *accept, Decision.RETRY, *split, *stop, *back)

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the decision of an approver."""
        return self._decide(context, event, is_late=False)

    def _decide(self, context: Context, event: dict[str, Any], *, is_late: bool) -> Any:
        """Record the decision and continue. `is_late`: *Retry* must not stop nodes that the task waits for now."""
        with self.working(context, ends=False) as ports:
            roll, batch = self.find(context, ports)
            what = loop.name_of(batch)
            answer = read_answer(context, event, what)
            self.log.info("%s chose '%s': %s", answer.by, answer.decision, answer.reason)
            if why := why_ask_again(context, ports, answer):
                self.ask(context, ports, batch, why)
            decision = record_decision(context, ports, what, answer, self.of.how_to_continue)
            if answer.decision is Decision.RETRY:
                renew_invalid_approval(roll.run, decision)
            if answer.decision is Decision.SPLIT:
                self.log.info("The batch is split: %s", loop.split(roll, batch))
        if answer.decision is Decision.RETRY and not is_late:
            return self.attempt(context, "retry")
        return self.go_on(context)

    def retry(self, context: Context, ports: ClusterPorts) -> Any:
        """Carry out *Retry*, then continue; ask again if the nodes cannot be started."""
        roll, batch = self.find(context, ports)
        try:
            self.start_again(roll, batch)
        except (TransientError, FatalError, RefusedError) as error:
            self.ask(context, ports, batch, str(error))
        return self.go_on(context)

    def start_again(self, roll: Roll, batch: BatchStep) -> None:
        """Start the failed nodes of the batch again."""
        loop.start_again(roll, batch)


class BatchGateSensor(BatchTask, BaseSensorOperator):
    """A gate of a batch. It begins and passes in the triggerer; only a question needs a worker."""

    start_from_trigger = True

    def __init__(self, *, gate: BatchPart, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{BatchTrigger.__module__}.{BatchTrigger.__name__}",
            trigger_kwargs={"cluster": self.cluster, "of": self.of.value, "part": gate.value},
            next_method="gate_watched",
            next_kwargs=None,
            timeout=None,
        )

    def go_on(self, context: Context) -> Any:
        self.wait(context, self.gate, resumes=False)

    def execute(self, context: Context) -> Any:
        return self.go_on(context)  # in `dag.test()`, which begins every task in a worker


class OfflineGateSensor(BatchGateSensor):
    """The gate of one node after all nodes were started. After an undo it offers no *Retry*: a broker may have
    registered.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gate=BatchPart.GATE_AFTER, **kwargs)

    def options(self, ports: ClusterPorts, batch: BatchStep) -> tuple[Decision, ...]:
        again = () if self.of is RollOf.OFFLINE_UNDO else (Decision.RETRY,)
        return (Decision.WAIT_ON, Decision.ACCEPT, *again, Decision.STOP_HERE)

    @property
    def meanings(self) -> Mapping[Decision, str]:
        return self._stop_meaning

    def asks(self, ports: ClusterPorts, *, is_fatal: bool) -> bool:
        return False  # only a failed gate asks

    def start_again(self, roll: Roll, batch: BatchStep) -> None:
        """Start every node without a process, for example one with a new, formatted disk, or with its host back."""
        clock = roll.run.ports.clock
        for left in reversed(range((self.step.limits.retries or 0) + 1)):
            try:
                offline.start_again(roll.run, roll.nodes(batch)[0])
                return
            except TransientError as error:
                if not left:
                    raise
                self.log.warning("%s", error)
                clock.sleep(self.step.limits.pause_s)
