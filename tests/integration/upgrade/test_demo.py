"""The demo as a user runs it: from nothing to a report, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_rollout.nodes.runtimes.local_process import node_processes
from tools.demo.folder import demo_clean

pytestmark = pytest.mark.integration

PROGRAM = """
import sys
from pathlib import Path
from tools.demo.run import run_demo
from kafka_rollout.releases.facts import Release
try:
    code = run_demo(Release.parse(sys.argv[1]), Release.parse(sys.argv[2]), approve="auto", below=Path(sys.argv[3]))
except KeyboardInterrupt:
    code = 130
sys.exit(code)
"""


def start(source: str, target: str, below: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, source, target, str(below)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("number", "nodes"),
    [
        pytest.param(signal.SIGINT, 3, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 9, id="SIGTERM in the rehearsal", marks=pytest.mark.full),
    ],
)
def test_an_interrupted_demo_takes_down_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, nodes: int
) -> None:
    """The demo has six nodes, the copy for its rehearsal six more."""
    monkeypatch.setenv("KAFKA_ROLLOUT_REHEARSE", "1")
    copies = "*/*/rehearsals/*"
    demo = start("3.9.1", "4.3.1", tmp_path)
    try:
        deadline = time.monotonic() + 1200  # a busy machine
        while (running := len(node_processes(tmp_path))) < nodes and demo.poll() is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        is_rehearsing = any(tmp_path.glob(copies))
        demo.send_signal(number)
        output, _ = demo.communicate(timeout=300)
        assert running >= nodes, output
        assert is_rehearsing == (nodes > 6), output
        assert demo.returncode == 130, output
        assert "stopping everything" in output
        assert node_processes(tmp_path) == {}
        assert not any(tmp_path.glob(copies))
    finally:
        demo.kill()
        demo_clean(tmp_path)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_an_unattended_demo_goes_down_as_well(tmp_path: Path) -> None:
    demo = start("4.3.1", "4.0.1", tmp_path)
    try:
        output, _ = demo.communicate(timeout=1700)
        assert demo.returncode == 0, output
        report = json.loads(Path(output.splitlines()[-1]).read_text())
        assert (report["outcome"], report["direction"], report["traffic"]["ok"]) == ("finished", "downgrade", True)
        assert report["features"]["before"]["metadata.version"] == 29
        assert report["features"]["after"]["metadata.version"] == 25
        assert node_processes(tmp_path) == {}
    finally:
        demo.kill()
        demo_clean(tmp_path)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_two_unattended_demos_side_by_side_finish_without_loss_and_leave_nothing(tmp_path: Path) -> None:
    """Different roads at the same time: the plain one, and the one that leads through a tolerant release."""
    folders = (tmp_path / "one", tmp_path / "two")
    demos = [start("3.9.1", "4.3.1", folders[0]), start("3.4.0", "4.3.1", folders[1])]
    try:
        for demo, folder in zip(demos, folders, strict=True):
            output, _ = demo.communicate(timeout=1700)
            assert demo.returncode == 0, output
            path = Path(output.splitlines()[-1])
            assert path.is_relative_to(folder)
            report = json.loads(path.read_text())
            assert report["outcome"] == "finished"
            assert report["traffic"]["ok"]
            assert all(set(node["starts_per_release"].values()) == {1} for node in report["nodes"])
            assert node_processes(folder) == {}
    finally:
        for demo, folder in zip(demos, folders, strict=True):
            demo.kill()
            demo_clean(folder)
