"""The list of the batches, and the replacement of a batch: the only part of a roll that needs a worker."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import StartTriggerArgs

from kafka_rollout.airflow.approvals.airflow_records import Records
from kafka_rollout.airflow.approvals.asking import show_waiting
from kafka_rollout.airflow.gates.batch_sensors import BatchTask
from kafka_rollout.airflow.gates.part_trigger import place_of_instance
from kafka_rollout.airflow.gates.replace_trigger import ReplaceTrigger
from kafka_rollout.airflow.operators.services import keep_traffic_running
from kafka_rollout.airflow.operators.step import StepOperator
from kafka_rollout.airflow.private_api import time_limit
from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.control.holds import HeldError
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.roll import loop
from kafka_rollout.run.projections.open_batches import BatchPart, is_rollback_decided


class ListBatchesOperator(StepOperator):
    """Return the list over which the parts of the batches are mapped."""

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        found = super().act(context, ports)
        refuse_too_many(len(found or ()))
        return found


def refuse_too_many(batches: int) -> None:
    """Raise RefusedError for more batches than Airflow can wait for, by the settings of this worker.

    Each part of every batch that has not passed has a trigger. Without a free place in the triggerer, the parts of the
    first batch would wait for the places of those that wait for them.
    """
    for section, setting, each, limit in _LIMITS:
        most, needed = conf.getint(section, setting), batches * each
        if needed > most:
            raise RefusedError(
                f"The plan has {batches} batches, and this Airflow {limit.format(most)}.",
                remedy=f"Set {setting} of [{section}] to {needed} or more, then clear this task.",
            )


_LIMITS = (
    ("core", "max_map_length", 1, "maps a task over at most {} values"),
    ("triggerer", "capacity", 3, "has at most {} triggers at a time in a triggerer, of which each batch needs three"),
)


class BeginRollbackOperator(ListBatchesOperator):
    """List the batches of the rollback; skipped unless an approver decided it. It also runs in a run without a plan."""

    def execute(self, context: Context) -> Any:
        from kafka_rollout.run.store.opening import open_run

        if not is_rollback_decided(open_run(self.cluster, str(context["run_id"])).events()):
            raise AirflowSkipException("No approver decided to roll back.")
        return super().execute(context)


class ReplaceOperator(BatchTask):
    """Stop, replace and start the nodes of a batch. Proves by itself what allows it (`roll/loop.py`).

    It begins in the triggerer, which waits for the gate before the stop, and reads Airflow's records of the approvals,
    so that it needs one worker process. If the batch must wait again, it waits there, and then continues.

    `limit_s`: of the work of one process, in seconds.
    """

    gate = BatchPart.GATE_BEFORE
    start_from_trigger = True

    def __init__(self, *, limit_s: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.limit_s = limit_s
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{ReplaceTrigger.__module__}.{ReplaceTrigger.__name__}",
            trigger_kwargs={"cluster": self.cluster, "of": self.of.value},
            next_method="begun",
            next_kwargs=None,
            timeout=None,
        )

    def execute(self, context: Context) -> Any:  # in `dag.test()`, which begins every task in a worker
        trigger = ReplaceTrigger(cluster=self.cluster, of=self.of.value, place=place_of_instance(context))
        self.defer(trigger=trigger, method_name="begun")

    def begun(self, context: Context, event: dict[str, Any]) -> Any:
        """Begin with the records that the triggerer has read, or continue with a late answer to an earlier request."""
        if "state" in event or "records" not in event:
            return self.gate_watched(context, event)
        return self.attempt(context, "act", event["records"], begins=True)

    def attempt(self, context: Context, then: str, records: Records | None = None, *, begins: bool = False) -> Any:
        with time_limit(self.limit_s):
            return super().attempt(context, then, records, begins=begins)

    def go_on(self, context: Context) -> Any:
        return self.attempt(context, "act", self.records)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        roll, batch = self.find(context, ports)
        keep_traffic_running(context, ports)
        show_waiting(context, f"{loop.name_of(batch)}: the stop, replacement and start")
        try:
            is_left = loop.replace(roll, batch)
        except HeldError as held:
            show_waiting(context, held.sentence)
            is_left = True
        except TransientError as error:
            if context["ti"].try_number <= context["ti"].max_tries:
                raise
            self.ask_or_raise(context, ports, batch, error)
        except (FatalError, RefusedError) as error:
            self.ask_or_raise(context, ports, batch, error)
        if is_left:
            self.wait(context, BatchPart.GATE_BEFORE, resumes=True)
        show_waiting(context, "nothing: the nodes are started")
        return {"nodes": list(batch.node_ids)}
