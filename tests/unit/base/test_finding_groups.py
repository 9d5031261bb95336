"""Findings of one kind are one entry, and no remedy is lost or cut."""

from __future__ import annotations

from kafka_rollout.base.findings import BLOCKER, WARNING, FindingCode, group_by_kind

ALONE = FindingCode("ALONE", (BLOCKER, WARNING), "A topic has one replica.", "Raise the replication factor.")
FENCED = FindingCode("FENCED", WARNING, "A broker is fenced.")
MISSING = FindingCode("MISSING", WARNING, "A right is missing.")


def test_three_hundred_topics_are_one_entry_with_the_first_of_them() -> None:
    (group,) = group_by_kind(ALONE.found(f"topic t{number}", f"t{number} has one.") for number in range(300))
    assert len(group.findings) == 300
    assert group.subjects == "300 topics (t0, t1, t2, t3, t4 and 295 more)"
    assert group.sentence == "For example: t0 has one."
    assert group.remedy == "Raise the replication factor."


def test_a_single_finding_is_shown_as_it_is() -> None:
    (group,) = group_by_kind([ALONE.found("topic t", "t has one.")])
    assert (group.subjects, group.sentence) == ("topic t", "t has one.")


def test_remedies_that_differ_in_the_name_of_the_subject_are_one_entry_with_an_example() -> None:
    found = [FENCED.found(f"node {n}", f"Broker {n} is fenced.", f"Read the log of broker {n}.") for n in (3, 4)]
    (group,) = group_by_kind(found)
    assert group.subjects == "2 nodes (3, 4)"
    assert group.remedy == "For node 3, and the others alike: Read the log of broker 3."


def test_different_commands_stay_apart_and_complete() -> None:
    found = [
        MISSING.found(f"{operation} on CLUSTER", "It is missing.", f"Run: kafka-acls.sh --operation {other}")
        for operation, other in (("ALTER", "Alter"), ("DESCRIBE", "Describe"))
    ]
    assert [group.remedy for group in group_by_kind(found)] == [one.remedy for one in found]


def test_the_most_severe_kind_is_first_and_severities_do_not_mix() -> None:
    found = [
        ALONE.found("topic a", "a.", severity=WARNING),
        FENCED.found("node 1", "b.", ""),
        ALONE.found("topic c", "c."),
    ]
    assert [(group.code, group.severity) for group in group_by_kind(found)] == [
        ("ALONE", BLOCKER),
        ("ALONE", WARNING),
        ("FENCED", WARNING),
    ]


def test_subjects_of_several_kinds_are_objects() -> None:
    found = [ALONE.found("topic a", "a."), ALONE.found("node 1", "b.")]
    assert group_by_kind(found)[0].subjects == "2 objects (topic a, node 1)"


def test_commands_for_different_objects_are_not_one_entry() -> None:
    found = [
        MISSING.found(f"READ on TOPIC {topic}", "It is missing.", f"Run: kafka-acls.sh --add --topic '{topic}'")
        for topic in ("__consumer_offsets", "__transaction_state")
    ]
    assert [group.subjects for group in group_by_kind(found)] == [one.subject for one in found]
