"""The outage of an offline downgrade, expected and measured, and the time without a controller in a live one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from kafka_rollout.base.durations import duration
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec

_SURE_WITHIN_S = 5.0  # bounds with a smaller difference are shown as one number


@dataclass(frozen=True, slots=True, kw_only=True)
class DowntimeEstimate:
    """Expected seconds in which nodes are stopped, by part. It is rather too long than too short."""

    stop_s: float
    snapshot_s: float
    install_s: float
    start_s: float
    forced_s: float = 0.0
    """Additional seconds if a controller does not stop by itself, which is not known in advance."""
    commands_s: float = 0.0
    """Additional seconds that the operator's commands after the starts can take."""
    before_s: float = 0.0
    """Seconds that the operator's commands before the first stop can take. They are not in the downtime."""

    @property
    def total_s(self) -> float:
        """Seconds if every controller stops by itself, without the operator's commands."""
        return self.stop_s + self.snapshot_s + self.install_s + self.start_s

    @property
    def longest_s(self) -> float:
        """Seconds if a controller must be killed, and the operator's commands take as long as they can."""
        return self.total_s + self.forced_s + self.commands_s

    @property
    def parts(self) -> str:
        more = f", up to {span(self.forced_s)} more if a controller does not stop by itself" if self.forced_s else ""
        after = f", up to {span(self.commands_s)} more for the commands after it" if self.commands_s else ""
        before = ""
        if self.before_s:
            before = f" Before the first stop, the commands before it take up to {span(self.before_s)}."
        return (
            f"Stop {span(self.stop_s)}{more}; snapshot and its check {span(self.snapshot_s)}; installation "
            f"{span(self.install_s)}; start {span(self.start_s)}{after}.{before}"
        )


class OutageEstimate(DowntimeEstimate):
    __slots__ = ()

    @property
    def sentence(self) -> str:
        return (
            f"Expected outage of the whole cluster: {expected(self.total_s, self.longest_s)}. {self.parts} No client "
            "can produce or consume during the outage."
        )


class AbsenceEstimate(DowntimeEstimate):
    """Expected seconds without an active controller in a live downgrade."""

    __slots__ = ()

    @property
    def sentence(self) -> str:
        longest = f", up to {span(self.longest_s)}" if self.longest_s > self.total_s else ""
        return f"Expected time without an active controller: about {span(self.total_s)}{longest}. {self.parts}"


def outage_estimate(
    cluster: ClusterSpec, log_bytes: Sequence[int], replicas: int, *, forced_after_s: float
) -> OutageEstimate:
    """Return the estimate: twice the times measured with 3 and 6 nodes on two cores.

    Nodes with their own machine start faster but have more data. `log_bytes`: size of each node's metadata log;
    `replicas`: of all partitions. `forced_after_s`: seconds after which a hanging controller is killed. All are stopped
    in parallel, so it counts once. So do the commands of the controllers, and then those of the brokers.
    """
    nodes_count = len(cluster.nodes)
    largest_mib, all_mib = _mebibytes(log_bytes)
    return OutageEstimate(
        stop_s=5.0 + 2.0 * nodes_count,
        forced_s=forced_after_s,
        snapshot_s=10.0 + 2.0 * largest_mib,
        install_s=1.0 * nodes_count + 0.05 * all_mib,
        start_s=15.0 + 3.0 * nodes_count + 0.005 * replicas,
        commands_s=_after_s(cluster.controllers) + _after_s(cluster.brokers_alone),
        before_s=_before_s(cluster.nodes),
    )


def absence_estimate(cluster: ClusterSpec, log_bytes: Sequence[int]) -> AbsenceEstimate:
    """Return the estimate: at least the times measured with 3 controllers on two cores, and with 100,000 partitions.

    `log_bytes`: size of each controller's metadata log (12 MiB with these partitions). The log is replayed before the
    stop. After it, only its end is replayed, but the whole metadata is written again and checked. The commands after
    the starts count only if the controllers do not serve without them.
    """
    largest_mib, all_mib = _mebibytes(log_bytes)
    return AbsenceEstimate(
        stop_s=1.0,
        snapshot_s=3.0 + 2.0 * largest_mib,
        install_s=0.3 * len(log_bytes) + 0.05 * all_mib,
        start_s=15.0,
        commands_s=_after_s(cluster.controllers),
        before_s=_before_s(cluster.controllers),
    )


