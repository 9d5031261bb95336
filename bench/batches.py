"""Time and memory of planning batches for a large cluster, and a simulated roll in batches and one node at a time.

Real: the planning, and the check of each batch right before its stop. Simulated: brokers, replicas and time.

    python -m bench.batches --brokers 1000 --partitions 1000000
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from kafka_rollout.model.plan import Batch, NodeStep
from kafka_rollout.model.state import PartitionState
from kafka_rollout.planning.batches import BatchLimits, find_batches, split_batch

RESULTS = Path(__file__).parent / "results" / "batches.json"
SEED = 20261125
RESTART_S = 30.0
SOAK_S = 60.0
WHOLE_WITHIN_S = 60.0  # as the run waits for the whole batch before it splits it
_RACKS = "abc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A simulated cluster with three racks. `ignoring`: share of the partitions that ignore racks."""

    brokers: int
    partitions: int
    ignoring: float = 0.0

    @property
    def racks(self) -> dict[int, str]:
        return {node_id: _RACKS[node_id % 3] for node_id in range(self.brokers)}

    @property
    def order(self) -> tuple[NodeStep, ...]:
        return tuple(NodeStep(node_id=one, name=f"broker-{one}", section="brokers") for one in range(self.brokers))

    def place(self, random: Random) -> Iterator[PartitionState]:
        """Three replicas, one in each rack or anywhere; min.insync.replicas 2. Every topic has 20 partitions."""
        by_rack = [[node_id for node_id, rack in self.racks.items() if rack == one] for one in _RACKS]
        for number in range(self.partitions):
            if random.random() < self.ignoring:
                replicas = tuple(random.sample(range(self.brokers), 3))
            else:
                chosen = [random.choice(rack) for rack in by_rack]
                random.shuffle(chosen)
                replicas = tuple(chosen)
            yield PartitionState(
                topic=f"topic-{number // 20}",
                partition=number % 20,
                leader=replicas[0],
                replicas=replicas,
                isr=replicas,
                min_insync_replicas=2,
            )


