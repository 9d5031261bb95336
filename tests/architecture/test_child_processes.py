"""Each process starts in a folder that is named, and Python by one helper, without the current folder in sys.path."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, nodes_of
from tests.paths import ROOT

HELPER = PACKAGE / "base" / "system" / "python.py"
FOLDERS = ("plugins", "spark_jobs", "dags", "data_source", "consumer", "tools/derivation")
OURS = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
STARTS = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell"}
OTHERS = {"system", "popen", "execv", "execve", "execvp", "spawnv", "posix_spawn", "getoutput", "getstatusoutput"}


def problems(source: str) -> Iterator[str]:
    """What a file does that the helper, or a named folder, would have to do."""
    for node in nodes_of(source):
        match node:
            case ast.Attribute(value=ast.Name("sys"), attr="executable"):
                yield f"line {node.lineno}: sys.executable"
            case ast.ImportFrom(module="sys" | "subprocess" | "multiprocessing" | "concurrent.futures.process"):
                yield f"line {node.lineno}: names of {node.module} are imported by themselves"
            case ast.Import(names=names) if {"multiprocessing"} & {one.name.partition(".")[0] for one in names}:
                yield f"line {node.lineno}: multiprocessing"
            case ast.Attribute(attr="ProcessPoolExecutor"):
                yield f"line {node.lineno}: ProcessPoolExecutor"
            case ast.Call(func=ast.Attribute(value=ast.Name("os" | "subprocess"), attr=name)) if name in OTHERS:
                yield f"line {node.lineno}: {name}"
            case ast.Call(func=ast.Attribute(value=ast.Name("subprocess" | "asyncio"), attr=name), keywords=keywords):
                if name in STARTS and "cwd" not in {one.arg for one in keywords}:
                    yield f"line {node.lineno}: {name} without cwd"


def test_a_process_has_a_named_folder_and_python_its_helper() -> None:
    found = {str(path.relative_to(ROOT)): list(problems(path.read_text())) for path in OURS if path != HELPER}
    assert not {path: lines for path, lines in found.items() if lines}
    assert [line.partition(": ")[2] for line in problems(HELPER.read_text())] == ["sys.executable"]


@pytest.mark.parametrize(
    "line",
    [
        "import sys\nwords = [sys.executable, '-m', 'x']",
        "from sys import executable",
        "from subprocess import run",
        "import subprocess\nsubprocess.run(['java'])",
        "import subprocess\nsubprocess.Popen(['java'], env={})",
        "import multiprocessing",
        "import os\nos.system('java')",
        "import concurrent.futures as f\nf.ProcessPoolExecutor()",
    ],
)
def test_each_way_past_the_helper_is_seen(line: str) -> None:
    assert list(problems(line))


def test_a_process_in_a_named_folder_is_left_alone() -> None:
    assert not list(problems("import subprocess\nsubprocess.run(['java'], cwd='/')"))


def test_the_end_of_a_process_is_awaited_by_one_function() -> None:
    """`wait_for_exit`: what psutil has for it fails if a thread has got the id of a process that ended."""
    paths = [path for folder in (*FOLDERS, "tests", "tools", "bench") for path in (ROOT / folder).rglob("*.py")]
    calls = {path for path in paths for node in nodes_of(path.read_text()) if _awaits_by_psutil(node)}
    assert calls == set()


def _awaits_by_psutil(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name("psutil"), attr="wait_procs" | "Popen"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(ast.Name("psutil"))), attr="wait")):
            return True
    return False


def test_each_way_to_await_by_psutil_is_seen() -> None:
    lines = ("psutil.wait_procs([one])", "psutil.Process(pid).wait(1)", "psutil.Popen(words)")
    assert all(any(map(_awaits_by_psutil, nodes_of(line))) for line in lines)