def _before_s(nodes: Iterable[NodeSpec]) -> float:
    """Return the longest time of the commands of nodes before a stop, which run on all of them at once."""
    return max((node.commands_before_stop_s for node in nodes), default=0.0)


def _after_s(nodes: Iterable[NodeSpec]) -> float:
    """Return the longest time of the commands of nodes after a start, which run on all of them at once."""
    return max((node.commands_after_start_s for node in nodes), default=0.0)


def _mebibytes(sizes: Sequence[int]) -> tuple[float, float]:
    """Return the largest of some sizes in bytes, and all together, in MiB."""
    return max(sizes, default=0) / (1 << 20), sum(sizes) / (1 << 20)


UNAVAILABLE = (
    "While no controller is active: no partition leader is elected, no ISR changes, and no topic, ACL, quota, user or "
    "configuration can be changed. Clients produce and consume as before.",
    "If a broker fails in this time, its partitions have no leader until the controllers are back.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One time without service, in epoch seconds."""

    began_at: float
    """Request to stop the first node."""
    unserved_at: float
    """The last time at which the outage was not over. No check runs while a run is interrupted."""
    writable_at: float | None = None
    """The checks at which every partition, then every broker, was back; None: not yet."""
    served_at: float | None = None
    """The checks at which every partition, then every broker, was back; None: not yet."""

    @property
    def seconds(self) -> float | None:
        """Longest possible duration in seconds; None while the outage continues."""
        return None if self.served_at is None else self.served_at - self.began_at

    @property
    def seconds_at_least(self) -> float:
        return self.unserved_at - self.began_at

    @property
    def writable_s(self) -> float | None:
        """Longest possible seconds until every partition had a leader and its min ISR."""
        return None if self.writable_at is None else self.writable_at - self.began_at

    @property
    def sentence(self) -> str:
        writable = "" if self.writable_s is None else f"; every partition was writable after {span(self.writable_s)}"
        if self.seconds is None:
            return f"The outage was not over at the last check{writable}."
        known = self.seconds - self.seconds_at_least <= _SURE_WITHIN_S
        took = span(self.seconds) if known else f"{span(self.seconds_at_least)} to {span(self.seconds)}"
        unseen = "" if known else " No check ran between these two times."
        return (
            f"Measured outage: {took}, from the first stop until the last broker served requests "
            f"again{writable}.{unseen}"
        )


def unwritable(state: ClusterState, but: Collection[str] = ()) -> tuple[str, ...]:
    """Return the partitions that no client can write to with acks=all. `but`: those that were unwritable before."""
    up = {node_id for node_id, node in state.nodes.items() if node.features is not None}
    return tuple(p.name for p in state.partitions if p.name not in but and (p.leader not in up or p.is_under_min_isr))


def not_serving(cluster: ClusterSpec, state: ClusterState) -> tuple[int, ...]:
    """Return the brokers that do not respond or are fenced.

    A broker that responds has re-registered, so its fencing state is of this start (BrokerServer enables request
    processing after the registration).
    """
    serving = state.registered.unfenced
    answers = {node_id for node_id, node in state.nodes.items() if node.features is not None}
    return tuple(node.node_id for node in cluster.brokers if node.node_id not in serving & answers)


def expected(seconds: float, at_most_s: float) -> str:
    """Return an expected outage as text: `about 48 s, up to 108 s`. The upper bound is never rounded down."""
    bound = at_most_s if at_most_s < 120 else 60.0 * ceil(at_most_s / 60)
    return f"about {span(seconds)}, up to {span(bound)}"


def span(seconds: float) -> str:
    """Return a duration as text: `40 s`, `15 min`, `3 h 20 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else duration(seconds)
