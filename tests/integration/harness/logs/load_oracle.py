"""Real brokers as judges: one is started on given coordinator logs, and its own log says what became of each."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.coordinator_traffic import SHARE_GROUP_STATE
from tools.demo.local_cluster import LocalCluster

Place = tuple[str, int]
_DEADLINE_S = 300.0
_QUIET_S = 3.0
_MOST_BYTES = 8 << 20
_SEGMENT = "00000000000000000000.log"
_EMPTY_TOPIC = {"cleanup.policy": "compact", "segment.bytes": "104857600"}

_EXITS = "Encountered fatal fault: Error starting LogManager"
_PLACE = r"(?P<topic>__\w+)-(?P<partition>\d+)\b"
# The group coordinator of 3.x, the transaction coordinator (which ends after an error, too), the coordinators of 4.x.
_ENDED = re.compile(
    rf"Finished load\w+ (?:offsets and group metadata|\d+ transaction metadata|of metadata) from {_PLACE}"
)
_FAILED = re.compile(
    r"(?:Error loading offsets from|Error loading transactions from transaction log|Failed to load metadata from) "
    rf"{_PLACE}"
)
_IGNORED = re.compile(
    r"Unknown (?:record type|message (?:key|value) with version) -?\d+ "
    rf"while loading (?:offsets and group metadata|transaction state) from {_PLACE}"
)
_OFFSET = re.compile(r"(?:\(offset=| at offset )(\d+)")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the broker's log says of one partition. `words`: its complaint, with the causes; `offset` if it names one.

    Neither ended nor failed: it was not loaded, or the load never ends.
    """

    ended: bool = False
    ignored: int = 0
    words: str = ""
    offset: int | None = None

    @property
    def failed(self) -> bool:
        return bool(self.words)


def load(
    release: Release,
    logs: Mapping[Place, tuple[bytes, bool]],
    folder: Path,
    cache: ReleaseCache,
    *,
    extra_config: Mapping[str, str] | None = None,
) -> dict[Place, Outcome]:
    """Start a broker of the release on these logs (bytes; whether to check them as after an unclean stop)."""
    with started_on(release, logs, folder, cache, extra_config=extra_config) as (_, outcomes):
        return outcomes


@contextmanager
def started_on(
    release: Release,
    logs: Mapping[Place, tuple[bytes, bool]],
    folder: Path,
    cache: ReleaseCache,
    *,
    extra_config: Mapping[str, str] | None = None,
) -> Iterator[tuple[LocalCluster, dict[Place, Outcome]]]:
    """As `load`; the broker runs until the block ends."""
    cluster = LocalCluster.create(
        folder,
        "oracle",
        release,
        cache=cache,
        layout="combined",
        size=1,
        extra_config={**coordinator_config(release, logs), **(extra_config or {})},
    )
    try:
        (node,) = cluster.spec.nodes
        plant(cluster, logs)
        server_log = Path(str(node.directory)) / "logs" / "server.log"
        before = server_log.stat().st_size
        cluster.runtime.start(node)
        yield cluster, watch(server_log, before, logs)
    finally:
        cluster.stop(deadline_s=0.0)
        shutil.rmtree(folder / "nodes", ignore_errors=True)


