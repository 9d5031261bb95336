"""The page of a scan: everything that it must show is there, and nothing in it does what a name says."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kafka_rollout.cli.commands.scans import print_scan
from kafka_rollout.coordinator_logs.contents import GroupInventory, GroupSummary
from kafka_rollout.coordinator_logs.page.report import LISTED, render_scan
from kafka_rollout.coordinator_logs.scan import DeletedWhilePending, LogCopy, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records, unloadable_groups
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import INCLUDE
from tests.unit.scan_examples import HOSTILE, OFFSETS, TRANSACTIONS, large_scan, small_scan


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue(INCLUDE)


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", "".join(Elements(page).text))


def test_the_page_has_verdicts_remedies_tags_inventory_damage_and_copies(catalogue: Catalogue) -> None:
    text = text_of(render_scan(large_scan(catalogue), catalogue))
    for expected in (
        "Coordinator logs of orders",
        "unknown key version 3",
        "First convert these groups",
        "Downgrade through 3.4.1, 3.5.2, 3.6.2, 3.7.2, 3.8.1, 3.9.2, 4.0.2",
        "at most 3 min 30 s",
        "topicId",
        "group-0001",
        "the CRC does not match",
        "It is the longest.",
        "it ends within field metadata",
    ):
        assert expected in text


def test_the_page_says_by_which_group_coordinator_it_judges_and_which_groups_have_offsets_only(
    catalogue: Catalogue,
) -> None:
    scan = large_scan(catalogue)
    simple = GroupSummary(name="simple", type="classic", state="Empty", members=0, partition=1, offsets_only=True)
    told, only = "evaluated with their new group coordinator", "committed offsets only"
    page = text_of(render_scan(scan, catalogue))
    assert told not in page
    assert only not in page
    inventory = GroupInventory(groups=(simple,))
    page = text_of(render_scan(replace(scan, new_group_coordinator=True, inventory=inventory), catalogue))
    assert told in page
    assert only in page


def test_partitions_that_no_directory_has_are_named(catalogue: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    def copy(partition: int, topic: str = OFFSETS) -> LogCopy:
        return LogCopy(
            topic=topic, partition=partition, directory="/a", start=0, end=5, log_bytes=9, chosen=True, why="It is it."
        )

    live = small_scan(catalogue, at=1.0)
    assert (live.left_out, replace(live, copies=(copy(0), copy(1))).left_out) == ({}, {})
    scan = replace(live, copies=(copy(2), copy(4), copy(0, TRANSACTIONS)))
    assert scan.left_out == {OFFSETS: (0, 1, 3)}
    print_scan(scan)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{OFFSETS} has partitions that are in none of these directories: 0, 1, 3. The verdicts say nothing" in said
    text = text_of(render_scan(scan, catalogue))
    assert f"{OFFSETS} has 3 partitions that are in none of the directories: 0, 1, 3." in text


def test_hostile_names_are_text_and_nothing_else(catalogue: Catalogue) -> None:
    page = render_scan(large_scan(catalogue), catalogue)
    elements = Elements(page)
    tags = {tag for tag, _ in elements.seen}
    assert not tags & {"script", "img", "iframe", "link", "object", "form", "a"}
    assert not [name for _, attributes in elements.seen for name in attributes if name.startswith("on")]
    shown = "".join(elements.text)
    assert HOSTILE.replace("\u202e", "\\u202e") in shown
    assert "\u202e" not in shown


def test_the_page_fetches_nothing(catalogue: Catalogue) -> None:
    page = render_scan(large_scan(catalogue), catalogue)
    assert not re.search(r"(src|href)\s*=|url\(|@import", page)


def test_more_groups_than_are_listed_are_counted(catalogue: Catalogue) -> None:
    scan = large_scan(catalogue)
    assert scan.inventory is not None
    more = len(scan.inventory.groups) - LISTED
    assert f"and {more:,} more" in text_of(render_scan(scan, catalogue))


def test_what_changed_since_the_last_scan_and_the_trend_are_shown(catalogue: Catalogue) -> None:
    now = small_scan(catalogue, at=2_000_000.0)
    before = replace(small_scan(catalogue, at=1_000_000.0, consumer_groups=False))
    page = render_scan(now, catalogue, earlier=[before])
    assert "on 3.4.0: loads, now fails at offset 10" in text_of(page)
    assert 'aria-label="Bytes of the logs over the scans"' in page


def test_a_scan_of_nothing_has_a_page(catalogue: Catalogue) -> None:
    empty = ScanResult(cluster="orders", scanned_at=0.0, logs=(), classes=(), verdicts=())
    assert "The logs contain no record." in text_of(render_scan(empty, catalogue))


def test_a_scan_that_counted_classes_alone_says_what_it_does_not_know(catalogue: Catalogue) -> None:
    scan = small_scan(catalogue, at=1.0)
    shallow = replace(scan, classes=tuple(replace(found, live=None) for found in scan.classes), inventory=None)
    text = text_of(render_scan(shallow, catalogue))
    assert "This scan did not read the contents of the records." in text
    assert "Scan with --live to find out whether waiting" in text


def test_only_releases_that_do_not_simply_load_have_a_remedy(catalogue: Catalogue) -> None:
    text = text_of(render_scan(small_scan(catalogue, at=1.0), catalogue))
    assert f"{Release(3, 4, 0)} 5 records stop 3.4.0" in text
    assert "stop 4.3.1" not in text


def test_of_deleted_groups_with_open_transactions_the_page_says_that_they_are_served_and_asks_for_no_live_scan(
    catalogue: Catalogue,
) -> None:
    release = Release(3, 9, 1)
    group = DeletedWhilePending(topic="__consumer_offsets", partition=4, offset=2, group="left", producers=(7,))
    scan = replace(small_scan(catalogue, at=1.0), classes=(), deleted_while_pending=(group,))
    scan = replace(scan, broken=unloadable_groups(catalogue, scan.deleted_while_pending, [release]))
    text = text_of(
        render_scan(replace(scan, verdicts=evaluate_records(catalogue, (), [release], broken=scan.broken)), catalogue)
    )
    assert "Kafka 3.9.1 logs a load error for 1 deleted group" in text
    assert "serves the partition with an empty group" in text
    assert "left __consumer_offsets-4, producer 7" in text
    assert "?" not in text
