"""Scans are kept whole, newest first, so many of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kafka_rollout.adapters.store.scans import ScanHistory, scanned_clusters
from kafka_rollout.domain.coordinator_logs.scan import LogRange, ScanResult
from kafka_rollout.domain.model.errors import FatalError, UserError

AT = 1_763_697_600.0  # 2025-11-21T04:00:00Z


def scan(at: float = AT, cluster: str = "orders") -> ScanResult:
    logs = (LogRange(topic="__consumer_offsets", partition=0, start=0, end=3),)
    return ScanResult(cluster=cluster, scanned_at=at, logs=logs, classes=(), verdicts=())


@pytest.fixture
def history(tmp_path: Path) -> ScanHistory:
    return ScanHistory(tmp_path, "orders")


def test_a_kept_scan_reads_back_with_its_page_and_tables(history: ScanHistory, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "classes.parquet").write_bytes(b"rows")
    kept = history.keep(scan(), "<p>page</p>", parquet=tables)
    assert kept.name == "20251121T040000.000Z"
    assert kept.load() == scan()
    assert kept.page.read_text() == "<p>page</p>"
    assert (kept.folder / "parquet" / "classes.parquet").read_bytes() == b"rows"
    assert history.scans() == (kept,)


def test_the_newest_is_first_and_the_oldest_beyond_the_number_go(history: ScanHistory) -> None:
    for hour in (3, 1, 2):
        history.keep(scan(AT + 3600 * hour), "", at_most=2)
    assert [kept.load().scanned_at for kept in history.scans()] == [AT + 3 * 3600, AT + 2 * 3600]
    assert len(list(history.folder.iterdir())) == 2


def test_two_scans_of_one_moment_are_both_kept(history: ScanHistory) -> None:
    assert history.keep(scan(), "").name != history.keep(scan(), "").name
    assert len(history.scans()) == 2


def test_a_scan_that_could_not_be_written_leaves_nothing(history: ScanHistory, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        history.keep(scan(), "", parquet=tmp_path / "nowhere")
    assert history.scans() == ()
    assert list(history.folder.iterdir()) == []


def test_what_a_killed_scan_left_is_not_a_scan_and_goes_after_a_day(history: ScanHistory) -> None:
    history.folder.mkdir(parents=True)
    (fresh := history.folder / ".fresh").mkdir()
    (old := history.folder / ".old").mkdir()
    os.utime(old, (time.time() - 90_000,) * 2)
    assert history.scans() == ()
    history.keep(scan(), "")
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_scan_is_found_by_a_beginning_of_its_name_or_as_the_newest(history: ScanHistory) -> None:
    first, second = history.keep(scan(), ""), history.keep(scan(AT + 86_400), "")
    assert history.get("20251121") == first
    assert history.get("newest") == second
    with pytest.raises(UserError, match="2 scans 2025"):
        history.get("2025")
    with pytest.raises(UserError, match="no scan 1999"):
        history.get("1999")


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"verdicts": [{"release": "new"}]}', b"\xff"])
def test_a_damaged_scan_is_named_and_stops_nothing_else(history: ScanHistory, content: bytes) -> None:
    kept = history.keep(scan(), "")
    kept.json_file.write_bytes(content)
    with pytest.raises(FatalError, match=r"scan\.json cannot be read"):
        kept.load()
    assert history.scans() == (kept,)
    history.keep(scan(AT + 60), "")
    assert [result.scanned_at for result in history.newest(5)] == [AT + 60]


def test_clusters_with_a_history_are_listed_by_their_own_names(tmp_path: Path) -> None:
    for name in ("orders", "a/b: c"):
        ScanHistory(tmp_path, name).keep(scan(cluster=name), "")
    ScanHistory(tmp_path, "empty").folder.mkdir(parents=True)
    assert scanned_clusters(tmp_path) == ("a/b: c", "orders")
