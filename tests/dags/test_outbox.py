"""What Airflow's listeners put into the outbox is delivered in order, later if the database does not respond."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from threading import Event, current_thread

import pytest

from kafka_rollout.airflow.common import outbox
from kafka_rollout.airflow.common.outbox import HistoryUpdate, Outbox
from kafka_rollout.base.errors import FatalError, TransientError


def failing(errors: list[Exception], then: Callable[[], object]) -> Callable[[], object]:
    def deliver() -> None:
        if errors:
            raise errors.pop(0)
        then()

    return deliver


def test_deliveries_keep_their_order_while_the_database_does_not_respond() -> None:
    box, done, threads = Outbox(retry_s=(0.0,)), list[str](), set[str]()

    def note(name: str) -> Callable[[], None]:
        def deliver() -> None:
            done.append(name)
            threads.add(current_thread().name)

        return deliver

    silent: list[Exception] = [TransientError("The database does not respond.", remedy="Wait.") for _ in range(3)]
    box.put(HistoryUpdate(what="The end of run a", apply=failing(silent, note("a"))))
    box.put(HistoryUpdate(what="The end of run b", apply=note("b")))
    assert box.wait_until_empty(60)
    assert (done, threads, silent) == (["a", "b"], {"kafka-rollout-outbox"}, [])


def test_an_error_that_does_not_pass_holds_back_no_other_delivery(caplog: pytest.LogCaptureFixture) -> None:
    box, done = Outbox(retry_s=(0.0,)), list[str]()
    with caplog.at_level(logging.ERROR):
        for error in (FatalError("The history is damaged.", remedy="Restore it."), ValueError("odd")):
            box.put(HistoryUpdate(what="The end of run a", apply=failing([error], lambda: done.append("a"))))
        box.put(HistoryUpdate(what="The end of run b", apply=lambda: done.append("b")))
        assert box.wait_until_empty(60)
    assert done == ["b"]
    assert "The end of run a cannot be recorded: The history is damaged." in caplog.text


def test_a_delivery_that_has_no_use_any_more_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    box, done = Outbox(clock=lambda: now[0], retry_s=(0.0,)), list[str]()

    def silent() -> None:
        now[0] += 3.0
        raise TransientError("The database does not respond.", remedy="Wait.")

    with caplog.at_level(logging.ERROR):
        box.put(HistoryUpdate(what="The start of run a", apply=silent, kept_s=5.0))
        box.put(HistoryUpdate(what="The end of run b", apply=lambda: done.append("b")))
        assert box.wait_until_empty(60)
    assert (now[0], done) == (6.0, ["b"])
    assert "The start of run a is not recorded: the database did not respond for too long." in caplog.text


@pytest.fixture
def held() -> Iterator[tuple[Outbox, Event]]:
    """An outbox whose first delivery waits."""
    box, ends = Outbox(), Event()
    box.put(HistoryUpdate(what="The end of run a", apply=ends.wait))
    yield box, ends
    ends.set()
    assert box.wait_until_empty(60)


def test_an_outbox_that_is_full_says_what_it_does_not_record(
    held: tuple[Outbox, Event], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    box, ends = held
    monkeypatch.setattr(outbox, "MOST", 2)
    done = list[str]()
    for name in ("b", "c"):
        box.put(HistoryUpdate(what=f"The end of run {name}", apply=lambda name=name: done.append(name)))
    assert "The end of run c is not recorded: 2 updates wait for the database." in caplog.text
    ends.set()
    assert box.wait_until_empty(60)
    assert done == ["b"]


def test_a_forked_process_delivers_only_its_own(held: tuple[Outbox, Event]) -> None:
    box, _ = held
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        is_empty = box.wait_until_empty(0)
        box.put(HistoryUpdate(what="The end of run b", apply=lambda: os.write(writes, b"b")))
        os._exit(0 if is_empty and box.wait_until_empty(60) else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writes)
    with os.fdopen(reads, "rb") as written:
        assert written.read() == b"b"
    assert not box.wait_until_empty(0)
