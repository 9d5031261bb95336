"""A folder tree is removed by one module, which wants a proof that this project made it; a process is killed where it
is known whose it is."""

from __future__ import annotations

import re

import pytest

from tests.architecture.rooms import PACKAGE
from tests.paths import ROOT

FOLDERS = (PACKAGE, ROOT / "spark_jobs", ROOT / "consumer", ROOT / "dags", ROOT / "tools" / "derivation")
TREES = re.compile(r"rmtree|\brm -r|removedirs|recursive=True|os\.walk\(.*topdown=False")
REMOVERS = {
    "base/system/own_folders.py",  # a marker with the inode, or a name that this project drew
    "run/store/artifacts.py",  # the same name in a remote store
    "nodes/runtimes/hosts/installing.py",  # on a host: the draft with the suffix of this project
    "model/package_managers.py",  # on a host: the folder that mktemp made in the same line
}
KILLS = re.compile(r"\.kill\(|killpg\(|\.terminate\(|send_signal\(|os\.kill")
KILLERS = {
    "coordinator_logs/spark/submit.py",  # its own child and the session of it
    "nodes/outside.py",  # its own child and the session of it
    "nodes/runtimes/local_process.py",  # psutil.Process: the node of a home, in this process namespace
    "rehearsal/machine/local.py",  # its own child
    "releases/jvm/jvm.py",  # its own child
    "traffic/processes/of_run.py",  # its command line has the random id of the process
}


def found(pattern: re.Pattern[str]) -> set[str]:
    paths = [path for folder in FOLDERS for path in folder.rglob("*.py") if pattern.search(path.read_text())]
    return {str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT)) for path in paths}


def test_no_other_module_removes_a_tree() -> None:
    assert found(TREES) == REMOVERS


def test_no_other_module_kills_a_process() -> None:
    assert found(KILLS) == KILLERS


@pytest.mark.parametrize("line", ["shutil.rmtree(path)", "rmtree(path)", "run('rm -rf x')", "fs.rm(x, recursive=True)"])
def test_each_way_to_remove_a_tree_is_seen(line: str) -> None:
    assert TREES.search(line)


@pytest.mark.parametrize("line", ["process.kill()", "os.killpg(1, 9)", "os.kill(1, 9)", "one.terminate()"])
def test_each_way_to_kill_is_seen(line: str) -> None:
    assert KILLS.search(line)
