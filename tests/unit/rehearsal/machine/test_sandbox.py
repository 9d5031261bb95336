from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.rehearsal.machine.sandbox import find_foreign_directories, new_sandbox, remove_leftovers

KILLED = """
import os, signal, sys
from pathlib import Path
from kafka_rollout.rehearsal.machine.sandbox import new_sandbox
with new_sandbox(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_sandbox_has_mode_0700_and_is_gone_afterwards(tmp_path: Path) -> None:
    with new_sandbox(tmp_path / "below") as sandbox:
        assert stat.S_IMODE(sandbox.path.stat().st_mode) == 0o700
        assert remove_leftovers(tmp_path / "below") == 0, "it is in use"
        assert sandbox.path.is_dir()
    assert list((tmp_path / "below").iterdir()) == []


def test_the_leftover_of_a_killed_rehearsal_is_removed_by_the_next_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with new_sandbox(tmp_path) as sandbox:
        assert list(tmp_path.iterdir()) == [sandbox.path]
    assert not left.exists()


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rehearsal-notes").write_text("mine")
    (tmp_path / "data").mkdir()
    assert remove_leftovers(tmp_path) == 0
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
    (shared / "rehearsal-1-1-aa").symlink_to(victim)
    assert remove_leftovers(shared) == 0
    assert (victim / "file").exists()
