"""Measures what the dynamic rebalance protocol saves: restarts of a migration, and time without a consumer.

    python -m bench.rebalance [--rounds 1] [--release 4.3.1] [--revoke-s 0.2] [--down-s 2]

One broker, 64 partitions, groups of 8 members (threads). The rebalance listener needs `--revoke-s` seconds for each
partition that is revoked, like a consumer that flushes state. A member that restarts is down for `--down-s` seconds.
Each round measures on the same broker, one after the other:

- the migration from range to cooperative with the dynamic protocol: each member restarts once;
- the same migration with released consumers (KIP-429), whose protocol is always the highest that all assignors of the
  member support: first all members restart with both assignors, then all members with the cooperative assignor only;
- a rolling bounce of an eager group (kafka-python's range), and of the dynamic group after its migration.

A partition is unassigned from the time when its member begins to revoke it (or exits) until a member gets it assigned.
The next member restarts when every partition is assigned again. Writes bench/results/rebalance.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor

from dynamic_protocol_consumer import DynamicProtocolConsumer
from dynamic_protocol_consumer.coordinator import KeptJoins
from dynamic_protocol_consumer.member import Handover, Member
from dynamic_protocol_consumer.protocols import Partition, RebalanceProtocol
from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster

MEMBERS, PARTITIONS = 8, 64
RESULTS = PROJECT_ROOT / "bench" / "results" / "rebalance.json"
_DEADLINE_S = 120.0
_HOLD_S = 0.3
_SETTINGS = {
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 300,
    "session_timeout_ms": 30_000,
    "max_poll_interval_ms": 60_000,
    "metrics_enabled": False,
}


class FixedMember(Member):
    """A member of a released consumer: it keeps its first protocol, the highest that its assignors have in common."""

    __slots__ = ()

    def assigned(self, *, owned: frozenset[Partition], assigned: frozenset[Partition]) -> tuple[Self, Handover]:
        after, handover = super().assigned(owned=owned, assigned=assigned)
        return replace(after, protocol=self.protocol), handover


class RangeConsumer(KafkaConsumer):  # type: ignore[misc]
    """kafka-python's consumer without its repeated join requests, which eager rebalancing does not need."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self._coordinator.__class__ = KeptJoins


class FixedProtocolConsumer(DynamicProtocolConsumer):
    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self._coordinator._member = FixedMember.start(self._coordinator.member.assignors)


@dataclass(slots=True)
class Owners:
    """The time during which each partition was assigned.

    A member that closes during an eager rebalance gets the revocation twice from kafka-python. The second is ignored.
    """

    began: dict[int, tuple[object, float]] = field(default_factory=dict)
    owned_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, member: object, partitions: Iterable[Any]) -> None:
        with self.lock:
            for partition in partitions:
                self.began[partition.partition] = (member, time.monotonic())

    def give_up(self, member: object, partitions: Iterable[Any]) -> None:
        with self.lock:
            for partition in partitions:
                owner, began = self.began.get(partition.partition, (None, 0.0))
                if owner is member:
                    del self.began[partition.partition]
                    self.owned_s += time.monotonic() - began

    def partition_seconds(self) -> float:
        with self.lock:
            now = time.monotonic()
            return self.owned_s + sum(now - began for _, began in self.began.values())


class CostlyListener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, owners: Owners, cost_s: float) -> None:
        self.owners, self.cost_s = owners, cost_s

    def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self.owners.take(self, assigned)

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self.owners.give_up(self, revoked)
        time.sleep(self.cost_s * len(revoked))


class Running(threading.Thread):
    def __init__(self, consumer: KafkaConsumer, topic: str, listener: CostlyListener) -> None:
        super().__init__(daemon=True)
        self.consumer, self._ending = consumer, threading.Event()
        consumer.subscribe([topic], listener=listener)
        self.start()

    def run(self) -> None:
        while not self._ending.is_set():
            self.consumer.poll(timeout_ms=200)
        self.consumer.close()

    def stop(self) -> None:
        self._ending.set()
        self.join(_DEADLINE_S)


Make = Callable[..., KafkaConsumer]
OLD: tuple[Make, Any] = (RangeConsumer, (RangePartitionAssignor,))
DYNAMIC: tuple[Make, Any] = (DynamicProtocolConsumer, ("cooperative-sticky", "range"))
FIRST_BOUNCE: tuple[Make, Any] = (FixedProtocolConsumer, ("cooperative-sticky", "range"))
SECOND_BOUNCE: tuple[Make, Any] = (FixedProtocolConsumer, ("cooperative-sticky",))


