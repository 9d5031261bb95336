"""At the end of a traffic period the whole log is read again, from its start, by a reader without a group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from kafka_rollout.base.errors import TransientError
from kafka_rollout.traffic.processes import traffic
from kafka_rollout.traffic.processes.traffic import LOG_FILE, PLAIN_TOPIC, read_lines, read_log

Log = tuple[int, list[int], int]  # start, offsets of readable records, end


class Message:
    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._partition, self._offset, self._error = partition, offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return PLAIN_TOPIC

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return f"p-{self._partition}-{self._offset}".encode()


class Reader:
    """A consumer of librdkafka over logs of the plain topic; two messages of each partition at a time."""

    logs: dict[int, Log] = {}  # noqa: RUF012
    error: KafkaError | None = None
    stalls_at: int | None = None

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["isolation.level"] == "read_committed"
        assert settings["auto.offset.reset"] == "error"
        self.left: dict[int, list[Message]] = {}

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        of_topic = SimpleNamespace(error=None, partitions=dict.fromkeys(range(6)))
        return SimpleNamespace(topics={topic: of_topic})

    def get_watermark_offsets(self, place: TopicPartition, *, timeout: float, cached: bool) -> tuple[int, int]:
        start, _, end = self.logs.get(place.partition, (0, [], 0)) if place.topic == PLAIN_TOPIC else (0, [], 0)
        return start, end

    def assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            start, offsets, end = self.logs[place.partition]
            assert place.offset == start
            found = [Message(place.partition, offset) for offset in offsets]
            if self.error is not None:
                found.insert(1, Message(place.partition, offsets[1], self.error))
            if self.stalls_at is not None:
                self.left[place.partition] = found[: self.stalls_at]
            else:
                self.left[place.partition] = [
                    *found,
                    Message(place.partition, end, KafkaError(KafkaError._PARTITION_EOF)),
                ]

    def consume(self, number: int, timeout: float) -> list[Message]:
        found = [message for left in self.left.values() for message in left[:2]]
        self.left = {partition: left[2:] for partition, left in self.left.items()}
        return found

    def close(self) -> None: ...


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[str], list[int]]]:
    now = [0.0]

    def monotonic() -> float:
        now[0] += 1.0
        return now[0]

    def call(logs: dict[int, Log], **more: Any) -> tuple[Any, list[str], list[int]]:
        monkeypatch.setattr(traffic, "Consumer", type("Staged", (Reader,), {"logs": logs, **more}))
        said: list[int] = []
        starts = read_log({}, tmp_path, said.append, monotonic)
        return starts, [line[3] for line in read_lines(tmp_path / LOG_FILE, 4)], said

    return call


def test_every_log_is_read_from_its_start_to_its_end_also_behind_aborted_records(
    read: Callable[..., tuple[Any, list[str], list[int]]],
) -> None:
    starts, ids, said = read({0: (0, [0, 1, 2], 3), 2: (5, [5, 8], 12)})
    assert sorted(ids) == ["p-0-0", "p-0-1", "p-0-2", "p-2-5", "p-2-8"]
    assert (starts[PLAIN_TOPIC, 0], starts[PLAIN_TOPIC, 2], len(starts)) == (0, 5, 12)
    assert said == [4, 5]


def test_a_repeated_reading_begins_again(read: Callable[..., tuple[Any, list[str], list[int]]]) -> None:
    read({0: (0, [0, 1, 2], 3)})
    assert read({0: (0, [0, 1], 2)})[1] == ["p-0-0", "p-0-1"]


def test_a_reading_that_stalls_is_no_result(read: Callable[..., tuple[Any, list[str], list[int]]]) -> None:
    with pytest.raises(TransientError, match=f"could not be read to the end of {PLAIN_TOPIC}-0"):
        read({0: (0, [0, 1, 2], 3)}, stalls_at=2)


def test_a_log_that_is_cut_while_it_is_read_is_no_result(
    read: Callable[..., tuple[Any, list[str], list[int]]],
) -> None:
    with pytest.raises(TransientError, match=f"{PLAIN_TOPIC}-0 cannot be read at offset 1"):
        read({0: (0, [0, 1, 2], 3)}, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
