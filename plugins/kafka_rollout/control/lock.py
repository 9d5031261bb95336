"""The cluster's lock: one change at a time. Every changing step and every check renews its lease.

Each change first checks the fencing token. The protocols of a port say which of its calls change something
(ports/cluster.py). The check is made at each of these calls. The adapters make it again immediately before each change,
because a call can take an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.lease import Fence, Lock
from kafka_rollout.base.time_limits import LEASE_S
from kafka_rollout.control.claims import end_claims, recording_lockout, refuse_claims_on_hosts, refuse_unclaimed
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, around_calls
from kafka_rollout.ports.cluster import ClusterChanges, MetadataLogChanges, NodeChanges
from kafka_rollout.run.ports import ChangeLock


def acquire_lock(ports: ClusterPorts, purpose: str, *, for_s: float = LEASE_S) -> Lock:
    """Acquire or renew the cluster's lock for this run. Raises LockHeldError with the run that holds it.

    The lock also contains Kafka's cluster id, once a broker has reported it, because the inventory can have one cluster
    under two names.
    """
    lease = ports.lock.holder(ports.cluster.name)
    known = lease.cluster_id if lease is not None and lease.holder == ports.run_id else ""
    with recording_lockout(ports):
        return ports.lock.acquire(
            ports.cluster.name, ports.run_id, purpose, for_s=for_s, cluster_id=known or _cluster_id(ports)
        )


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
    with recording_lockout(ports):
        return ports.lock.acquire(ports.cluster.name, ports.run_id, purpose, for_s=LEASE_S, shorten=True)


def refuse_fenced(ports: ClusterPorts) -> None:
    """Raise LockBrokenError if an approver or an operator has stopped the run since this call began."""
    with recording_lockout(ports):
        ports.lock.refuse_fenced(ports.cluster.name, ports.run_id)


def _cluster_id(ports: ReadPorts) -> str:
    try:
        return ports.admin.cluster_id()
    except (TransientError, RefusedError):
        return ""  # read again at the next renewal


def release_lock(ports: ClusterPorts) -> None:
    """Release the lock if this run holds it, and end the claims of nodes that are back."""
    lease = ports.lock.holder(ports.cluster.name)
    if lease is not None and lease.holder == ports.run_id:
        end_claims(ports)
        ports.lock.release(ports.cluster.name, ports.run_id)


FRESH_S = 5.0
_TRIES = 3


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
    """Return the ports with a check before each change. A validate-only request is not checked.

    A change raises RefusedError unless this process acts with the newest token of the cluster, and as the checks of
    claims do for a run of another database.
    """
    fence = make_fence(ports.lock, ports.cluster.name, ports.clock)

    @contextmanager
    def check(name: str, args: Sequence[object], options: Mapping[str, object]) -> Iterator[None]:
        if not options.get("validate_only"):
            fence()
            if ports.cluster.manages_nodes and name not in _BEFORE_CLAIM:
                _refuse_other_databases(ports, name, args)
        yield

    return replace(
        ports,
        admin=around_calls(ports.admin, calls_of(ClusterChanges), check),
        runtime=around_calls(ports.runtime, calls_of(NodeChanges), check),
        metadata_logs=around_calls(ports.metadata_logs, calls_of(MetadataLogChanges), check),
    )


# What a host gets before its node is claimed: a running node can keep it.
_BEFORE_CLAIM = frozenset({"claim", "end_claims", "bring"})


def _refuse_other_databases(ports: ClusterPorts, name: str, args: Sequence[object]) -> None:
    match args:
        case [NodeSpec() as node, *_]:
            refuse_unclaimed(ports, name, node)
        case _:  # of the whole cluster
            refuse_claims_on_hosts(ports)


def calls_of(protocol: type) -> frozenset[str]:
    """Return the names of the calls that a protocol itself declares."""
    return frozenset(name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_"))
