"""`kafka-rollout metadata snapshot|install` on the kept log of a real node; no broker runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kafka_rollout.metadata_log.disk.folder import MetadataFolder, open_folder
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
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
    features = [word for name in LOWER for word in ("--feature", f"{name}=0")]
    snapshot = written(folder, tmp_path / "out", "--to-level", 20, "--release", "3.9.1", *features)
    assert snapshot.name == f"{57:020}-{1 + EPOCHS_ABOVE:010}.checkpoint"
    printed = capsys.readouterr()
    assert (
        "ends at offset 57 in epoch 1. Logs of node 1 compared, voters: node 1. Epoch of the snapshot: 1000001."
        in printed.err
    )
    told = " ".join(printed.out.split())
    for name in LOWER:
        assert f"The feature level of {name} is lost" in told
    assert "orders-0 loses its eligible leader replicas: 1." in told

    def scanned() -> dict[str, object]:
        capsys.readouterr()
        run("scan", folder.root, "--release", "3.9.1", "--json")
        found = dict(json.loads(capsys.readouterr().out))
        assert "failures" in found, found
        return found

    failures = scanned()["failures"]
    assert isinstance(failures, list)
    assert [one["where"] for one in failures] == ["bootstrap", "snapshot"]
    assert run("install", folder.root, "--snapshot", snapshot, "--release", "3.9.1") == 0
    found = scanned()
    assert (found["verdict"], found["starts_at"]) == ("replays", f"snapshot {snapshot.name}")
    assert run("install", folder.root, "--undo") == 0
    assert whole(folder) == before


def test_bad_input_is_one_sentence_and_changes_nothing(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = written(folder, tmp_path / "out", "--to-level", 29, "--epoch", 5 + EPOCHS_ABOVE)
    cut = Path(shutil.copy(snapshot, tmp_path / snapshot.name))
    os.truncate(cut, 700)
    old = Path(shutil.copy(snapshot, tmp_path / f"{57:020}-{1:010}.checkpoint"))
    shutil.copy(f"{snapshot}.origin.json", f"{old}.origin.json")
    before = whole(folder)
    to_421, lower = ("--release", "4.2.1"), ("--to-level", 29, "--out", tmp_path / "x")
    capsys.readouterr()
    for code, command, arguments, said in (
        (3, "install", ("--snapshot", cut, *to_421), "is damaged or not complete"),
        (2, "install", ("--snapshot", tmp_path / "none", *to_421), "cannot be read"),
        (2, "install", ("--snapshot", snapshot, *to_421, "--cluster-id", "other"), "not of cluster other"),
        (3, "install", ("--snapshot", snapshot, "--release", "4.0.1"), "cannot load the snapshot"),
        (3, "install", ("--snapshot", old, *to_421), "knows epoch 1"),
        (2, "install", ("--undo",), "no installation to undo"),
        (2, "install", ("--undo", "--snapshot", snapshot), "restores what was there before"),
        (2, "install", ("--snapshot", snapshot), "and the release that must start from it"),
        (2, "scan", (), "A scan needs the release"),
        (2, "scan", ("--release", "4.2.1", "--classes", "4.2.1"), "--classes computes the losses"),
        (2, "snapshot", (*lower, "--cluster-id", "other"), "not of cluster other"),
        (2, "snapshot", (*lower, "--epoch", 0), "would be older"),
        (2, "snapshot", (*lower, "--feature", "gruop.version:0"), "not a feature"),
        (2, "snapshot", (*lower, "--feature", "group.version:2"), "only lowers"),
        (2, "snapshot", (*lower, "--feature", "kraft.version:0"), "be lowered"),
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
    assert run("snapshot", folder.root, "--log-dir", other, "--to-level", 29, "--out", tmp_path / "out") == 2
    assert "These logs belong to different clusters" in capsys.readouterr().err


def test_a_snapshot_needs_the_logs_of_a_majority_and_is_above_every_epoch_that_they_know(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def quorum(root: Path, **values: object) -> None:
        path = root / "__cluster_metadata-0" / "quorum-state"
        voters = [{"voterId": voter} for voter in (1, 2, 3)]
        path.write_text(json.dumps({**json.loads(path.read_text()), "currentVoters": voters, **values}))

    other = shutil.copytree(folder.root, tmp_path / "node-2")
    properties = other / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    quorum(folder.root)
    quorum(other, leaderEpoch=7)
    to_29 = ("--to-level", 29, "--out", tmp_path / "out")
    assert run("snapshot", folder.root, *to_29) == 3
    assert "The metadata logs of 1 of 3 voters are available. 2 are needed" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
    assert run("snapshot", folder.root, "--log-dir", other, *to_29) == 0
    assert "Logs of nodes 1, 2 compared, voters: nodes 1, 2, 3." in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").glob("*.checkpoint")] == [
        f"{57:020}-{7 + EPOCHS_ABOVE:010}.checkpoint"
    ]


def test_two_directories_of_one_node_are_not_compared(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk and its backup: whichever is named last would be taken."""
    copy = shutil.copytree(folder.root, tmp_path / "copy")
    to_29 = ("--to-level", 29, "--out", tmp_path / "out")
    assert run("snapshot", folder.root, "--log-dir", copy, *to_29, "--epoch", 5 + EPOCHS_ABOVE) == 2
    assert "--epoch is for one directory." in capsys.readouterr().err
    assert run("snapshot", folder.root, "--log-dir", copy, *to_29) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"{folder.root} and {copy} are both of node 1" in told


@pytest.mark.parametrize("words", ["snapshot --to-level 29 --out x", "install --undo"])
def test_a_folder_with_two_logs_is_not_a_nodes(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    copy = shutil.copytree(folder.root, tmp_path / "a-old")
    command, *options = words.split()
    assert run(command, tmp_path, *options) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "has 2 metadata logs" in told
    assert str(copy) in told
    assert str(folder.root) in told


def test_a_snapshot_of_another_log_is_not_installed(
    folder: MetadataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = written(folder, tmp_path / "out", "--to-level", 29, "--epoch", 5 + EPOCHS_ABOVE)
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
    assert run("install", folder.root, "--undo") == 0
    origin.unlink()
    assert run(*install, "--cluster-id", str(folder.cluster_id)) == 0
