from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_rollout.model.contents import ClusterInventory, Difference
from kafka_rollout.ports.cluster import ClusterAdmin
from kafka_rollout.rehearsal.result import (
    Contents,
    RehearsalOutcome,
    RehearsalResult,
    _serving,
    compare_contents,
    compare_copy,
    difference_findings,
    failed,
    incomplete,
    passed,
    worst,
)
from kafka_rollout.rehearsal.selection import MIB, estimate, find_shortage


def contents(*, offset: int = 900, end: int = 50, groups: bool = True, ids: tuple[str, ...] = ("tx-1",)) -> Contents:
    values: dict[str, Any] = {
        "topics": {"orders": {"id": "a", "replicas": [[1, 2]]}},
        "ends": {"orders-0": 1000, "__consumer_offsets-0": end},
        "groups": {"billing": {"type": "classic", "offsets": {"orders-0": offset}}} if groups else {},
        "configs": {},
        "acls": (),
        "scram": {},
        "quotas": {},
        "unasked": {},
    }
    return Contents(inventory=ClusterInventory(**values), transactional_ids=ids)


def empty_orders(of: Contents) -> Contents:
    return replace(of, inventory=replace(of.inventory, ends={**of.inventory.ends, "orders-0": 0}))


def test_a_copy_with_empty_partitions_and_all_coordinator_records_is_complete() -> None:
    assert compare_copy(contents(), empty_orders(contents()), contents(offset=950)) == ()


def test_a_copy_lacks_what_was_there_before_and_after_the_copying() -> None:
    found = compare_copy(contents(), empty_orders(contents(offset=10, end=3, ids=())), contents())
    assert {(difference.kind, difference.subject) for difference in found} == {
        ("offset", "__consumer_offsets-0"),
        ("group", "billing"),
        ("transactional id", "tx-1"),
    }


def test_a_copy_does_not_lack_what_the_cluster_removed_during_the_copying() -> None:
    later = contents(groups=False, ids=())
    assert compare_copy(contents(), empty_orders(later), later) == ()


def test_a_change_that_loses_a_transactional_id_differs() -> None:
    (difference,) = compare_contents(contents(), contents(ids=()))
    assert difference.sentence == "The transactional id tx-1 is missing."


def test_expected_differences_are_no_finding() -> None:
    expected = Difference("group", "g", "The share group g is missing.", foretold=True)
    assert difference_findings([expected], when="on 4.3.1") == ()
    (finding,) = difference_findings([expected, replace(expected, foretold=False)], when="on 4.3.1")
    assert (finding.code, finding.subject) == ("REHEARSAL-DIFFERS", "contents on 4.3.1")
    assert (
        "1 contents of the cluster are missing or changed on 4.3.1: The share group g is missing." in finding.sentence
    )


def test_up_to_twenty_differences_are_listed_as_sentences() -> None:
    found = [Difference("topic", f"t{number}", f"Topic t{number} is missing.") for number in range(21)]
    (finding,) = difference_findings(found, when="on 4.3.1")
    assert "Topic t0 is missing. Topic t1 is missing. " in finding.sentence
    assert finding.sentence.endswith("Topic t19 is missing. And 1 more.")


def test_the_outcome_is_that_of_the_worst_finding() -> None:
    assert worst([]) is RehearsalOutcome.PASSED
    assert worst([incomplete("The gate groups failed.")]) is RehearsalOutcome.INCOMPLETE
    assert worst([incomplete("…"), failed("It exited.", "Fix it.")]) is RehearsalOutcome.FAILED


def test_the_finding_of_a_passed_rehearsal_has_times_and_gaps() -> None:
    result = RehearsalResult(
        outcome=RehearsalOutcome.PASSED,
        cluster="orders",
        source="3.9.1",
        target="4.3.1",
        nodes=(1, 2, 3),
        seconds=61.4,
        phases=(),
        findings=(),
        node_seconds={"3.9.1-to-4.3.1 node 1": 8.2, "3.9.1-to-4.3.1 node 2": 11.9},
        not_covered=("The copy has no TLS and no authentication: ssl.keystore.location.",),
    )
    assert passed(result).sentence == (
        "The rehearsal 3.9.1 → 4.3.1 passed after 61 s. A node step took 8 to 12 s. Not covered: The copy has no TLS "
        "and no authentication: ssl.keystore.location."
    )


def test_the_estimate_grows_with_partitions_and_is_compared_with_the_machine() -> None:
    small, large = estimate({1: 14, 2: 14}, 1000), estimate({1: 10_000, 2: 14}, 1000)
    assert small.heaps[1] < large.heaps[1] <= 1024 * MIB
    assert large.heaps[2] == small.heaps[2]
    assert find_shortage(small, free_memory=small.memory, free_disk=small.disk) == ""
    assert "of memory, and 0 B are free" in find_shortage(small, free_memory=0, free_disk=small.disk)
    assert "of disk, and 0 B are free" in find_shortage(small, free_memory=small.memory, free_disk=0)
    assert small.sentence.startswith("2 nodes, 28 replicas: about ")


@pytest.mark.parametrize("other", ["__consumer_offsets-4", "__consumer_offsets-5"])
def test_the_partitions_that_a_sentence_leaves_out_are_part_of_it(other: str) -> None:
    """An approval accepts the sentence."""

    def why(*names: str) -> str:
        partitions = [SimpleNamespace(name=name, topic="__consumer_offsets", leader=-1) for name in names]
        admin = cast(ClusterAdmin, SimpleNamespace(partitions=lambda: partitions))
        return _serving(admin, (), ()).unserved["__consumer_offsets"]

    first = [f"__consumer_offsets-{number}" for number in range(4)]
    assert "and 1 more (fingerprint " in why(*first, other)
    assert why(*first, other) == why(*first, other) != why(*first, "__consumer_offsets-6")
    assert "fingerprint" not in why(*first)
