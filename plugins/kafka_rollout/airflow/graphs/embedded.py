"""An upgrade as a part of a user's own DAG."""

from __future__ import annotations

from typing import Any

from airflow.sdk import TaskGroup

from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.airflow.graphs.forms import form_of
from kafka_rollout.airflow.graphs.procedure import draw
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.clusters.last_seen import last_seen_text
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.procedure.kinds import UPGRADE
from kafka_rollout.releases.documents.catalogue import list_releases


class KafkaUpgradeTaskGroup(TaskGroup):
    """All tasks of an upgrade of one cluster of the inventory, with their gates and approvals.

    `announce() >> KafkaUpgradeTaskGroup("orders") >> announce_end()`, in a DAG with `max_active_runs=1`. Define it once
    in a DAG: its task ids have no prefix, because tasks address each other by id. The DAG gets the parameters of the
    upgrade that it does not have yet (`target_release`, `finalize`, …), and the tag `kafka-rollout`: keep it, because
    by it the end of a run releases the lock and stops the test traffic. A run of the DAG fails the group's last task
    `outcome` unless the upgrade ended as requested.
    """

    def __init__(self, cluster: str, *, group_id: str | None = None, **kwargs: Any) -> None:
        """`cluster`: name in the inventory. Raises UserError for an unknown cluster."""
        settings = Settings.from_environment()
        spec = get_cluster(cluster, settings)
        defaults: Any = {**spec.tasks, **(kwargs.pop("default_args", None) or {})}
        group = group_id or f"upgrade_{cluster}"
        super().__init__(group_id=group, prefix_group_id=False, default_args=defaults, **kwargs)
        self.dag.tags.add(TAG)
        with self:
            draw(UPGRADE, spec)
        plans_only = UPGRADE.for_cluster(spec) is not UPGRADE
        seen = last_seen_text(cluster, settings)
        form = form_of(RunOf.UPGRADE, spec, list_releases(settings), seen, plans_only=plans_only)
        for name, param in form.items():
            if name not in self.dag.params:
                self.dag.params[name] = param
