"""The outage of an offline downgrade: how long it is expected to take, and how long it took. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil

from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec

_SURE_WITHIN_S = 5.0  # bounds that are closer are told as one figure


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageEstimate:
    """Seconds during which nobody can produce or consume, by part; an estimate, rather too long than too short.

    `forced_s` comes on top where a controller does not stop by itself: nobody knows beforehand which does.
    """

    stop_s: float
    forced_s: float
    snapshot_s: float
    install_s: float
    start_s: float

    @property
    def total_s(self) -> float:
        """When every controller stops by itself."""
        return self.stop_s + self.snapshot_s + self.install_s + self.start_s

    @property
    def longest_s(self) -> float:
        """When one has to be ended."""
        return self.total_s + self.forced_s

    @property
    def sentence(self) -> str:
        return (
            f"Expected outage of the whole cluster: {expected(self.total_s, self.longest_s)} (stopping "
            f"{span(self.stop_s)}, up to {span(self.forced_s)} more where a controller does not stop by itself, the "
            f"snapshot and its proof {span(self.snapshot_s)}, installing it {span(self.install_s)}, starting "
            f"{span(self.start_s)}). Nobody can produce or consume meanwhile."
        )


# Seconds: twice what was measured with 3 and 6 nodes on two cores, for nodes with a machine of their own start faster
# but hold more.
_STOP_S, _STOP_NODE_S = 5.0, 2.0
_CLASSES_S, _READ_S_PER_MIB, _COPY_S_PER_MIB = 10.0, 2.0, 0.05
_INSTALL_NODE_S, _START_S, _START_NODE_S, _START_S_PER_PARTITION = 1.0, 15.0, 3.0, 0.005


def outage_estimate(
    nodes_count: int, log_bytes: Sequence[int], replicas: int, *, forced_after_s: float
) -> OutageEstimate:
    """`log_bytes`: size of each node's metadata log; `replicas`: of all partitions of the cluster; `forced_after_s`:
    when a controller that still shuts down is ended. They are asked side by side, so it counts once."""
    largest, total = (size / (1 << 20) for size in (max(log_bytes, default=0), sum(log_bytes)))
    return OutageEstimate(
        stop_s=_STOP_S + _STOP_NODE_S * nodes_count,
        forced_s=forced_after_s,
        snapshot_s=_CLASSES_S + _READ_S_PER_MIB * largest,
        install_s=_INSTALL_NODE_S * nodes_count + _COPY_S_PER_MIB * total,
        start_s=_START_S + _START_NODE_S * nodes_count + _START_S_PER_PARTITION * replicas,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One time without service; epoch seconds. `began_at`: the first node was asked to stop; `writable_at` and
    `served_at`: the looks that saw every partition, then every broker, back (None: none has); `unserved_at`: when it
    was last known not to be over, for nobody looks while a run is interrupted.
    """

    began_at: float
    unserved_at: float
    writable_at: float | None = None
    served_at: float | None = None

    @property
    def seconds(self) -> float | None:
        """At most; None while it goes on."""
        return None if self.served_at is None else self.served_at - self.began_at

    @property
    def seconds_at_least(self) -> float:
        return self.unserved_at - self.began_at

    @property
    def writable_s(self) -> float | None:
        """Until every partition had a leader and its min ISR; at most."""
        return None if self.writable_at is None else self.writable_at - self.began_at

    @property
    def sentence(self) -> str:
        writable = "" if self.writable_s is None else f"; every partition was writable after {span(self.writable_s)}"
        if self.seconds is None:
            return f"The outage is not over as far as anybody has seen{writable}."
        known = self.seconds - self.seconds_at_least <= _SURE_WITHIN_S
        took = span(self.seconds) if known else f"between {span(self.seconds_at_least)} and {span(self.seconds)}"
        unseen = "" if known else " (nobody looked in between)"
        return f"Real outage: {took}{unseen}, from the first stop until the last broker served again{writable}."


def unwritable(state: ClusterState, but: Collection[str] = ()) -> tuple[str, ...]:
    """Partitions that nobody can write to with acks=all now; `but`: those that were so before."""
    up = {node_id for node_id, node in state.nodes.items() if node.features is not None}
    return tuple(
        p.name for p in state.partitions if p.name not in but and (p.leader not in up or len(p.isr) < p.min_isr)
    )


def not_serving(cluster: ClusterSpec, state: ClusterState) -> tuple[int, ...]:
    """Brokers that do not answer, or are fenced. One that answers has registered anew, so what is told of its fencing
    is of this start (BrokerServer: request processing begins after that)."""
    serving = state.registered.brokers - (state.registered.fenced or frozenset())
    answers = {node_id for node_id, node in state.nodes.items() if node.features is not None}
    return tuple(node.node_id for node in cluster.brokers if node.node_id not in serving & answers)


def expected(seconds: float, at_most_s: float) -> str:
    """What an approval says of an outage: `about 48 s, up to 108 s`; the bound is never rounded down."""
    bound = at_most_s if at_most_s < 120 else 60.0 * ceil(at_most_s / 60)
    return f"about {span(seconds)}, up to {span(bound)}"


def span(seconds: float) -> str:
    """In words, as an estimate is told: `40 s`, `15 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
