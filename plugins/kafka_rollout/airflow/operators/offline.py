"""The tasks of an offline downgrade: one a step, each of which asks a person what to do when it cannot go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_rollout.airflow.common.asking import read_answer, tell
from kafka_rollout.airflow.common.base import RolloutOperator, cluster_ports, errors_for_airflow, frozen_plan
from kafka_rollout.airflow.common.deciding import (
    RETRY,
    ROLL_BACK,
    ROLL_BACK_DECISION,
    ask_what_now,
    record_decision,
)
from kafka_rollout.domain.model.errors import FatalError, RefusedError
from kafka_rollout.steps.offline.order import OfflineStep

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

MEANINGS = {
    RETRY: "do the step once more; what is done already is not done again",
    ROLL_BACK: "put every node's metadata log back from its backup and start the old release; the run ends then",
}


class BeginOfflineOperator(RolloutOperator):
    """Passes the group by where the plan is not an offline one."""

    def __init__(self, *, skipped: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skipped = list(skipped)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        if not plan.offline:
            self.log.info("Kafka goes this way by itself: no node is stopped for the metadata's sake.")
            raise DownstreamTasksSkipped(tasks=self.skipped)
        self.log.info("Offline: all nodes are stopped now.")


class OfflineStepOperator(RolloutOperator):
    """One step. What Airflow's retries cannot mend is a person's to decide: retry, or take everything back."""

    def __init__(self, *, step: OfflineStep, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        return self._do(context, ports, frozen_plan(ports, context))

    def decided(self, context: Context, event: dict[str, Any]) -> Any:
        """A person answered after the step had failed."""
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            record_decision(context, ports, self._what, read_answer(event, self._what))
            return self._do(context, ports, plan)

    @property
    def _what(self) -> str:
        return f"the offline step {self.step.value}"

    def _do(self, context: Context, ports: ClusterPorts, plan: Plan) -> Any:
        from kafka_rollout.domain.run.projections.offline import can_be_undone, stop_has_begun

        tell(context, f"{self._what}")
        try:
            found = self.step.act(ports, plan)
        except (RefusedError, FatalError) as error:
            if not stop_has_begun(ports.run.events()):
                raise  # nothing was touched, so there is nothing to decide
            options = (RETRY, ROLL_BACK) if can_be_undone(ports.run.events()) else (RETRY,)
            ask_what_now(context, ports, what=self._what, why=str(error), options=options, meanings=MEANINGS)
        self.log.info("Done: %s", found)
        tell(context, "nothing")
        return found


class UndoOfflineOperator(RolloutOperator):
    """Takes everything back, when a person decided that at one of `deciders`."""

    def __init__(self, *, deciders: Sequence[str], skipped: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deciders = list(deciders)
        self.skipped = list(skipped)

    def execute(self, context: Context) -> Any:
        found = context["ti"].xcom_pull(task_ids=self.deciders, key=ROLL_BACK_DECISION)
        if not any(found or ()):
            self.log.info("Nobody decided to take the downgrade back.")
            raise DownstreamTasksSkipped(tasks=self.skipped)
        return super().execute(context)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.steps.offline.undo import undo_offline

        put_back = undo_offline(ports, frozen_plan(ports, context))
        self.log.info("Put back on nodes %s.", ", ".join(map(str, put_back)) or "none: nothing was replaced yet")
        return list(put_back)