def plan(shape: Shape, limits: BatchLimits) -> dict[str, Any]:
    """Plan the batches; return the seconds, and the memory of the whole process with the partitions."""
    partitions = tuple(shape.place(Random(SEED)))
    began = time.monotonic()
    batches = find_batches(shape.order, partitions, shape.racks, limits)
    took = time.monotonic() - began
    return {
        "brokers": shape.brokers,
        "partitions": shape.partitions,
        "ignoring_racks": shape.ignoring,
        "max_batch_size": limits.max_size,
        "one_rack_at_a_time": limits.one_rack,
        "batches": len(batches),
        "plan_s": round(took, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


@dataclass(slots=True, kw_only=True)
class Roll:
    """A simulated roll.

    A node restarts in RESTART_S; then its replicas need up to 40 s to be in sync. Before a batch, a broker can crash,
    or replicas of a broker can leave their ISRs; the check before the stop then waits, or splits the batch. A restarted
    node can fail: it comes back after ten minutes, and no other node is stopped until then. No broker crashes while a
    batch is down, because this takes partitions under min ISR with one node at a time too.
    """

    partitions: list[PartitionState]
    random: Random
    now: float = 0.0
    below_min_isr: int = 0
    without_leader: int = 0
    leader_moves: int = 0
    splits: int = 0
    waits: int = 0
    failures: int = 0
    of_node: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.of_node = {}
        for place, partition in enumerate(self.partitions):
            for node_id in partition.replicas:
                self.of_node.setdefault(node_id, []).append(place)

    def go(self, batches: Sequence[Batch]) -> None:
        for planned in batches:
            left = list(planned.node_ids)
            while left:
                self._disturb()
                part, waited = self._safe_part(left), 0.0
                while not all(map(self._can_stop, part)) or (len(part) < len(left) and waited < WHOLE_WITHIN_S):
                    self.waits += 1
                    self.now += 10.0
                    waited += 10.0
                    self._recover()
                    part = self._safe_part(left)
                self.splits += len(part) < len(left)
                self._restart(part)
                left = [node_id for node_id in left if node_id not in part]

    def _safe_part(self, ids: Sequence[int]) -> Sequence[int]:
        return split_batch(ids, [self.partitions[place] for place in self._places(ids)])[0].node_ids

    def _places(self, ids: Sequence[int]) -> list[int]:
        return sorted({place for node_id in ids for place in self.of_node.get(node_id, ())})

    def _can_stop(self, node_id: int) -> bool:
        """The gate of one node: every partition of it keeps min.insync.replicas."""
        return all(
            len(set(self.partitions[place].isr) - {node_id}) >= self.partitions[place].min_isr
            for place in self.of_node.get(node_id, ())
        )

    def _disturb(self) -> None:
        """A broker crashes and is back later, or some of its replicas are late."""
        kind = self.random.random()
        if kind >= 0.2:
            return
        self.failures += 1
        node_id = self.random.choice(tuple(self.of_node))
        places = self.of_node[node_id]
        self._leave(node_id, places if kind < 0.1 else places[:5])

    def _leave(self, node_id: int, places: Sequence[int]) -> None:
        for place in places:
            one = self.partitions[place]
            isr = tuple(replica for replica in one.isr if replica != node_id)
            leader = one.leader
            if leader == node_id:
                leader = isr[0] if isr else -1
                self.leader_moves += 1
            self.partitions[place] = replace(one, isr=isr, leader=leader)

    def _recover(self) -> None:
        """Every replica is in sync again, and the preferred leader leads, one by one with some probability."""
        for place, one in enumerate(self.partitions):
            if len(one.isr) < len(one.replicas) and self.random.random() < 0.3:
                self.partitions[place] = replace(one, isr=one.replicas, leader=one.replicas[0])

    def _restart(self, part: Sequence[int]) -> None:
        for node_id in part:
            self._leave(node_id, self.of_node.get(node_id, ()))
        touched = self._places(part)
        self.below_min_isr += sum(len(self.partitions[place].isr) < self.partitions[place].min_isr for place in touched)
        self.without_leader += sum(self.partitions[place].leader < 0 for place in touched)
        back = []
        for _ in part:
            failed = self.random.random() < 0.01
            self.failures += failed
            back.append(RESTART_S + self.random.uniform(5, 40) + (600.0 if failed else 0.0))
        self.now += max(back) + SOAK_S
        for place in touched:
            one = self.partitions[place]
            self.partitions[place] = replace(one, isr=one.replicas, leader=one.replicas[0])


def simulate(shape: Shape, limits: BatchLimits, seed: int) -> dict[str, Any]:
    """Roll a simulated cluster in batches and one node at a time, with the same partitions; return both."""
    partitions = list(shape.place(Random(seed)))
    planned = find_batches(shape.order, partitions, shape.racks, limits)
    single = tuple(Batch(node_ids=(one.node_id,), ends="") for one in shape.order)
    rolls = {}
    for name, batches in (("batches", planned), ("one_at_a_time", single)):
        roll = Roll(partitions=list(partitions), random=Random(seed))
        roll.go(batches)
        rolls[name] = {
            "steps": len(batches),
            "hours": round(roll.now / 3600, 2),
            "below_min_isr": roll.below_min_isr,
            "without_leader": roll.without_leader,
            "leader_moves": roll.leader_moves,
            "splits": roll.splits,
            "waits": roll.waits,
            "failures": roll.failures,
        }
    ratio = rolls["one_at_a_time"]["hours"] / rolls["batches"]["hours"]
    return {"seed": seed, "ratio": round(ratio, 2), **rolls}


def _in_own_process(measure: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, given)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--max-batch-size", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5, help="simulated rolls")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    most = given.max_batch_size
    plans = [
        _in_own_process(
            plan,
            Shape(brokers=given.brokers, partitions=given.partitions, ignoring=ignoring),
            BatchLimits(max_size=most, one_rack=one_rack),
        )
        for ignoring, one_rack in ((0.0, True), (0.001, True), (1.0, True), (0.0, False))
    ]
    shape = Shape(brokers=200, partitions=20_000, ignoring=0.001)
    rolls = [simulate(shape, BatchLimits(max_size=20), SEED + number) for number in range(given.rounds)]
    result = {
        "command": "python -m bench.batches",
        "plans": plans,
        "ratio": {
            "median": median(roll["ratio"] for roll in rolls),
            "min": min(roll["ratio"] for roll in rolls),
            "max": max(roll["ratio"] for roll in rolls),
        },
        "simulation": {"brokers": shape.brokers, "partitions": shape.partitions, "max_batch_size": 20, "rolls": rolls},
    }
    text = json.dumps(result, indent=2)
    print(text)
    if given.write:
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    _main()
