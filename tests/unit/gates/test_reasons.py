"""The reason of a gate that does not pass: the cause first, what needs it counted, one reason once for its objects."""

from __future__ import annotations

from kafka_rollout.gates.gate import GateCheck, GateCondition, join_of_nodes
from kafka_rollout.gates.reasons import (
    ALL_SERVED,
    ANSWERS,
    CAUGHT_UP,
    IN_ISRS,
    LEADS,
    NEXT_START,
    OTHERS_UP,
    PROCESS,
    QUORUM,
    RELEASE,
    SPARE_ISR,
    UNFENCED,
    find_causes,
    name_once,
    reason_of,
)

HEAP = "Initial heap size set to a larger value than the maximum heap size"
LOOP = "no process; systemd has restarted it 28 times since its start"


def unmet(name: str, evidence: str = "no", *, log: str = "", is_lasting: bool = False) -> GateCondition:
    return GateCondition(name=name, is_met=False, evidence=evidence, log=log, is_lasting=is_lasting)


def test_the_line_of_the_log_of_a_node_that_does_not_start_is_the_reason_and_the_rest_is_counted() -> None:
    conditions = [
        *(unmet(name) for name in (IN_ISRS, LEADS, RELEASE, ANSWERS, QUORUM, UNFENCED)),
        unmet(PROCESS, LOOP, log=HEAP),
        GateCondition(name=CAUGHT_UP, is_met=True, evidence="2 brokers"),
    ]
    assert reason_of(conditions) == f"process: its log shows: {HEAP} ({LOOP}); 6 more conditions need it"
    check = GateCheck(gate="after node 5", at=0.0, conditions=tuple(conditions))
    assert check.waits_for == reason_of(conditions)


def test_a_broker_whose_registration_is_refused_has_this_cause_and_not_its_silence() -> None:
    refused = unmet(UNFENCED, "broker 5 is fenced", log="Unable to register broker 5")
    found = reason_of([unmet(ANSWERS), unmet(QUORUM), refused, unmet(IN_ISRS)])
    assert (
        found == "unfenced: its log shows: Unable to register broker 5 (broker 5 is fenced); 3 more conditions need it"
    )


def test_what_lasts_until_somebody_acts_is_a_cause_of_its_own() -> None:
    found = reason_of([unmet(PROCESS, "no process"), unmet(NEXT_START, "on 3.9.1", is_lasting=True), unmet(ANSWERS)])
    assert found == "process: no process; next start: on 3.9.1; 1 more condition needs them"


def test_what_a_stop_needs_of_other_nodes_follows_from_the_node_that_is_down() -> None:
    found = reason_of(
        [unmet(OTHERS_UP, "node 7 is down"), unmet(SPARE_ISR), unmet(ALL_SERVED), unmet("no pause", "held")]
    )
    assert found == "all other nodes are up: node 7 is down; no pause: held; 2 more conditions need them"


def test_one_reason_of_several_conditions_is_named_once() -> None:
    assert reason_of([unmet(QUORUM, "unknown"), unmet(CAUGHT_UP, "unknown")]) == f"{QUORUM}, {CAUGHT_UP}: unknown"
    same = "after node 1 waits for process: no process"
    assert name_once([("after node 1", "waits"), ("after node 2", "waits")]) == "after node 1, after node 2 waits"
    assert name_once([("a", "failed after 61 s"), ("b", "failed after 62 s")]) == "a, b failed after 61 s"
    assert name_once([("after node 1", "waits for process: no process")]) == same


def test_a_condition_of_several_nodes_keeps_the_lines_of_their_logs() -> None:
    joined = join_of_nodes(
        {5: unmet(PROCESS, "no process", log=HEAP), 6: GateCondition(name=PROCESS, is_met=True, evidence="pid 1")}
    )
    assert joined.evidence == f"node 5: its log shows: {HEAP} (no process)"


def test_there_is_no_reason_without_an_unmet_condition_and_always_one_with_it() -> None:
    names = (PROCESS, ANSWERS, QUORUM, UNFENCED, IN_ISRS, LEADS, OTHERS_UP, ALL_SERVED, CAUGHT_UP)
    assert reason_of([GateCondition(name=PROCESS, is_met=True, evidence="pid 7", log="an old line")]) == ""
    for number in range(1, 2 ** len(names)):
        some = [unmet(name, log="x" if name == UNFENCED else "") for at, name in enumerate(names) if number >> at & 1]
        assert find_causes(some), some
