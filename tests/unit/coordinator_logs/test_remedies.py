"""The way to a release that these logs stop, by the facts that were derived from the released jars."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.coordinator_logs.contents import GroupInventory, GroupSummary
from kafka_rollout.coordinator_logs.remedies import Concerned, Remedy, StepKind, find_remedies, in_words
from kafka_rollout.coordinator_logs.scan import BrokenRecords, DeletedWhilePending, OutOfOrder, OwnerRecords, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records, groups_out_of_order, unloadable_groups
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import INCLUDE
from tests.releases import NEWEST

OFFSETS, TRANSACTIONS, SHARE_STATE = "__consumer_offsets", "__transaction_state", "__share_group_state"
R340, R341, R401, R411, R431 = (Release.parse(name) for name in ("3.4.0", "3.4.1", "4.0.1", "4.1.1", "4.3.1"))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue(INCLUDE)


def records(
    key: int, value: int | None, *, live: int | None, topic: str = OFFSETS, count: int = 5, partition: int = 0
) -> RecordKind:
    return RecordKind(
        topic=topic,
        partition=partition,
        key_version=key,
        value_version=value,
        count=count,
        first_offset=10,
        live=live,
    )


def owner(name: str, key: int, value: int | None, *, live: int | None, kind: str = "group") -> OwnerRecords:
    return OwnerRecords(
        topic=OFFSETS,
        partition=0,
        owner=kind,
        name=name,
        key_version=key,
        value_version=value,
        count=3,
        first_offset=10,
        live=live,
    )


def remedy(
    catalogue: Catalogue,
    release: Release,
    classes: Sequence[RecordKind],
    *,
    owners: Sequence[OwnerRecords] = (),
    broken: Sequence[BrokenRecords] = (),
    inventory: GroupInventory | None = None,
    cleaning: CleaningConfig | None = None,
) -> Remedy:
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(),
        classes=tuple(classes),
        verdicts=evaluate_records(catalogue, classes, [release], broken=broken),
        owners=tuple(owners),
        broken=tuple(broken),
        inventory=inventory,
        cleaning={OFFSETS: cleaning} if cleaning else {},
    )
    (found,) = find_remedies(from_json(ScanResult, to_json(scan)), catalogue)
    return found


def kinds(found: Remedy) -> list[StepKind]:
    return [step.kind for step in found.steps]


def test_a_release_that_loads_everything_needs_no_remedy(catalogue: Catalogue) -> None:
    classes = (records(1, 3, live=5),)
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(),
        classes=classes,
        verdicts=evaluate_records(catalogue, classes, [R340]),
    )
    assert find_remedies(scan, catalogue) == ()


def test_when_all_is_dead_waiting_is_enough(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R340, [records(3, 0, live=0), records(3, None, live=5)])
    assert found.waiting_is_enough is True
    assert kinds(found) == [StepKind.FASTER, StepKind.WAIT, StepKind.RESTORE]
    assert "wait until the log cleaner has removed them" in found.sentence


def test_dead_in_one_partition_and_alive_in_another_is_not_enough(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R340, [records(3, 0, live=0), records(3, 0, live=1, partition=7)])
    assert found.waiting_is_enough is False
    assert [(p.partition, p.live) for p in found.offences[0].partitions] == [(0, 0), (7, 1)]


def test_a_scan_that_did_not_look_at_live_records_does_not_promise_anything(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R340, [records(3, 0, live=None)])
    assert found.waiting_is_enough is None
    assert "Scan with --live" in found.sentence


def test_tombstones_of_an_unknown_type_wait_for_two_passes_and_the_retention(catalogue: Catalogue) -> None:
    cleaning = CleaningConfig(max_compaction_lag_ms=60_000, delete_retention_ms=86_400_000, known=True)
    (_, wait, _) = remedy(catalogue, R340, [records(3, None, live=5)], cleaning=cleaning).steps
    assert "second pass" in wait.sentence
    assert "By the topic's configuration, at most 1 d 2 min" in wait.sentence
    assert wait.within_ms == 210_000  # with the settings of the step before


def test_what_newer_records_of_a_known_type_shadow_needs_one_pass(catalogue: Catalogue) -> None:
    (faster, wait, _) = remedy(catalogue, R340, [records(1, 4, live=0)]).steps
    assert [change.name for change in faster.settings] == ["max.compaction.lag.ms"]
    assert "One pass" in wait.sentence
    assert "Kafka's defaults (the topic configuration was not read), there is no upper limit" in wait.sentence
    assert wait.within_ms == 75_000


def test_live_groups_are_named_with_type_state_and_members_and_dead_ones_are_not(catalogue: Catalogue) -> None:
    inventory = GroupInventory(
        groups=(
            GroupSummary(name="billing", type="consumer", state="Stable", members=4, partition=0, classic_members=1),
        )
    )
    owners = [owner("billing", 3, 0, live=2), owner("gone", 3, 0, live=0), owner("other", 5, 0, live=3)]
    classes = [records(3, 0, live=2), records(5, 0, live=3)]
    (_, end, *_) = remedy(catalogue, R340, classes, owners=owners, inventory=inventory).steps
    assert end.kind is StepKind.END
    assert end.concerned == (
        Concerned("other"),
        Concerned("billing", "consumer, Stable, 4 members, 1 of them use the classic protocol"),
    )


def test_consumers_go_back_before_streams_share_groups_and_transactions(catalogue: Catalogue) -> None:
    classes = [
        records(0, 1, live=1, topic=TRANSACTIONS),
        records(11, 0, live=1),
        records(17, 0, live=1),
        records(3, 0, live=1),
    ]
    titles = [step.title for step in remedy(catalogue, R340, classes).steps if step.kind is StepKind.END]
    assert [title.split()[0] for title in titles] == ["First", "Stop", "Stop", "Lower"]
    assert titles[-1].startswith("Lower transaction.version below 1")


def test_offsets_that_a_release_always_writes_lead_only_through_a_tolerant_release(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R340, [records(1, 4, live=5)], owners=[owner("billing", 1, 4, live=5)])
    step = found.steps[0]
    assert kinds(found) == [StepKind.THROUGH, StepKind.FASTER, StepKind.WAIT, StepKind.RESTORE]
    assert "through 3.4.1, 3.5.2, 3.6.2, 3.7.2, 3.8.1, 3.9.2, 4.0.2 and" in step.title
    assert (
        f"4.1.2, 4.2.2, 4.3.1, {NEWEST} and their earlier patch releases always write OffsetCommit 4" in step.sentence
    )
    assert step.concerned == (Concerned("billing"),)


def test_a_tolerant_release_that_ignores_groups_needs_no_cleaner_but_the_groups_are_named(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R341, [records(3, 0, live=1)], owners=[owner("billing", 3, 0, live=1)])
    assert not found.fails
    assert kinds(found) == [StepKind.END]
    assert found.steps[0].concerned == (Concerned("billing"),)
    assert found.sentence == "3.4.1 loads these logs and ignores 5 records of unknown types or versions."


def test_a_type_that_no_release_knows_is_not_explained_away(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R340, [records(99, 0, live=1)])
    assert found.offences[0].record is None
    assert found.steps[1].title == "Find the writer of the records of key version 99"


def test_records_that_do_not_parse_are_to_be_replaced(catalogue: Catalogue) -> None:
    broken = BrokenRecords(
        topic=OFFSETS,
        partition=0,
        key_version=1,
        value_version=3,
        part="value",
        releases=(R340,),
        count=1,
        first_offset=4,
        reason="it ends within field metadata",
        live=1,
    )
    found = remedy(catalogue, R340, [records(1, 3, live=5)], broken=[broken])
    assert found.offences[0].part == "value"
    assert found.steps[1].title.startswith("Replace the unreadable records")


def test_unknown_records_that_end_a_log_are_to_be_followed_and_no_cleaner_helps(catalogue: Catalogue) -> None:
    end = BrokenRecords(
        topic=TRANSACTIONS,
        partition=0,
        key_version=7,
        value_version=None,
        part="end",
        releases=(R341,),
        count=5,
        first_offset=10,
        reason="no known key follows key version 7, so the coordinator reads the last batches in an endless loop",
    )
    found = remedy(catalogue, R341, [records(7, None, live=5, topic=TRANSACTIONS)], broken=[end])
    assert found.fails
    assert found.waiting_is_enough is False
    assert [step.title for step in found.steps] == [
        ("Restart one transactional producer per partition: initTransactions() writes a new record")
    ]


def test_a_deleted_group_waits_for_the_end_of_its_transactions_and_no_cleaner_helps(catalogue: Catalogue) -> None:
    """Both groups of the partition are named, with the producers; 4.x and 3.9's new coordinator take them."""
    deleted = tuple(
        DeletedWhilePending(topic=OFFSETS, partition=3, offset=offset, group=name, producers=producers)
        for name, offset, producers in (("late", 9, (4,)), ("early", 5, (7, 8)))
    )
    releases = tuple(Release.parse(name) for name in ("3.4.0", "3.9.1", "4.0.1", "4.3.1"))
    (broken,) = unloadable_groups(catalogue, deleted, releases)
    assert (broken.releases, broken.count, broken.first_offset) == (releases[:2], 2, 5)
    assert broken.reason == (
        "group early (and 1 group more) was deleted, and its only offsets belong to open transactions of "
        'producer 7, 8: "Unexpected unload of active group early while loading partition '
        '__consumer_offsets-3"'
    )
    new_coordinator = catalogue.configured(new_group_coordinator=True)
    assert unloadable_groups(new_coordinator, deleted, releases)[0].releases == releases[:1]
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(),
        classes=(records(2, None, live=1),),
        verdicts=(),
        broken=(broken,),
        deleted_while_pending=deleted,
    )
    (found,) = find_remedies(scan, catalogue, [releases[1]])
    assert found.fails
    assert found.waiting_is_enough is False
    assert found.sentence == (
        "Kafka 3.9.1 logs a load error for 2 deleted groups whose only offsets belong to open transactions, but it "
        "serves their partitions. End these transactions. You do not need to wait for the log cleaner."
    )
    (step,) = found.steps
    assert step.title.startswith("End the transactions")
    assert [(one.name, one.about) for one in step.concerned] == [
        ("late", "__consumer_offsets-3, producer 4"),
        ("early", "__consumer_offsets-3, producer 7, 8"),
    ]


