"""The records so far are compared while the traffic goes on: what was acknowledged before must be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.run.traffic import TrafficVerdict
from kafka_rollout.traffic.processes import main
from kafka_rollout.traffic.processes import traffic as processes
from kafka_rollout.traffic.processes.main import Traffic
from kafka_rollout.traffic.processes.traffic import PLAIN_TOPIC, TRANSACTIONAL_TOPIC, Client, consumer
from tests.unit.traffic.processes.test_log import Message

Check = Callable[..., TrafficVerdict]
ENDS = {(PLAIN_TOPIC, 0): 3, (TRANSACTIONAL_TOPIC, 0): 2}
ALL = ("p-1", "p-2", "p-3", "t-1-0")


def place(record_id: str) -> str:
    topic = TRANSACTIONAL_TOPIC if record_id.startswith("t") else PLAIN_TOPIC
    return f"{topic}\t0\t{record_id.split('-')[1]}\t{record_id}"


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    (tmp_path / "acknowledged-plain-1.tsv").write_text("".join(f"{place(one)}\t-\n" for one in ALL[:3]))
    (tmp_path / "acknowledged-transactional-1.tsv").write_text(f"{place('t-1-0')}\tt-1\n{place('t-9-0')}\tt-9\n")
    (tmp_path / "transactions-1.tsv").write_text("t-1\tcommitted\n")
    process: Any = SimpleNamespace(
        settings={"group": "g", "lowered": {}, "before": None, "period": 1}, folder=str(tmp_path)
    )
    traffic = Traffic(process, "b:1", ClientSecurity())
    traffic._consumers = [Client("consumer-classic", lambda client: None, reached=dict(ENDS))]
    return traffic


@pytest.fixture
def check(traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check with these ids in the log, while the producers go on: one record is acknowledged, one is half written."""
    monkeypatch.setattr(traffic, "_end_offsets", lambda: ENDS)

    def run(stored: tuple[str, ...] = ALL, consumed: tuple[str, ...] = ALL) -> TrafficVerdict:
        def read_log(settings: Mapping[str, Any], folder: Path, say: Callable[[int], None]) -> dict[Any, int]:
            (folder / "log.tsv").write_text("".join(f"{place(one)}\n" for one in stored))
            with (tmp_path / "acknowledged-plain-1.tsv").open("a") as journal:
                journal.write(f"{place('p-4')}\t-\n{PLAIN_TOPIC}\t0")
            lines = "".join(f"{place(one)}\n" for one in consumed)
            (tmp_path / "consumed-classic.tsv").write_text(f"{lines}{PLAIN_TOPIC}")
            return {}

        monkeypatch.setattr(main, "read_log", read_log)
        return traffic.check(within_s=0.0)

    return run


def test_what_was_acknowledged_before_the_check_is_there(check: Check, tmp_path: Path) -> None:
    verdict = check()
    assert verdict.is_clean, verdict.discrepancies
    assert (verdict.acknowledged, verdict.stored, verdict.consumed) == (4, 4, {"classic": 4})
    assert not list((tmp_path / "so_far").iterdir())


@pytest.mark.parametrize("readers", [{"stored": ALL[1:]}, {"consumed": ALL[1:]}])
def test_a_record_that_is_gone_is_named(check: Check, tmp_path: Path, readers: dict[str, Any]) -> None:
    verdict = check(**readers)
    (lost,) = verdict.failures
    assert (lost.kind, lost.count, verdict.is_clean) == ("lost", 1, False)
    assert f"{PLAIN_TOPIC}-0@1" in lost.sentence
    assert (tmp_path / "so_far" / "log.tsv").exists(), "the evidence stays"


def test_a_record_that_a_broker_refused_is_named(check: Check, tmp_path: Path) -> None:
    lines = [f"{PLAIN_TOPIC}\t{number}\t{9.0 - number}\tINVALID_RECORD\n" for number in range(3)]
    (tmp_path / "refused-plain-1.tsv").write_text("".join(lines))
    (refused,) = check().failures
    assert refused.sentence == (
        f"Brokers refused 3 records of the test traffic for good, the first of {PLAIN_TOPIC}-2: INVALID_RECORD."
    )
    assert (refused.count, len(refused.examples)) == (3, 3)


def test_the_samples_are_reported_before_a_check_answers(
    traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the last regular report can be ten seconds old."""
    stop, reported, known = Event(), list[int](), list[int]()

    def check(self: Traffic) -> dict[str, Any]:
        known.append(reported[-1])
        stop.set()
        return {"result": {}}

    for name in ("create_topics", "_transactional_producer", "_consumer", "_start_possible_clients"):
        monkeypatch.setattr(Traffic, name, lambda *_: Client("idle", lambda client: None))
    monkeypatch.setattr(main, "plain_producer", lambda *_: Client("idle", lambda client: None))
    monkeypatch.setattr(main, "Replication", lambda *_: SimpleNamespace(start=lambda: None, under_replicated=None))
    monkeypatch.setattr(Client, "start", lambda self: None)
    monkeypatch.setattr(Traffic, "_checked", check)
    monkeypatch.setattr(Traffic, "_count_partitions", lambda self, counts: 6)
    monkeypatch.setattr(stop, "wait", lambda seconds: stop.is_set())
    requests = iter(["", "", ""])
    traffic.run(stop, lambda seen: reported.append(len(seen.series)), lambda: next(requests, "request"))
    assert known == [4], "of the fourth second, not of the first"


def test_a_group_that_is_behind_is_no_result(check: Check, traffic: Traffic) -> None:
    traffic._consumers[0].reached[PLAIN_TOPIC, 0] = 2
    with pytest.raises(TransientError, match=f"consumer-classic did not reach the end of {PLAIN_TOPIC}-0"):
        check()


def test_a_group_has_reached_what_its_journal_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check copies the journal once the group has reached the end: what is not written yet would be lost."""
    client, seen = consumer(tmp_path, {}, "g", "classic"), list[tuple[int, int]]()

    class Member:
        def __init__(self, settings: Mapping[str, Any]) -> None: ...

        def subscribe(self, topics: list[str]) -> None: ...

        def assignment(self) -> list[int]:
            return [1]

        def consume(self, most: int, within_s: float) -> Iterator[Message]:
            client.stop.set()
            for offset in (0, 1, 2):
                yield Message(0, offset)
                lines = (tmp_path / "consumed-classic.tsv").read_text().count("\n")
                seen.append((client.reached.get((PLAIN_TOPIC, 0), 0), lines))

        def close(self) -> None: ...

    monkeypatch.setattr(processes, "Consumer", Member)
    client.start()
    client.join(10)
    assert seen == [(0, 0)] * 3
    assert client.reached == {(PLAIN_TOPIC, 0): 3}
    assert (tmp_path / "consumed-classic.tsv").read_text().count("\n") == 3
