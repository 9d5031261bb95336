"""The state of clusters as Kafka shows it now, read in the background for all tabs of a process of the API server."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

from airflow.sdk.exceptions import AirflowNotFoundException

from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.base.errors import RolloutError, UserError
from kafka_rollout.console.run_console import ClusterNow, with_trends
from kafka_rollout.model.topology import ClusterSpec

log = logging.getLogger(__name__)

EVERY_S = 10.0
MOST_OF_THE_TIME = 10  # a query that takes 3 s is repeated after 30 s, so that a large cluster is not always asked
_KEPT = 60


@dataclass(slots=True)
class _Cluster:
    """What is known of one cluster."""

    seen: deque[ClusterNow] = field(default_factory=lambda: deque(maxlen=_KEPT))
    problem: str = ""
    due_at: float = 0.0
    """Monotonic seconds."""
    is_reading: bool = False


@dataclass(slots=True)
class LiveStates:
    """At most one query of a cluster at a time, and at most one each EVERY_S, only while a page asks for it."""

    read: Callable[[ClusterSpec], ClusterNow]
    clock: Callable[[], float] = monotonic
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="live-state"))
    _clusters: dict[str, _Cluster] = field(default_factory=dict)
    _guard: Lock = field(default_factory=Lock)

    def get(self, cluster: ClusterSpec) -> tuple[ClusterNow | None, str]:
        """Return the newest state and why there is no newer one, at once; begin to read another one if it is due."""
        with self._guard:
            known = self._clusters.setdefault(cluster.name, _Cluster())
            if not known.is_reading and self.clock() >= known.due_at:
                known.is_reading = True
                self.pool.submit(self._read, cluster, known)
            return (known.seen[-1] if known.seen else None), known.problem

    def _read(self, cluster: ClusterSpec, known: _Cluster) -> None:
        began, found, problem = self.clock(), None, ""
        try:
            found = self.read(cluster)
        except RolloutError as error:
            problem = str(error)
        except Exception as error:  # its text can have a setting of the Connection
            log.warning("The state of cluster %s cannot be read: %s", cluster.name, type(error).__name__)
            problem = f"The cluster cannot be queried ({type(error).__name__})."
        with self._guard:
            if found is not None:
                known.seen.append(with_trends(found, list(known.seen)))
            known.problem = problem
            ended = self.clock()
            known.due_at = began + max(EVERY_S, (ended - began) * MOST_OF_THE_TIME)
            known.is_reading = False


def _read(cluster: ClusterSpec) -> ClusterNow:
    from kafka_rollout.wiring.cluster_now import read_cluster_now

    try:
        security = ClusterAccess(cluster.name).security()
    except AirflowNotFoundException:
        names = " or ".join(name for name in cluster.connection_ids if name)
        raise UserError(
            f"The API server of Airflow cannot find the Connection {names} of cluster {cluster.name}.",
            remedy="Create it in Airflow (Admin, Connections), or correct connection_id in the inventory.",
        ) from None
    return read_cluster_now(cluster, security)


LIVE = LiveStates(read=_read)