def test_groups_out_of_order_are_to_be_deleted_and_cleaned(catalogue: Catalogue) -> None:
    """Each is named to the releases that it stops, with what is known of it."""
    groups = tuple(
        OutOfOrder(
            topic=OFFSETS,
            partition=3,
            offset=offset,
            group=name,
            key_version=17,
            value_version=0,
            releases=of,
            complaint=f"Group {name} is not a streams group.",
        )
        for name, offset, of in (("late", 9, (R411,)), ("early", 5, (R411,)), ("other", 1, (R401, R411)))
    )
    broken = groups_out_of_order(groups)
    assert [(found.releases, found.count, found.first_offset) for found in broken] == [
        ((R401, R411), 1, 1),
        ((R411,), 2, 5),
    ]
    assert broken[1].reason == (
        'a record of key version 17 of group early (and 1 group more) contradicts an earlier record: "Group '
        'early is not a streams group."'
    )
    inventory = GroupInventory(
        groups=(GroupSummary(name="late", type="streams", state="Empty", members=0, partition=3),)
    )
    scan = ScanResult(
        cluster="orders",
        scanned_at=0.0,
        logs=(),
        classes=(records(17, 0, live=1),),
        verdicts=(),
        broken=broken,
        out_of_order=groups,
        inventory=inventory,
    )
    (found,) = find_remedies(scan, catalogue, [R411])
    assert found.fails
    assert found.waiting_is_enough is False
    assert kinds(found) == [StepKind.FASTER, StepKind.END, StepKind.WAIT, StepKind.RESTORE]
    assert found.steps[1].title.startswith("Delete these groups")
    assert [(one.name, one.about) for one in found.steps[1].concerned] == [
        ("late", "streams, Empty, 0 members"),
        ("early", ""),
        ("other", ""),
    ]
    assert find_remedies(scan, catalogue, [R431]) == ()


def test_the_share_coordinators_log_is_not_left_to_a_cleaner(catalogue: Catalogue) -> None:
    found = remedy(catalogue, R431, [records(0, 9, live=0, topic=SHARE_STATE)])
    assert kinds(found) == [StepKind.WAIT]
    assert "not compacted" in found.steps[0].sentence


@pytest.mark.parametrize("release", [R340, R341, R401, R431])
def test_every_kind_of_record_has_a_remedy_on_every_release(catalogue: Catalogue, release: Release) -> None:
    topics = (OFFSETS, TRANSACTIONS, SHARE_STATE)
    classes = [
        records(key, value, live=live, topic=topic)
        for topic in topics
        for key in (*range(25), 99)
        for value in (None, -1, 0, 1, 3, 4, 9)
        for live in (0, 1, None)
    ]
    found = remedy(catalogue, release, classes)
    assert all(step.sentence and step.title for step in found.steps)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (500, "500 ms"), (75_000, "1 min 15 s"), (90_060_000, "1 d 1 h"), (604_800_000, "7 d")],
)
def test_times_have_two_units(milliseconds: int, text: str) -> None:
    assert in_words(milliseconds) == text
