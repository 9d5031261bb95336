"""The cluster's lock: one change at a time, by a lease that every acting step and every look renews."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from kafka_rollout.domain.model.errors import LockHeldError, RefusedError, TransientError
from kafka_rollout.domain.run.events import LockedOut
from kafka_rollout.domain.run.lease import Lock
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

# Longer than the longest single call between two renewals (a controlled shutdown to its deadline), short enough
# that a killed holder does not keep others waiting.
LEASE_S = 600.0


def acquire_lock(ports: ClusterPorts, purpose: str, *, for_s: float = LEASE_S) -> Lock:
    """Take or renew the cluster's lock for this run; raises LockHeldError naming who holds it.

    Kafka's own id of the cluster goes with it from the first time on that a broker tells it: the inventory may know one
    cluster by two names.
    """
    held = ports.lock.holder(ports.cluster.name)
    known = held.cluster_id if held is not None and held.holder == ports.run_id else ""
    try:
        return ports.lock.acquire(
            ports.cluster.name, ports.run_id, purpose, for_s=for_s, cluster_id=known or _cluster_id(ports)
        )
    except LockHeldError as error:
        if ports.run.events():  # a run that has not begun leaves nothing behind
            ports.run.record(LockedOut(sentence=error.sentence))
        raise


@contextmanager
def lock_before_run(ports: ClusterPorts, purpose: str) -> Iterator[None]:
    """Take the lock before anything is scanned, planned or asked: a second change of the cluster is refused at once.
    What fails in here lets go of it; what comes after has to see to that itself."""
    acquire_lock(ports, purpose)
    try:
        with keep_lock(ports):
            yield
    except BaseException:
        release_lock(ports)
        raise


def keep_lock(ports: ClusterPorts) -> AbstractContextManager[None]:
    """Renew the lock in the background during a long operation, if this run holds it; nothing is acquired."""
    return ports.lock.renewing(ports.cluster.name, ports.run_id)


def shorten_lease(ports: ClusterPorts, purpose: str) -> Lock:
    """An ordinary lease again after a long one, once the person it was kept for has answered: a run that dies now
    must not keep others out for the rest of that time."""
    return ports.lock.acquire(ports.cluster.name, ports.run_id, purpose, for_s=LEASE_S, shorten=True)


def _cluster_id(ports: ClusterPorts) -> str:
    try:
        return ports.admin.cluster_id()
    except (TransientError, RefusedError):
        return ""  # asked again with the next renewal


def release_lock(ports: ClusterPorts) -> None:
    """Release the lock if this run holds it."""
    held = ports.lock.holder(ports.cluster.name)
    if held is not None and held.holder == ports.run_id:
        ports.lock.release(ports.cluster.name, ports.run_id)
