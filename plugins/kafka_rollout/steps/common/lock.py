"""The cluster's lock: one change at a time. Every changing step and every check renews its lease."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from kafka_rollout.base.errors import LockHeldError, RefusedError, TransientError
from kafka_rollout.base.lease import Lock
from kafka_rollout.run.events import LockedOut
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

# Longer than the longest call between two renewals (a controlled shutdown until its deadline), but short enough that
# a killed run does not block others for long.
LEASE_S = 600.0


def acquire_lock(ports: ClusterPorts, purpose: str, *, for_s: float = LEASE_S) -> Lock:
    """Acquire or renew the cluster's lock for this run. Raises LockHeldError with the run that holds it.

    The lock also contains Kafka's cluster id, once a broker has reported it, because the inventory can have one cluster
    under two names.
    """
    lease = ports.lock.holder(ports.cluster.name)
    known = lease.cluster_id if lease is not None and lease.holder == ports.run_id else ""
    try:
        return ports.lock.acquire(
            ports.cluster.name, ports.run_id, purpose, for_s=for_s, cluster_id=known or _cluster_id(ports)
        )
    except LockHeldError as error:
        if ports.run.events():  # a run that has not begun records nothing
            ports.run.record(LockedOut(sentence=error.sentence))
        raise


@contextmanager
def lock_before_run(ports: ClusterPorts, purpose: str) -> Iterator[None]:
    """Acquire the lock before anything is scanned, planned or asked, so a second change is refused at once.

    An error in this block releases the lock. After the block, the caller must release it.
    """
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
    """Set an ordinary lease again after the long lease for an answer, so that a killed run does not block others."""
    return ports.lock.acquire(ports.cluster.name, ports.run_id, purpose, for_s=LEASE_S, shorten=True)


def _cluster_id(ports: ClusterPorts) -> str:
    try:
        return ports.admin.cluster_id()
    except (TransientError, RefusedError):
        return ""  # read again at the next renewal


def release_lock(ports: ClusterPorts) -> None:
    """Release the lock if this run holds it."""
    lease = ports.lock.holder(ports.cluster.name)
    if lease is not None and lease.holder == ports.run_id:
        ports.lock.release(ports.cluster.name, ports.run_id)
