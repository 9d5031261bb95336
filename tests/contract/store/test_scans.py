"""Scans are kept whole, newest first, so many of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.formats.log_types import LogRange
from kafka_rollout.run.store.scans import SqlScanHistory, scanned_clusters
from tests.contract.store.conftest import Store

AT = 1_763_697_600.0  # 2025-11-21T04:00:00Z


def scan(at: float = AT, cluster: str = "orders") -> ScanResult:
    logs = (LogRange(topic="__consumer_offsets", partition=0, start=0, end=3),)
    return ScanResult(cluster=cluster, scanned_at=at, logs=logs, classes=(), verdicts=())


@pytest.fixture
def history(store: Store) -> SqlScanHistory:
    return store.scans()


def test_a_kept_scan_reads_back_with_its_page_and_tables(history: SqlScanHistory, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "classes.parquet").write_bytes(b"rows")
    kept = history.keep(scan(), "<p>page</p>", parquet=tables)
    assert kept.name == "20251121T040000.000Z"
    assert kept.load() == scan()
    assert Path(kept.page).read_text() == kept.read_page() == "<p>page</p>"
    assert (Path(kept.location) / "parquet" / "classes.parquet").read_bytes() == b"rows"
    assert history.scans() == (kept,)


def test_the_newest_is_first_and_the_oldest_beyond_the_number_go(store: Store, history: SqlScanHistory) -> None:
    for hour in (3, 1, 2):
        history.keep(scan(AT + 3600 * hour), "", at_most=2)
    assert [kept.load().scanned_at for kept in history.scans()] == [AT + 3 * 3600, AT + 2 * 3600]
    assert {path.name for path in (store.home / "scans" / "orders").iterdir()} == {k.folder for k in history.scans()}


def test_two_scans_of_one_moment_are_both_kept(history: SqlScanHistory) -> None:
    assert history.keep(scan(), "").name != history.keep(scan(), "").name
    assert len(history.scans()) == 2


def test_a_scan_that_could_not_be_written_is_not_part_of_the_history(
    history: SqlScanHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise TransientError("No space left on device.")

    with monkeypatch.context() as patch:
        patch.setattr(history._documents, "write_folder", full)
        with pytest.raises(TransientError):
            history.keep(scan(), "", parquet=Path("tables"))
    assert history.scans() == ()
    history.keep(scan(), "")
    assert len(history.scans()) == 1


def test_scans_of_scheduled_runs_are_listed_in_their_order(history: SqlScanHistory) -> None:
    history.keep(scan(), "<p>by hand</p>")
    for number in (1, 2):
        history.keep(scan(AT + 60 * number), "<p>page</p>", run_id=f"run-{number}")
    found = history.scheduled()
    assert [one.run_id for one in found] == ["run-1", "run-2"]
    assert found[0].verdicts == scan().standing
    assert history.page_of_run("run-2") == "<p>page</p>"
    assert history.page_of_run("run-3") is None


def test_a_scan_is_found_by_a_beginning_of_its_name_or_as_the_newest(history: SqlScanHistory) -> None:
    first, second = history.keep(scan(), ""), history.keep(scan(AT + 86_400), "")
    assert history.get("20251121") == first
    assert history.get("newest") == second
    with pytest.raises(UserError, match="2 scans 2025"):
        history.get("2025")
    with pytest.raises(UserError, match="no scan 1999"):
        history.get("1999")


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"verdicts": [{"release": "new"}]}', b"\xff"])
def test_a_damaged_scan_is_named_and_stops_nothing_else(history: SqlScanHistory, content: bytes) -> None:
    kept = history.keep(scan(), "")
    (Path(kept.location) / "scan.json").write_bytes(content)
    with pytest.raises(FatalError, match=r"Scan 20251121T040000.000Z of orders in .* was changed after it was stored"):
        kept.load()
    assert history.scans() == (kept,)
    history.keep(scan(AT + 60), "")
    assert [result.scanned_at for result in history.newest(5)] == [AT + 60]


def test_a_scan_with_other_verdicts_than_the_stored_ones_is_refused(history: SqlScanHistory) -> None:
    kept = history.keep(scan(), "")
    other = json.dumps(to_json(replace(scan(), logs=())))
    (Path(kept.location) / "scan.json").write_text(other)
    with pytest.raises(FatalError, match="its hash does not match the scan history"):
        history.get("newest").load()
    assert history.newest(5) == ()


def test_clusters_with_a_history_are_listed_by_their_own_names(store: Store) -> None:
    for name in ("orders", "a/b: c"):
        store.scans(name).keep(scan(cluster=name), "")
    assert scanned_clusters(store.database()) == ("a/b: c", "orders")
