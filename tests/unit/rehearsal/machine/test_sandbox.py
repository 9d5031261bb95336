from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_rollout.base.errors import UserError
from kafka_rollout.cli.app import app
from kafka_rollout.nodes.runtimes.local_process import node_processes
from kafka_rollout.rehearsal.machine.sandbox import (
    Leftovers,
    Sandbox,
    find_foreign_directories,
    new_sandbox,
    remove_leftovers,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from kafka_rollout.nodes.runtimes.local_process import node_processes
from kafka_rollout.rehearsal.machine.sandbox import new_sandbox
with new_sandbox(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""
RUNS = """
import sys
from pathlib import Path
from kafka_rollout.nodes.runtimes.local_process import node_processes
from kafka_rollout.rehearsal.machine.sandbox import new_sandbox
with new_sandbox(Path(sys.argv[1])) as sandbox:
    print(sandbox.path, flush=True)
    sys.stdin.read()
"""


@contextmanager
def node_of(home: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the command line of a node whose home this is."""
    words = [sys.executable, "-c", "import time; time.sleep(600)", *options]
    process = subprocess.Popen([*words, "kafka.Kafka", str(home / "server.properties")], cwd="/")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def killed_rehearsal(below: Path) -> Path:
    before = set(below.iterdir())
    subprocess.run([sys.executable, "-c", KILLED, str(below)], check=False)
    (left,) = set(below.iterdir()) - before
    return left


def clean(below: Path) -> str:
    result = CliRunner().invoke(app, ["clean", "--folder", str(below)])
    assert result.exit_code == 0, result.output
    return result.output


# Names that operators give to their own folders, and one that looks exactly like that of a sandbox.
@pytest.mark.parametrize("name", ["rehearsal-2026-11", "rehearsal-env", "rehearsal-notes", "rehearsal-1-aaaaaaaa"])
def test_a_folder_that_the_tool_did_not_make_survives_with_its_process(tmp_path: Path, name: str) -> None:
    home = tmp_path / name / "kafka-1"
    home.mkdir(parents=True)
    (home / "server.properties").write_text("node.id=1")
    with node_of(home) as process:
        with new_sandbox(tmp_path):
            pass
        output = clean(tmp_path)
        assert process.poll() is None
    assert (home / "server.properties").read_text() == "node.id=1"
    assert "Removed 0 copies" in output


def test_a_copy_of_a_leftover_is_not_the_folder_that_the_tool_made(tmp_path: Path) -> None:
    left, copy = killed_rehearsal(tmp_path), tmp_path / "rehearsal-1-aaaaaaaa"
    shutil.copytree(left, copy)
    output = " ".join(clean(tmp_path).split())
    assert not left.exists()
    assert copy.exists()
    assert "was not made at this place" in output
    assert "Removed 1 copy" in output


def test_the_copy_of_a_running_rehearsal_in_another_process_namespace_stays(tmp_path: Path) -> None:
    options = ["--pid", "--fork"] if os.geteuid() == 0 else ["--map-root-user", "--pid", "--fork"]
    command = ["unshare", *options, "--", sys.executable, "-c", RUNS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        path = Path(running.stdout.readline().strip())
        output = " ".join(clean(tmp_path).split())
        assert path.is_dir()
        assert "a rehearsal uses it" in output
    assert not path.exists()


def test_a_leftover_that_has_or_is_in_a_named_folder_stays(tmp_path: Path) -> None:
    left = killed_rehearsal(tmp_path)
    (left / "backup").mkdir()
    for keep in (left / "backup", left, tmp_path):
        found = remove_leftovers(tmp_path, keep=[keep])
        assert not found.removed
        assert left.is_dir()
        assert "named by this command" in found.left[0]
    assert remove_leftovers(tmp_path).removed == (left,)


def test_only_the_nodes_of_a_leftover_are_killed(tmp_path: Path) -> None:
    """A process names the folder: of this sandbox is one that also has its mark."""
    left = killed_rehearsal(tmp_path)
    home = left / "nodes" / "kafka-1"
    with node_of(home) as foreign, node_of(home, Sandbox(left).mark) as own:
        assert remove_leftovers(tmp_path).removed == (left,)
        assert foreign.poll() is None
        assert own.wait(10) < 0


def test_a_leftover_with_a_running_node_that_is_not_visible_here_stays(tmp_path: Path) -> None:
    """A node holds the lock of its data directory, also one of another process namespace."""
    left = killed_rehearsal(tmp_path)
    data = left / "nodes" / "kafka-1" / "data" / "0"
    data.mkdir(parents=True)
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(data / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        found = remove_leftovers(tmp_path)
        assert not found.removed
        assert data.is_dir()
        assert "uses its data" in found.left[0]
        holder.communicate(b"\n")
    assert remove_leftovers(tmp_path).removed == (left,)


def test_a_copy_on_a_file_system_without_locks_is_removed_by_its_owner_and_else_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node starts there, because it cannot lock its directory (LogManager.lockLogDirs)."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(fcntl, "lockf", refused)
    with new_sandbox(tmp_path) as sandbox:
        data = sandbox.path / "nodes" / "kafka-1" / "data" / "0"
        data.mkdir(parents=True)
        (data / ".lock").touch()
    assert not sandbox.path.exists()
    left = killed_rehearsal(tmp_path)
    assert "No locks available" in remove_leftovers(tmp_path).left[0]
    assert left.is_dir()


def test_a_sandbox_has_mode_0700_and_is_gone_afterwards(tmp_path: Path) -> None:
    with new_sandbox(tmp_path / "below") as sandbox:
        assert stat.S_IMODE(sandbox.path.stat().st_mode) == 0o700
        assert not remove_leftovers(tmp_path / "below").removed, "it is in use"
        assert sandbox.path.is_dir()
    assert list((tmp_path / "below").iterdir()) == []


def test_the_leftover_of_a_killed_rehearsal_is_removed_by_the_next_one(tmp_path: Path) -> None:
    left = killed_rehearsal(tmp_path)
    with new_sandbox(tmp_path) as sandbox:
        assert list(tmp_path.iterdir()) == [sandbox.path]
    assert not left.exists()


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rehearsal-notes").write_text("mine")
    (tmp_path / "data").mkdir()
    assert remove_leftovers(tmp_path) == Leftovers()
    assert {path.name for path in tmp_path.iterdir()} == {"rehearsal-notes", "data"}


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be created"), new_sandbox(tmp_path / "file"):
        pytest.fail("there is no sandbox")


def config(*directories: Path) -> dict[str, str]:
    return {"log.dirs": ",".join(map(str, directories[:-1])), "metadata.log.dir": str(directories[-1])}


def test_directories_in_the_sandbox_are_its_own(tmp_path: Path) -> None:
    box, real = tmp_path / "box", tmp_path / "real"
    assert find_foreign_directories(config(box / "0", box / "1"), box, [str(real)]) == ()


def test_a_real_directory_is_found_after_symbolic_links_are_resolved(tmp_path: Path) -> None:
    box, real = tmp_path / "box", tmp_path / "real"
    box.mkdir()
    real.mkdir()
    (box / "1").symlink_to(real)
    (sentence,) = find_foreign_directories(config(box / "0", box / "1"), box, [str(real)])
    assert sentence == f"{box / '1'} is not in the sandbox {box}."


def test_a_metadata_directory_that_was_not_rewritten_is_found(tmp_path: Path) -> None:
    box, real = tmp_path / "box", tmp_path / "real"
    (sentence,) = find_foreign_directories(config(box / "0", real / "metadata"), box, [str(real)])
    assert f"{real / 'metadata'} is not in the sandbox" in sentence


@pytest.mark.parametrize(("real", "box"), [("a", "a/b"), ("a/b", "a"), ("a", "a")])
def test_a_sandbox_within_or_around_a_real_directory_is_refused(tmp_path: Path, real: str, box: str) -> None:
    found = find_foreign_directories(
        config(tmp_path / box / "0", tmp_path / box / "1"), tmp_path / box, [str(tmp_path / real)]
    )
    assert "contain each other" in found[0]


def test_a_link_that_looks_like_a_leftover_is_not_followed(tmp_path: Path) -> None:
    """A folder of --folder can be shared, such as /tmp."""
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    victim.mkdir()
    shared.mkdir()
    (victim / "file").write_text("of another user")
    (shared / "rehearsal-1-aaaaaaaa").symlink_to(victim)
    assert not remove_leftovers(shared).removed
    assert (victim / "file").exists()


def test_a_node_of_another_process_namespace_is_none_of_this_machine(tmp_path: Path) -> None:
    """Its path is that of a file in a container."""
    options = ["--pid", "--fork"] if os.geteuid() == 0 else ["--map-root-user", "--pid", "--fork"]
    code = "print(flush=True); input()"
    node = [sys.executable, "-c", code, "kafka.Kafka", str(tmp_path / "server.properties")]
    for within, found in (((), 1), (("unshare", *options, "--"), 0)):
        with subprocess.Popen([*within, *node], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            of_node = [one for one in node_processes(tmp_path).values() if one.name() != "unshare"]
            process.communicate(b"\n")
        assert len(of_node) == found
