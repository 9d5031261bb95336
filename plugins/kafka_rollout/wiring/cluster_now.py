"""Reads the state of a cluster for the page: through its own listeners, without hosts, metrics agents or a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.console.run_console import ClusterNow, summarize
from kafka_rollout.model.rights import LIST_PARTITIONS, right_findings
from kafka_rollout.model.state import begin_with_another, find_current_brokers
from kafka_rollout.model.topology import ClusterSpec

if TYPE_CHECKING:
    from kafka_rollout.client.security.client_security import ClientSecurity
    from kafka_rollout.ports.cluster import ClusterQueries

_TIMEOUT_S = 5.0
_T = TypeVar("_T")


def read_cluster_now(cluster: ClusterSpec, security: ClientSecurity) -> ClusterNow:
    """Return the state. A query without an answer is in its `problems`, and its value is unknown."""
    from kafka_rollout.client.admin import KafkaAdmin

    with KafkaAdmin(cluster, security, timeout_s=_TIMEOUT_S) as admin:
        return query_cluster_now(cluster, admin)


def query_cluster_now(cluster: ClusterSpec, admin: ClusterQueries) -> ClusterNow:
    """Return the state by the answers of `admin`."""
    problems: list[str] = []

    def ask(question: Callable[[], _T]) -> _T | None:
        try:
            return question()
        except (TransientError, RefusedError) as error:
            problems.append(f"{error.sentence} {error.remedy}".strip())
            return None

    quorum = ask(lambda: admin.quorum(through_brokers=False))
    current = begin_with_another(find_current_brokers(cluster, quorum, {}), SystemClock().now())
    registered = ask(lambda: admin.registered(through=current))
    partitions = ask(lambda: admin.partitions(through=current))
    # Brokers leave out the topics that the user cannot describe, without an error.
    missing = None if partitions is None else ask(lambda: admin.missing_rights([LIST_PARTITIONS]))
    problems += [f"{one.sentence} {one.remedy}" for one in right_findings(cluster, missing or ())]
    return summarize(
        observed_at=SystemClock().now(),
        partitions=partitions,
        lists_all=missing == (),
        quorum=quorum,
        registered=registered,
        levels=_levels(cluster, admin, current),
        problems=tuple(dict.fromkeys(problems)),
    )


def _levels(cluster: ClusterSpec, admin: ClusterQueries, current: tuple[int, ...]) -> dict[str, int]:
    """Return the finalized levels of the first broker that reports them, those with current metadata first."""
    for node in sorted(cluster.brokers, key=lambda node: node.node_id not in current)[:3]:
        with suppress(TransientError, RefusedError):
            features = admin.features(node)
            if features.epoch is not None:
                return dict(features.finalized)
    return {}
