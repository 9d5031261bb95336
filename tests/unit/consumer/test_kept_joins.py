"""A join is done when its result was read, and not before."""

from __future__ import annotations

import pytest
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.future import Future

from dynamic_protocol_consumer.coordinator import KeptJoins, UnreadJoin


def coordinator() -> KeptJoins:
    """Without a cluster: only what a join touches."""
    made = KeptJoins.__new__(KeptJoins)
    made._join_task = None
    return made


def test_a_join_whose_answer_came_between_two_polls_is_not_repeated() -> None:
    kept, task = coordinator(), Future()
    kept._join_task = task
    task.success(b"assignment")
    assert kept._join_task is not None
    assert not kept._join_task.is_done, "the base class repeats a join that is done"
    heard: list[bytes] = []
    kept._join_task.add_callback(heard.append)
    assert heard == [b"assignment"]


@pytest.mark.parametrize("over", [True, False])
def test_the_answer_to_a_join_of_a_group_that_was_left_is_of_no_use(
    over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsumerCoordinator, "reset_generation", lambda *_: None)
    kept, task = coordinator(), Future()
    kept._join_task = task
    if over:
        task.failure(RuntimeError())
    kept.reset_generation()
    assert (kept._join_task is None) is over, "one that is under way ends by itself"


def test_an_unread_join_can_be_awaited() -> None:
    waiting = UnreadJoin(Future().success(7)).__await__()
    with pytest.raises(StopIteration) as end:
        next(waiting)
    assert end.value.value == 7
