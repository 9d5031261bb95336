from __future__ import annotations

from dataclasses import replace

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.contents import StateRecord
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.groups.group_records import GroupRecords, alive_by_type, conversion_conditions
from kafka_rollout.model.state import GroupState
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release

CATALOGUE = load_catalogue(Settings.from_environment().include)
INTOLERANT, TOLERANT = Release(3, 4, 0), Release(3, 4, 1)
ACTIVE = GroupState(group_id="g", type="consumer", state="Stable", members=2)
CONVERTED = GroupState(group_id="g", type="classic", state="Stable", members=2)
IDLE = GroupState(group_id="idle", type="consumer", state="Empty")
NEWER = RecordKind(topic="__consumer_offsets", partition=0, key_version=3, value_version=None, count=4, first_offset=7)


def live(group: str = "g", *, ended: bool = False) -> StateRecord:
    value = None if ended else {"Epoch": 3}
    key = {"GroupId": group}
    return StateRecord(
        topic="__consumer_offsets", partition=0, record="ConsumerGroupMetadata", key=key, value=value, offset=7
    )


def conditions(
    groups: list[GroupState], records: GroupRecords, *releases: Release, kinds: tuple[str, ...] = ("consumer",)
) -> list[GateCondition]:
    return list(conversion_conditions(groups, records, kinds, catalogue=CATALOGUE, releases=releases))


def records(*newest: StateRecord, classes: tuple[RecordKind, ...] = ()) -> GroupRecords:
    return GroupRecords(
        read_at=1.0,
        offsets=20,
        alive=alive_by_type(newest),
        newest=newest,
        classes=classes,
        partitions=(("__consumer_offsets", 0),),
    )


def test_a_group_with_members_is_to_be_converted_first() -> None:
    members, tombstones = conditions([ACTIVE], records(live()))
    assert (members.is_met, tombstones.is_met) == (False, False)
    assert "1 group to convert: g" in members.evidence
    assert "1 group with current records: g" in tombstones.evidence


def test_a_converted_group_whose_tombstones_are_not_written_yet_is_waited_for() -> None:
    members, tombstones = conditions([CONVERTED], records(live()))
    assert (members.is_met, tombstones.is_met) == (True, False)


def test_it_holds_when_the_tombstones_are_written() -> None:
    assert all(condition.is_met for condition in conditions([CONVERTED], records(live(ended=True))))


def test_records_of_groups_without_members_are_reported_and_do_not_block() -> None:
    members, tombstones = conditions([IDLE], records(live("idle")))
    assert (members.is_met, tombstones.is_met) == (True, True)
    assert "without members, but with records: idle" in tombstones.evidence


def test_records_of_other_types_are_not_looked_at() -> None:
    assert all(condition.is_met for condition in conditions([ACTIVE], records(live()), kinds=("share",)))


def test_a_release_that_cannot_load_tombstones_waits_for_the_cleaner_with_settings_for_faster_cleaning() -> None:
    held = replace(records(live(ended=True), classes=(NEWER,)), cleaning=CleaningConfig(known=True))
    *_, loads = conditions([CONVERTED], held, INTOLERANT)
    assert not loads.is_met
    assert "1 partition not, __consumer_offsets-0 at offset 7" in loads.evidence
    assert loads.evidence.endswith(
        "; no upper limit, because only the size of the log triggers the cleaner; within 3 min 30 s with "
        "temporary settings max.compaction.lag.ms=60000, delete.retention.ms=60000 on __consumer_offsets; "
        "both passes of the log cleaner need an append to the partition: a commit or a rebalance of a group"
    )


def test_the_cleaner_does_not_take_what_is_alive_so_an_intolerant_release_has_it_ended_first() -> None:
    held = replace(records(live("idle"), classes=(NEWER,)), cleaning=CleaningConfig(known=True))
    *_, loads = conditions([IDLE], held, INTOLERANT)
    assert "; convert or delete idle, which have current records, then: no upper limit" in loads.evidence


def test_where_no_wait_helps_it_is_said_what_stops_the_release() -> None:
    commits = replace(NEWER, key_version=1, value_version=4)
    *_, loads = conditions([CONVERTED], records(live(ended=True), classes=(NEWER, commits)), INTOLERANT)
    assert loads.evidence.endswith(
        "; no group conversion removes them: OffsetCommit (key version 1), value version 4; `kafka-rollout "
        "scan` lists the removal actions"
    )


def test_a_release_that_passes_over_them_does_not_wait_for_the_cleaner() -> None:
    *_, loads = conditions([CONVERTED], records(live(ended=True), classes=(NEWER,)), TOLERANT)
    assert loads.is_met
    assert loads.evidence == "it ignores 4 records"


def test_without_a_falling_type_only_the_releases_are_asked() -> None:
    (loads,) = conditions([ACTIVE], records(), INTOLERANT, kinds=())
    assert loads.is_met


def test_nodes_do_not_stop_while_the_settings_for_faster_cleaning_are_in_force() -> None:
    """With them, a node that is down for a minute shows deleted groups and offsets when it leads."""

    def condition(of: GroupRecords) -> list[GateCondition]:
        found = conversion_conditions([], of, (), catalogue=CATALOGUE, releases=[INTOLERANT], before_stops=True)
        return list(found)

    cleaned = replace(records(), cleaning=CleaningConfig(known=True).with_faster_cleaning())
    loads, restored = condition(cleaned)
    assert (loads.is_met, restored.is_met) == (True, False)
    assert "delete.retention.ms of __consumer_offsets is 60000" in restored.evidence
    assert "restore the settings" in restored.evidence
    assert [one.is_met for one in condition(replace(records(), cleaning=CleaningConfig(known=True)))] == [True]
    assert [one.is_met for one in conditions([], cleaned, INTOLERANT, kinds=())] == [True], "a command that waits"
