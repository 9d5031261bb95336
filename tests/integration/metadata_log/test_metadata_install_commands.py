"""`kafka-rollout metadata choose|snapshot|install|uninstall` on the kept log of a real node; no broker runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, open_folder
from tests.integration.metadata_log.test_metadata_commands import FIXTURES, run
from tests.unit.metadata_log.changes.test_trimmer import whole

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_java_per_release")]

LOWER = ("streams.version", "share.version", "group.version", "transaction.version", "eligible.leader.replicas.version")


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def written(folder: MetadataFolder, out: Path, *options: object) -> Path:
    assert run("snapshot", folder.root, "--out", out, *options) == 0
    (path,) = out.glob("*.checkpoint")
    return path


def test_a_release_that_could_not_even_read_bootstrap_checkpoint_replays_what_is_installed_and_all_of_it_goes_back(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = whole(folder)
    assert run("choose", folder.root, "--json") == 0
    chosen = json.loads(capsys.readouterr().out)
    assert (chosen["node_id"], chosen["end_offset"], chosen["snapshot_epoch"], chosen["voters"]) == (1, 57, 101, [1])
    features = [word for name in LOWER for word in ("--feature", f"{name}=0")]
    options = ("--to-level", 20, "--release", "3.9.1", "--epoch", chosen["snapshot_epoch"], *features)
    snapshot = written(folder, tmp_path / "out", *options)
    told = " ".join(capsys.readouterr().out.split())
    for name in LOWER:
        assert f"The feature level of {name} is lost" in told
    assert "orders-0 loses its eligible leader replicas: 1." in told

    def scanned() -> dict[str, object]:
        capsys.readouterr()
        run("scan", folder.root, "--release", "3.9.1", "--json")
        return dict(json.loads(capsys.readouterr().out))

    failures = scanned()["failures"]
    assert isinstance(failures, list)
    assert [one["where"] for one in failures] == ["bootstrap", "snapshot"]
    assert run("install", folder.root, "--snapshot", snapshot, "--release", "3.9.1") == 0
    found = scanned()
    assert (found["verdict"], found["starts_at"]) == ("replays", f"snapshot {snapshot.name}")
    assert run("uninstall", folder.root) == 0
    assert whole(folder) == before


def test_bad_input_is_one_sentence_and_changes_nothing(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = written(folder, tmp_path / "out", "--to-level", 29, "--epoch", 105)
    cut = Path(shutil.copy(snapshot, tmp_path / snapshot.name))
    os.truncate(cut, 700)
    old = Path(shutil.copy(snapshot, tmp_path / f"{57:020}-{1:010}.checkpoint"))
    shutil.copy(f"{snapshot}.origin.json", f"{old}.origin.json")
    before = whole(folder)
    to_421 = ("--release", "4.2.1")
    capsys.readouterr()
    for code, command, arguments, said in (
        (3, "install", ("--snapshot", cut, *to_421), "is damaged or not complete"),
        (2, "install", ("--snapshot", tmp_path / "none", *to_421), "cannot be read"),
        (2, "install", ("--snapshot", snapshot, *to_421, "--cluster-id", "other"), "not of cluster other"),
        (3, "install", ("--snapshot", snapshot, "--release", "4.0.1"), "cannot load the snapshot"),
        (3, "install", ("--snapshot", old, *to_421), "knows epoch 1"),
        (2, "uninstall", (), "no installation to undo"),
        (2, "choose", ("--cluster-id", "other"), "not of cluster other"),
        (2, "snapshot", ("--to-level", 29, "--out", tmp_path / "x", "--epoch", 0), "would be older"),
        (2, "snapshot", ("--to-level", 29, "--out", tmp_path / "x", "--feature", "gruop.version:0"), "not a feature"),
        (2, "snapshot", ("--to-level", 29, "--out", tmp_path / "x", "--feature", "group.version:2"), "only lowers"),
        (2, "snapshot", ("--to-level", 29, "--out", tmp_path / "x", "--feature", "kraft.version:0"), "be lowered"),
    ):
        assert run(command, folder.root, *arguments) == code, said
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1, told
        assert "Traceback" not in told
    assert whole(folder) == before


def test_the_logs_of_two_clusters_are_not_compared(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = FIXTURES / "metadata-log-level-8"
    assert run_main(["metadata", "choose", "--log-dir", str(folder.root), "--log-dir", str(other)]) == 2
    assert "These logs belong to different clusters" in capsys.readouterr().err


def test_two_directories_of_one_node_are_not_compared(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk and its backup: whichever is named last would be taken."""
    copy = shutil.copytree(folder.root, tmp_path / "copy")
    assert run_main(["metadata", "choose", "--log-dir", str(folder.root), "--log-dir", str(copy)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"{folder.root} and {copy} are both of node 1" in told


@pytest.mark.parametrize("command", ["choose", "uninstall"])
def test_a_folder_with_two_logs_is_not_a_nodes(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    copy = shutil.copytree(folder.root, tmp_path / "a-old")
    assert run(command, tmp_path) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "has 2 metadata logs" in told
    assert str(copy) in told
    assert str(folder.root) in told


def test_a_snapshot_of_another_log_is_not_installed(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = written(folder, tmp_path / "out", "--to-level", 29, "--epoch", 105)
    origin = Path(f"{snapshot}.origin.json")
    data, before = json.loads(origin.read_text()), whole(folder)
    install = ("install", folder.root, "--snapshot", snapshot, "--release", "4.2.1")

    def refused(change: dict[str, object] | None, *options: str) -> str:
        origin.unlink(missing_ok=True)
        if change is not None:
            origin.write_text(json.dumps({**data, **change}))
        capsys.readouterr()
        assert run(*install, *options) == 3
        assert whole(folder) == before
        return " ".join(capsys.readouterr().err.split())

    assert "is of cluster other" in refused({"cluster_id": "other"})
    assert "is unknown" in refused(None)
    assert "records would be lost" in refused({"end_offset": 56})
    assert "records would be lost" in refused({"epoch": 0})
    assert run(*install, "--discard-later-records") == 0
    assert run(*install) == 0, "it is finished"
    assert run("uninstall", folder.root) == 0
    origin.unlink()
    assert run(*install, "--cluster-id", str(folder.cluster_id)) == 0