class BenchGroup:
    def __init__(self, servers: str, name: str, cost_s: float, down_s: float) -> None:
        self.servers, self.name, self.cost_s, self.down_s = servers, name, cost_s, down_s
        self.owners = Owners()
        self.members: list[Running] = []
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(_DEADLINE_S)
        for _ in range(MEMBERS):
            self.members.append(self._member(OLD))
        self._wait()

    def bounce(self, kind: tuple[Make, Any]) -> dict[str, float]:
        """Restart every member in turn. Return the restarts, the seconds and the unassigned partition-seconds."""
        owned, began = self.owners.partition_seconds(), time.monotonic()
        for index in range(MEMBERS):
            self.members[index].stop()
            time.sleep(self.down_s)
            self.members[index] = self._member(kind)
            self._wait()
            print(f"  {self.name}: {index + 1} of {MEMBERS} restarted", file=sys.stderr)
        seconds = time.monotonic() - began
        unowned = PARTITIONS * seconds - (self.owners.partition_seconds() - owned)
        return {"restarts": MEMBERS, "seconds": seconds, "unowned_partition_s": unowned}

    @property
    def is_cooperative(self) -> bool:
        return all(
            getattr(member.consumer, "rebalance_protocol", None) is RebalanceProtocol.COOPERATIVE
            for member in self.members
        )

    def stop(self) -> None:
        self.cost_s = 0.0
        for member in self.members:
            member.stop()

    def _member(self, kind: tuple[Make, Any]) -> Running:
        make, strategy = kind
        consumer = make(
            bootstrap_servers=self.servers, group_id=self.name, partition_assignment_strategy=strategy, **_SETTINGS
        )
        return Running(consumer, self.name, CostlyListener(self.owners, self.cost_s))

    def _wait(self) -> None:
        """Wait until all partitions are assigned, every member has some, and nothing changes for _HOLD_S seconds."""
        since, deadline, seen = time.monotonic(), time.monotonic() + _DEADLINE_S, None
        while time.monotonic() - since < _HOLD_S:
            owned = [frozenset(member.consumer.assignment()) for member in self.members]
            generations = {member.consumer.group_metadata().generation_id for member in self.members}
            whole = len(self.owners.began) == PARTITIONS == sum(map(len, owned)) and all(owned)
            if not whole or owned != seen or len(generations) > 1:
                since, seen = time.monotonic(), owned
            if time.monotonic() > deadline:
                raise FatalError(f"Group {self.name} does not become stable.", remedy="Read the broker's log.")
            time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--release", default="4.3.1")
    parser.add_argument("--revoke-s", type=float, default=0.2)
    parser.add_argument("--down-s", type=float, default=2.0)
    arguments = parser.parse_args()
    settings = Settings.from_environment()
    with tempfile.TemporaryDirectory(prefix="bench-rebalance-") as folder:
        cluster = LocalCluster.create(
            Path(folder),
            "rebalance",
            Release.parse(arguments.release),
            cache=ReleaseCache.from_settings(settings),
            layout="combined",
            size=1,
            extra_config={"group.initial.rebalance.delay.ms": "0"},
        )
        try:
            rounds = [
                _round(cluster.spec.bootstrap_servers, number, arguments.revoke_s, arguments.down_s)
                for number in range(arguments.rounds)
            ]
        finally:
            cluster.delete()
    result = {
        "command": " ".join(["python -m bench.rebalance", *sys.argv[1:]]),
        "date": date.today().isoformat(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "members": MEMBERS,
        "partitions": PARTITIONS,
        "revoke_s_a_partition": arguments.revoke_s,
        "down_s": arguments.down_s,
        "rounds": rounds,
        "unowned_ratio": statistics.median(
            each["bounce_dynamic"]["unowned_partition_s"] / each["bounce_eager"]["unowned_partition_s"]
            for each in rounds
        ),
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def _round(servers: str, number: int, cost_s: float, down_s: float) -> dict[str, dict[str, float]]:
    done: dict[str, dict[str, float]] = {}
    eager = BenchGroup(servers, f"eager-{number}", cost_s, down_s)
    done["bounce_eager"] = eager.bounce(OLD)
    eager.stop()
    dynamic = BenchGroup(servers, f"dynamic-{number}", cost_s, down_s)
    done["migration_dynamic"] = _until_cooperative(dynamic, [DYNAMIC])
    done["bounce_dynamic"] = dynamic.bounce(DYNAMIC)
    dynamic.stop()
    released = BenchGroup(servers, f"released-{number}", cost_s, down_s)
    done["migration_two_bounces"] = _until_cooperative(released, [FIRST_BOUNCE, SECOND_BOUNCE])
    released.stop()
    return {name: {what: round(value, 2) for what, value in figures.items()} for name, figures in done.items()}


def _until_cooperative(group: BenchGroup, bounces: list[tuple[Make, Any]]) -> dict[str, float]:
    """Return the sum of the figures of all bounces. Raises FatalError unless the group is cooperative after the last
    bounce, and not before it.
    """
    total: dict[str, float] = defaultdict(float)
    for index, kind in enumerate(bounces):
        for what, value in group.bounce(kind).items():
            total[what] += value
        if group.is_cooperative is not (index == len(bounces) - 1):
            raise FatalError(f"Group {group.name} does not have the expected protocol after bounce {index + 1}.")
    return total


if __name__ == "__main__":
    sys.exit(main())
