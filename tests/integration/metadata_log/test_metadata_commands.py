"""`kafka-rollout metadata` and what the catalogue says of metadata logs, on kept logs of real nodes; no broker runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, open_folder
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.releases import NEWEST
from tests.unit.metadata_log.changes.test_trimmer import whole
from tools.demo.folder import PROJECT_ROOT

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_java_per_release")]

INCLUDE = PROJECT_ROOT / "include"
FIXTURES = PROJECT_ROOT / "tests" / "fixtures"
ALWAYS, RARELY = ("3.4.0", "3.9.1", "4.3.1"), ("3.3.2", "3.4.1", "3.7.2", "4.0.1", "4.1.1", "4.2.1", NEWEST)
FULL = [pytest.param(name, marks=pytest.mark.full) for name in RARELY]


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


@pytest.fixture
def old_level(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-8", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def run(command: str, folder: Path, *arguments: object) -> int:
    return run_main(["metadata", command, "--log-dir", str(folder), *map(str, arguments)])


def test_losses_in_the_form_that_programs_read(folder: MetadataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    before = whole(folder)
    assert run("scan", folder.root, "--to-level", 29, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["from_level"], told["to_level"], told["default_only"]) == (30, 29, [])
    assert told["losses"] == [
        {
            "kind": "cordoned log directories",
            "subject": "broker 1",
            "sentence": "Broker 1 loses its cordoned log directories: SjsugtA7F6YxfWx3HdBG8w.",
            "covers": [],
        }
    ]
    assert whole(folder) == before


def test_a_directory_is_named_by_its_path_where_the_configuration_leads_to_its_meta_properties(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second, config = tmp_path / "second", tmp_path / "server.properties"
    second.mkdir()
    (second / "meta.properties").write_text("version=1\nnode.id=1\ndirectory.id=SjsugtA7F6YxfWx3HdBG8w\n")
    config.write_text(f"log.dirs={folder.root},{second},{tmp_path / 'gone'}\n")
    assert run("scan", folder.root, "--to-level", 29, "--config", config, "--json") == 0
    (loss,) = json.loads(capsys.readouterr().out)["losses"]
    assert loss["sentence"] == f"Broker 1 loses its cordoned log directories: {second} (SjsugtA7F6YxfWx3HdBG8w)."


def test_an_older_releases_classes_can_be_asked_and_the_log_alone_is_enough(
    old_level: MetadataFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (old_level.root / "meta.properties").unlink()
    assert run("scan", old_level.log, "--to-level", 4, "--classes", "3.9.1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["from_level"], told["to_level"], told["below_floor"]) == (8, 4, True)


@pytest.mark.parametrize("name", [*ALWAYS, *FULL])
def test_the_scan_says_for_each_release_where_the_log_at_level_8_stops_it(
    name: str, old_level: MetadataFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    before = whole(old_level)
    newest = Release.parse(name) >= Release(4, 0, 0)
    code = run("scan", old_level.root, "--release", name, "--json")
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == ((0, "replays") if newest else (3, "fails"))
    if not newest:
        first = told["first_failure"]
        assert first["offset"] == (1 if name == "3.3.2" else 9)
        assert ("metadata.version to 8" if name == "3.3.2" else "group.version to 1") in first["reason"]
        assert told["remedies"]
    assert whole(old_level) == before


def test_the_scan_reads_from_the_snapshot_where_the_release_does(
    folder: MetadataFolder, release_cache: ReleaseCache
) -> None:
    newer = scan_metadata_log(folder, Release(4, 2, 1), cache=release_cache)
    assert newer.first_failure is not None
    assert (newer.first_failure.where, newer.starts_at) == ("snapshot", f"snapshot {folder.checkpoints[-1].name}")
    older = scan_metadata_log(folder, Release(3, 4, 1), cache=release_cache)
    assert older.first_failure is not None
    assert (older.first_failure.where, older.first_failure.offset) == ("log", 1)
    assert "BeginTransactionRecord" in older.first_failure.reason
    assert [one.where for one in older.failures] == ["bootstrap", "log"]


def test_a_trim_that_would_not_help_is_refused_and_one_that_does_is_made(folder: MetadataFolder) -> None:
    before = whole(folder)
    assert run("trim", folder.root, "--release", "4.2.1") == 3
    assert run("trim", folder.root, "--release", "4.3.1", "--dry-run") == 0
    assert whole(folder) == before
    assert run("trim", folder.root, "--release", "4.3.1") == 0
    assert [path.name for path in folder.segments] == [f"{37:020}.log"]
    assert run("trim", folder.root, "--undo") == 0
    assert whole(folder) == before


def test_bad_input_is_one_sentence_and_exit_code_2_and_changes_nothing(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = shutil.copytree(folder.root, tmp_path / "cut")
    (checkpoint,) = (cut / "__cluster_metadata-0").glob("*.checkpoint")
    os.truncate(checkpoint, 700)
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    before = whole(folder)
    for command, where, arguments, said in (
        ("scan", folder.root, ("--to-level", 99), "does not support metadata.version 99"),
        ("scan", cut, ("--to-level", 29), "is damaged or not complete"),
        ("scan", tmp_path / "empty", ("--to-level", 29), "holds no metadata log"),
        ("scan", folder.root, ("--to-level", 29, "--cluster-id", "other"), "not of cluster other"),
        ("scan", folder.root, ("--release", "9.9.9"), "The catalogue does not contain which metadata records"),
        ("scan", cut, ("--release", "4.3.1"), "is damaged or not complete"),
        ("snapshot", folder.root, ("--to-level", 99, "--out", out), "does not support metadata.version 99"),
        ("snapshot", folder.root, ("--to-level", 29, "--out", folder.log), "is in the directory that is read"),
        ("snapshot", cut, ("--to-level", 29, "--out", out), "is damaged or not complete"),
        ("trim", cut, (), "is damaged or not complete"),
        ("trim", folder.root, ("--undo",), "no trim to undo"),
    ):
        assert run(command, where, *arguments) == 2, said
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1, told
        assert "Traceback" not in told
    assert whole(folder) == before
    assert not out.exists() or list(out.iterdir()) == []


def test_what_the_snapshot_command_wrote_is_loaded_by_the_release_that_is_to_start_from_it(
    folder: MetadataFolder, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    assert run("snapshot", folder.root, "--to-level", 29, "--out", tmp_path / "out", "--release", "4.2.1") == 0
    (path,) = (tmp_path / "out").glob("*.checkpoint")
    assert (path.name, path.stat().st_mode & 0o777) == (f"{57:020}-{1 + EPOCHS_ABOVE:010}.checkpoint", 0o600)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    summary = JvmKafkaClasses(release_cache).load_checkpoint(Release(4, 2, 1), path)
    assert (summary.features["metadata.version"], summary.topics, summary.partitions) == (29, 3, 6)
    assert run("snapshot", folder.root, "--to-level", 29, "--out", tmp_path / "out") == 2
