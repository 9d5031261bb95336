"""Artifacts: one contract for a folder, a file URL and an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.run.store.artifacts import Artifacts, artifact_key
from kafka_rollout.run.store.history import SqlRunStore
from tests.records import database_of

REPORT = artifact_key("runs", "demo", "manual__2026-11-21T04:00:00+00:00", "scan/report.html")


@pytest.fixture(params=["folder", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kinds = {"folder": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path.name}"}
    return kinds[request.param]


def test_a_document_is_read_by_every_other_process_as_it_was_written(url: str) -> None:
    Artifacts(url).write(REPORT, b"first")
    Artifacts(url).write(REPORT, b"second")
    assert Artifacts(url).read(REPORT) == b"second"
    assert Artifacts(url).location(REPORT).endswith(REPORT)


def test_a_missing_document_is_named(url: str) -> None:
    with pytest.raises(FatalError, match=r"report\.html is missing"):
        Artifacts(url).read(REPORT)


def test_a_removed_document_is_gone_and_the_others_stay(url: str) -> None:
    other = artifact_key("runs", "demo", "run-2", "report.html")
    for key in (REPORT, other):
        Artifacts(url).write(key, b"content")
    for _ in range(2):
        Artifacts(url).remove(REPORT)
    with pytest.raises(FatalError):
        Artifacts(url).read(REPORT)
    assert Artifacts(url).read(other) == b"content"


def test_a_folder_is_written_and_removed_with_all_in_it(url: str, tmp_path: Path) -> None:
    tables = tmp_path / "tables" / "classes"
    tables.mkdir(parents=True)
    (tables / "part-0.parquet").write_bytes(b"\0\1")
    folder = artifact_key("scans", "orders", "20261121-0a1b2c3d")
    Artifacts(url).write_folder(folder, tables.parent)
    assert Artifacts(url).read(f"{folder}/classes/part-0.parquet") == b"\0\1"
    with pytest.raises(RefusedError, match="has no name of a folder of kafka-rollout"):
        Artifacts(url).remove_folder("scans/orders")
    Artifacts(url).remove_folder(folder)
    with pytest.raises(FatalError):
        Artifacts(url).read(f"{folder}/classes/part-0.parquet")


def test_a_run_keeps_its_documents_there(url: str, tmp_path: Path) -> None:
    def run() -> SqlRunStore:
        return SqlRunStore(database_of(tmp_path), Artifacts(url), tmp_path / "private", "demo", "run-1")

    run().attach("traffic/verdict.json", {"ok": True})
    assert run().attachment("traffic/verdict.json") == {"ok": True}
    run().detach("traffic/verdict.json")
    assert run().attachment("traffic/verdict.json") is None


def test_an_unknown_file_system_is_refused_with_its_name() -> None:
    with pytest.raises(UserError, match=r"KAFKA_ROLLOUT_ARTIFACTS cannot be used \(nosuch\)"):
        Artifacts("nosuch://bucket/folder").write(REPORT, b"x")