def plant(
    cluster: LocalCluster,
    logs: Mapping[Place, tuple[bytes, bool]],
    *,
    deadline_s: float = 180,
    one_replica: bool = False,
) -> None:
    """Create the topics, stop the cluster, and write the logs into the directory of every node.

    `one_replica`: only the first broker has the logs. With more replicas, each log gets its leader epoch. Without it,
    the followers truncate their logs again and again.
    """
    brokers = cluster.spec.brokers[:1] if one_replica else cluster.spec.brokers
    _create_topics(cluster.spec, _counts(logs), [node.node_id for node in brokers])
    folders = [Path(str(node.directory)) / "data" / "logs" for node in brokers]
    for data in folders:
        _wait_for_folders(data, _counts(logs))
    cluster.stop(deadline_s=deadline_s)
    for data in folders:
        for (topic, partition), (content, recovered) in logs.items():
            _place(data / f"{topic}-{partition}", content, recovered)
            if len(folders) > 1:
                (data / f"{topic}-{partition}" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _counts(logs: Iterable[Place]) -> dict[str, int]:
    """Return topic → number of partitions."""
    counts: dict[str, int] = {}
    for topic, partition in logs:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts


def coordinator_config(release: Release, logs: Iterable[Place]) -> dict[str, str]:
    names = {
        "__consumer_offsets": "offsets.topic.num.partitions",
        "__transaction_state": "transaction.state.log.num.partitions",
        SHARE_GROUP_STATE: "share.coordinator.state.topic.num.partitions",
    }
    counts = _counts(logs).items()
    return {names[topic]: str(count) for topic, count in counts if topic != SHARE_GROUP_STATE or release.major > 3}


def _create_topics(spec: ClusterSpec, counts: Mapping[str, int], replicas: Sequence[int]) -> None:
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    topics = [
        NewTopic(
            topic,
            count,
            config=_EMPTY_TOPIC,
            replica_assignment=[
                [*replicas[partition % len(replicas) :], *replicas[: partition % len(replicas)]]
                for partition in range(count)
            ],
        )
        for topic, count in counts.items()
    ]
    for made in admin.create_topics(topics).values():
        made.result(_DEADLINE_S)


def _wait_for_folders(data: Path, counts: Mapping[str, int]) -> None:
    wanted = [data / f"{topic}-{p}" / _SEGMENT for topic, count in counts.items() for p in range(count)]
    deadline = time.monotonic() + _DEADLINE_S
    while missing := [path for path in wanted if not path.exists()]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the broker made no {missing[0]}")
        time.sleep(0.1)


def _place(folder: Path, content: bytes, recovered: bool) -> None:
    (folder / _SEGMENT).write_bytes(content)
    if recovered:
        for index in folder.glob("*index"):
            index.unlink()


def watch(server_log: Path, start: int, places: Mapping[Place, object]) -> dict[Place, Outcome]:
    """Until every log has ended one way or the other, and then a little longer, because a log may be loaded late.

    A broker that goes on and on (see Outcome) is cut short; one that exits at its start ends the watch.
    """
    deadline, size, quiet_since = time.monotonic() + _DEADLINE_S, -1, time.monotonic()
    while True:
        if server_log.stat().st_size != size:
            size, quiet_since = server_log.stat().st_size, time.monotonic()
        with server_log.open(errors="replace") as file:
            file.seek(start)
            text = file.read(_MOST_BYTES)
        outcomes = read_outcomes(text.splitlines(), places)
        # A release that loads one log of share groups' state loads them all; others load none.
        shares = any(o.ended or o.failed for place, o in outcomes.items() if place[0] == SHARE_GROUP_STATE)
        expected = [o for place, o in outcomes.items() if shares or place[0] != SHARE_GROUP_STATE]
        waiting = [o for o in expected if not (o.ended or o.failed)]
        is_over = not waiting and time.monotonic() - quiet_since > _QUIET_S
        if is_over or _EXITS in text or size - start > _MOST_BYTES or time.monotonic() > deadline:
            return outcomes
        time.sleep(0.3)


def read_outcomes(lines: Sequence[str], places: Mapping[Place, object]) -> dict[Place, Outcome]:
    outcomes = {place: Outcome() for place in places}
    complaining: Outcome | None = None
    for line in lines:
        if line.startswith("["):
            complaining = None
        elif complaining is not None and not line.startswith("\tat "):
            complaining.words += "\n" + line
        if found := _ENDED.search(line):
            outcomes[_place_of(found)].ended = True
        elif found := _IGNORED.search(line):
            outcomes[_place_of(found)].ignored += 1
        elif found := _FAILED.search(line):
            complaining = outcomes[_place_of(found)]
            complaining.words = line
            if offset := _OFFSET.search(line):
                complaining.offset = int(offset[1])
    return outcomes


def _place_of(found: re.Match[str]) -> Place:
    return found["topic"], int(found["partition"])
