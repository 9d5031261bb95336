from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.gates.gate import GateCheck, GateCondition, GatePolicy, GateWatch, WatchState
from kafka_rollout.gates.reasons import PROCESS


def _checked(is_met: bool) -> GateCheck:
    condition = GateCondition(name="in every ISR", is_met=is_met, evidence="all" if is_met else "not in orders-0")
    return GateCheck(gate="after node 1", at=0.0, conditions=(condition,))


def _states(policy: GatePolicy, checks: list[bool], step: float = 1.0) -> list[WatchState]:
    watch = GateWatch(policy=policy)
    return [watch.add(_checked(is_met), i * step).state for i, is_met in enumerate(checks)]


W, P, F = WatchState.WAITING, WatchState.PASSED, WatchState.FAILED


def test_a_gate_passes_after_n_passing_checks_in_a_row() -> None:
    assert _states(GatePolicy(checks=3), [True, True, False, True, True, True]) == [W, W, W, W, W, P]


def test_a_soak_starts_again_after_a_failed_check() -> None:
    policy = GatePolicy(checks=2, soak_s=3)
    assert _states(policy, [True, True, True, True, True]) == [W, W, W, W, P]
    assert _states(policy, [True, True, True, False, True, True, True, True, True]) == [W] * 8 + [P]


def test_a_timeout_fails_and_says_what_it_waited_for() -> None:
    watch = GateWatch(policy=GatePolicy(timeout_s=5))
    assert watch.add(_checked(False), 100.0).state is W
    status = watch.add(_checked(False), 105.0)
    assert status.state is F
    assert "in every ISR: not in orders-0" in status.message


def test_a_gate_whose_check_passes_at_the_deadline_may_finish_its_soak() -> None:
    policy = GatePolicy(checks=1, timeout_s=4, soak_s=3)
    assert _states(policy, [False, False, False, False, False, True, True, True, True]) == [W] * 8 + [P]


def test_a_process_that_is_gone_is_not_waited_for_to_the_gates_end_but_may_come_back_within_a_minute() -> None:
    def checked(up: bool) -> GateCheck:
        process = GateCondition(name=PROCESS, is_met=up, evidence="pid 7" if up else "no process; its log says: broken")
        return GateCheck(gate="after node 1", at=0.0, conditions=(process, *_checked(False).conditions))

    watch = GateWatch(policy=GatePolicy(timeout_s=1800))
    for at, up in ((0, False), (59, False), (60, True), (61, False)):
        assert watch.add(checked(up), at).state is W
    watch = from_json(GateWatch, json.loads(json.dumps(to_json(watch))))
    assert watch.add(checked(False), 120).state is W
    status = watch.add(checked(False), 121)
    assert status.state is F
    assert "its log says: broken" in status.message


def test_a_time_that_no_check_saw_passes_no_soak_and_fails_no_gate() -> None:
    hour, soak = 3600.0, GateWatch(policy=GatePolicy(checks=3, interval_s=10, soak_s=1800))
    times = [0.0, 10, 20, 30, 30 + hour, 30 + 2 * hour]  # the machine was suspended twice
    assert [soak.add(_checked(True), at).state for at in times] == [W] * 6
    assert soak.status is not None
    assert soak.status.message == "soaks: 270 of 1800 s"
    waits = GateWatch(policy=GatePolicy(timeout_s=600))
    assert [waits.add(_checked(False), at).state for at in (0.0, 10, 10 + hour)] == [W] * 3
    assert [waits.add(_checked(False), hour + at).state for at in (100.0, 200, 300, 400)] == [W, W, W, W]
    assert waits.add(_checked(False), hour + 490).state is F


def test_a_clock_that_is_set_back_takes_no_time_from_the_soak() -> None:
    watch = GateWatch(policy=GatePolicy(checks=1, soak_s=100))
    told = [watch.add(_checked(True), at).message for at in (7000.0, 7060, 3460, 3490)]
    assert told[-2:] == ["soaks: 60 of 100 s", "soaks: 90 of 100 s"]
    assert watch.add(_checked(True), 3500).state is P


def test_messages_tell_the_look_and_what_is_waited_for() -> None:
    watch = GateWatch(policy=GatePolicy(checks=3))
    assert "check 1 of 3" in watch.add(_checked(True), 0).message
    assert "waits for in every ISR: not in orders-0" in watch.add(_checked(False), 1).message


@pytest.mark.parametrize("bad", [{"checks": 0}, {"timeout_s": -1}, {"soak_s": -1}, {"interval_s": -1}])
def test_a_policy_that_cannot_work_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UserError):
        GatePolicy(**bad)  # type: ignore[arg-type]


_policies = st.builds(
    GatePolicy,
    checks=st.integers(1, 4),
    timeout_s=st.integers(0, 20).map(float),
    soak_s=st.integers(0, 5).map(float),
)


@given(policy=_policies, checks=st.lists(st.booleans(), min_size=1, max_size=60))
def test_passed_means_consecutive_checks_that_lasted_through_the_soak(policy: GatePolicy, checks: list[bool]) -> None:
    for index, reached in enumerate(_states(policy, checks)):
        row = 0
        while row <= index and checks[index - row]:
            row += 1
        if reached is P:
            assert row >= policy.checks + policy.soak_s
            return
        assert row < policy.checks + policy.soak_s
        if reached is F:
            assert index >= policy.timeout_s + policy.soak_s
            return


@given(policy=_policies, checks=st.lists(st.booleans(), max_size=30), cut=st.integers(0, 30))
def test_a_watch_goes_on_from_its_dictionary_as_if_nothing_had_happened(
    policy: GatePolicy, checks: list[bool], cut: int
) -> None:
    whole, first = GateWatch(policy=policy), GateWatch(policy=policy)
    for i, is_met in enumerate(checks):
        if i == cut:
            first = from_json(GateWatch, json.loads(json.dumps(to_json(first))))
        assert first.add(_checked(is_met), float(i)) == whole.add(_checked(is_met), float(i))


@given(policy=_policies, checks=st.lists(st.booleans(), min_size=200, max_size=200))
def test_every_watch_ends(policy: GatePolicy, checks: list[bool]) -> None:
    assert any(s is not W for s in _states(policy, checks))
