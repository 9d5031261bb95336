"""Ports that change a cluster. Each change first checks the fencing token.

The protocols of a port say which of its calls change something (ports/cluster.py). The check is made at each of these
calls. The adapters make it again immediately before each change, because a call can take an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.lease import Fence
from kafka_rollout.ports.cluster import ClusterChanges, MetadataLogChanges, NodeChanges
from kafka_rollout.run.ports import ChangeLock
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

FRESH_S = 5.0
_TRIES = 3
_Port = TypeVar("_Port")


def make_fence(lock: ChangeLock, cluster: str, clock: Clock) -> Fence:
    """Return the check before each change: it raises RefusedError unless this process acts on the cluster now.

    An answer that is older than FRESH_S when it arrives is not used, because the process can have been paused. Raises
    TransientError if the database does not answer in time.
    """

    def fence() -> None:
        for _ in range(_TRIES):
            asked_at = clock.monotonic()
            lock.check_acting(cluster)
            if clock.monotonic() - asked_at <= FRESH_S:
                return
        raise TransientError(
            f"The database did not confirm the lock of cluster {cluster} within {FRESH_S:.0f} s, so nothing was sent.",
            remedy="Check the load of the database and of this machine, then repeat the step.",
        )

    return fence


def fence_cluster_ports(ports: ClusterPorts) -> ClusterPorts:
    """Return the ports with a check before each change.

    A change raises RefusedError unless this process acts with the newest token of the cluster.
    """
    fence = make_fence(ports.lock, ports.cluster.name, ports.clock)
    return replace(
        ports,
        admin=_fenced(ports.admin, ClusterChanges, fence),
        runtime=_fenced(ports.runtime, NodeChanges, fence),
        metadata_logs=_fenced(ports.metadata_logs, MetadataLogChanges, fence),
    )


def calls_of(protocol: type) -> frozenset[str]:
    """Return the names of the calls that a protocol itself declares."""
    return frozenset(name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_"))


def _fenced(port: _Port, changes: type, fence: Fence) -> _Port:
    return cast(_Port, _Fenced(port, calls_of(changes), fence))


class _Fenced:
    """A port with a check before each of its `changes`. A validate-only request is not checked."""

    def __init__(self, port: object, changes: frozenset[str], fence: Fence) -> None:
        self._port = port
        self._changes = changes
        self._fence = fence

    def __getattr__(self, name: str) -> Any:
        found: Callable[..., Any] = getattr(self._port, name)
        if name not in self._changes:
            return found

        @wraps(found)
        def change(*args: Any, **options: Any) -> Any:
            if not options.get("validate_only"):
                self._fence()
            return found(*args, **options)

        return change
