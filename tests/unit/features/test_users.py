"""What a lower level means for groups, producers and partitions that use the feature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Need, Severity
from kafka_rollout.features.rules import user_findings
from kafka_rollout.model.state import ClusterState, GroupState, TransactionState
from tests.unit.builders import partition
from tests.unit.features.test_requests import on_431


def group(name: str, kind: str, state: str = "Stable", members: int | None = 1) -> GroupState:
    return GroupState(group_id=name, type=kind, state=state, members=members)


def transaction(name: str, state: str) -> TransactionState:
    return TransactionState(transactional_id=name, state=state, producer_id=1)


def found(seen: ClusterState, unsafe: bool = False, **targets: int) -> dict[str, Finding]:
    levels = {name.replace("_", "."): level for name, level in targets.items()}
    return {finding.code: finding for finding in user_findings(seen, levels, unsafe=unsafe)}


def using(**parts: Any) -> ClusterState:
    finalized = {"group_version": 1, "share_version": 1, "streams_version": 1, "transaction_version": 2}
    return replace(on_431(**finalized), **parts)


@pytest.mark.parametrize(
    ("feature", "kind"), [("group_version", "consumer"), ("share_version", "share"), ("streams_version", "streams")]
)
def test_active_groups_of_the_type_that_is_no_longer_served_are_listed_and_block(feature: str, kind: str) -> None:
    groups = tuple(group(f"{k}-group", k) for k in ("classic", "consumer", "share", "streams"))
    seen = found(using(groups=groups), **{feature: 0})
    (finding,) = seen.values()
    assert (finding.code, finding.severity) == ("GROUPS-LOSE-THEIR-PROTOCOL", Severity.BLOCKER)
    assert finding.sentence.endswith(f": {kind}-group (1 member).")
    assert finding.remedy


def test_who_accepts_losses_gets_the_same_list_as_a_warning() -> None:
    seen = found(using(groups=(group("billing", "consumer"),)), unsafe=True, group_version=0)
    assert seen["GROUPS-LOSE-THEIR-PROTOCOL"].severity is Severity.WARNING


def test_the_stream_clients_are_to_be_downgraded_first() -> None:
    seen = found(using(groups=(group("app", "streams", "NotReady", None),)), streams_version=0)
    assert "First downgrade the stream clients" in seen["GROUPS-LOSE-THEIR-PROTOCOL"].remedy


def test_an_empty_group_warns_for_its_records() -> None:
    seen = found(using(groups=(group("old", "consumer", "Empty", 0),)), group_version=0)
    assert [(f.code, f.severity) for f in seen.values()] == [("GROUPS-KEEP-THEIR-RECORDS", Severity.WARNING)]


def test_a_group_with_an_unknown_number_of_members_is_evaluated_by_its_state() -> None:
    groups = (group("a", "consumer", "Stable", None), group("b", "consumer", "Empty", None))
    seen = found(using(groups=groups), group_version=0)
    assert " a." in seen["GROUPS-LOSE-THEIR-PROTOCOL"].sentence
    assert " b." in seen["GROUPS-KEEP-THEIR-RECORDS"].sentence


def test_running_transactional_producers_block_and_idle_ones_warn_when_transaction_version_falls() -> None:
    states = {"pay": "Ongoing", "ship": "PrepareCommit", "fence": "PrepareEpochFence", "bill": "Empty"}
    transactions = tuple(transaction(*one) for one in states.items())
    seen = found(using(transactions=transactions), transaction_version=1)
    assert "fence, pay, ship" in seen["PRODUCERS-END-FATALLY"].sentence
    assert seen["PRODUCERS-END-FATALLY"].severity is Severity.BLOCKER
    assert "bill" in seen["PRODUCERS-MAY-RUN"].sentence
    assert found(using(transactions=transactions), transaction_version=2) == {}


def test_partitions_under_min_isr_would_forget_their_eligible_leaders() -> None:
    seen = replace(on_431(), partitions=(partition("a", 0, [4, 5, 6], isr=[4]), partition("b", 0, [4, 5, 6])))
    node = seen.nodes[1]
    assert node.features is not None
    levels = {**node.features.finalized, "eligible.leader.replicas.version": 1}
    nodes = {i: replace(n, features=replace(n.features, finalized=levels)) for i, n in seen.nodes.items() if n.features}
    finding = found(replace(seen, nodes=nodes), eligible_leader_replicas_version=0)["ELIGIBLE-LEADERS-LOST"]
    assert finding.sentence.endswith("can lead without data loss: a-0.")


def test_users_that_nobody_could_list_block() -> None:
    seen = using(unanswered=("Broker 5 cannot answer ListGroups now: COORDINATOR_LOAD_IN_PROGRESS.",))
    assert found(seen, unsafe=True, group_version=0)["FEATURE-USERS-UNKNOWN"].severity is Severity.BLOCKER


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(
    ("lowered", "need"),
    [
        ({"group_version": 0}, Need.GROUPS),
        ({"transaction_version": 1}, Need.GROUPS),
        ({"eligible_leader_replicas_version": 0}, Need.TOPICS),
    ],
)
def test_users_that_the_tool_may_not_list_are_unknown_and_not_absent(
    lowered: dict[str, int], need: Need, unsafe: bool
) -> None:
    """A cluster without a runtime is observed without some rights: what they show is missing in the answers."""
    finalized = {"group_version": 1, "transaction_version": 2, "eligible_leader_replicas_version": 1}
    refused = "User:tool has no right DESCRIBE."
    seen = replace(on_431(**finalized), partitions=(), not_observable=(refused,), needs={refused: need})
    one = found(seen, unsafe=unsafe, **lowered)["FEATURE-USERS-UNKNOWN"]
    assert one.severity is (Severity.WARNING if unsafe else Severity.BLOCKER)
    assert refused in one.sentence
    other = replace(seen, needs={refused: Need.SETTINGS})
    assert "FEATURE-USERS-UNKNOWN" not in found(other, **lowered)


def test_raising_a_level_asks_nobody() -> None:
    seen = replace(on_431(), groups=(group("billing", "consumer"),), unanswered=("no answer",))
    assert found(seen, group_version=1, transaction_version=2) == {}


def test_what_share_groups_have_in_a_dead_letter_queue_is_named_before_a_release_that_does_not_know_it() -> None:
    """4.4 stores records in the state ARCHIVING, which 4.3 reads and never leaves (RecordState)."""
    groups = (group("queue", "share"), group("old", "share", "Empty", 0), group("billing", "consumer"))
    seen = replace(on_431(share_version=2), groups=groups)
    (finding,) = found(seen, share_version=1).values()
    assert (finding.code, finding.severity) == ("SHARE-RECORDS-STAY-ARCHIVING", Severity.WARNING)
    assert "2 share groups: old, queue (1 member)." in finding.sentence
    assert "errors.deadletterqueue.topic.name" in finding.remedy
    assert found(replace(seen, groups=groups[2:]), share_version=1) == {}
    assert "SHARE-RECORDS-STAY-ARCHIVING" not in found(seen, share_version=0)
    unknown = replace(seen, groups=(), unanswered=("Broker 1 did not respond.",))
    assert found(unknown, share_version=1)["FEATURE-USERS-UNKNOWN"].severity is Severity.BLOCKER
