"""The shell's roll on a real cluster: killed in the middle of node 2 and resumed, started once more, taken back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.adapters.inventory import dump_cluster
from kafka_rollout.adapters.local_cluster import LocalCluster
from kafka_rollout.adapters.release_cache import ReleaseCache
from kafka_rollout.adapters.settings import PROJECT_ROOT, Settings
from kafka_rollout.domain.releases import Release
from tests.breaking import BREAKS_WHERE_A_FILE_IS_IN_THE_WAY
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

R391, R431 = Release(3, 9, 1), Release(4, 3, 1)
APPROVED = ("--approve-as", "alice", "--reason", "a test", "--yes")
QUICK = ("--soak", "0", "--looks", "2", "--interval", "0.5")


class Shell:
    """`kafka-rollout` with the places of one test."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.home = folder / "home"
        self.environment = {
            **os.environ,
            "KAFKA_ROLLOUT_HOME": str(self.home),
            "KAFKA_ROLLOUT_CLUSTERS": str(cluster.inventory_path.parent),
            "PYTHONPATH": str(PROJECT_ROOT / "plugins"),
            "COLUMNS": "200",
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", "from kafka_rollout.cli import main; main()", *words]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "killed.log").open("wb") as log:
            return subprocess.Popen(
                self.command(*words), env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def events(self, run: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]

    def newest_run(self) -> Path:
        return max((self.home / "runs" / self.cluster.spec.name).iterdir(), key=lambda run: run.name)


def starts(cluster: LocalCluster) -> dict[int, list[str]]:
    """Releases by node, the start that made the cluster left out."""
    return {
        node.node_id: [str(start.release) for start in cluster.runtime.starts(node)][1:] for node in cluster.spec.nodes
    }


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    settings = Settings.from_environment()
    cluster = LocalCluster.create(
        tmp_path,
        "shell",
        R391,
        cache=ReleaseCache(settings.cache, settings.include),
        layout="combined",
        extra_config={"metadata.log.max.snapshot.interval.ms": "5000"},
    )
    try:
        yield Shell(tmp_path, cluster)
    finally:
        cluster.stop()


def test_a_roll_killed_in_node_two_is_resumed_and_finished(shell: Shell) -> None:
    roll = ("roll", "--cluster", "shell", "--to", "4.3.1", *QUICK, "--finalize", "after-approval", "--no-scan")
    process = shell.start(*roll, *APPROVED)
    try:
        wait_until(lambda: _stopped(shell) == 2, 300, every_s=0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    run = shell.newest_run()
    first = next(e["node_id"] for e in shell.events(run) if e["kind"] == "started")

    again = shell(*roll, *APPROVED, "--ledger", "--run", run.name)

    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert starts(shell.cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}
    assert [e["node_id"] for e in shell.events(run) if e["kind"] == "stopping"].count(first) == 1
    assert report["features"]["before"] == {"metadata.version": 21}
    assert report["features"]["after"]["metadata.version"] == 30
    assert {(seen["prometheus"], seen["jolokia"]) for seen in report["current_metadata_version"]} == {(30, 30)}
    assert all(gate["state"] == "held" for gate in report["gates"]), report["gates"]
    assert report["snapshot"]["proved"]
    assert report["ledger"]["ok"]
    assert report["ledger"]["acknowledged"] > 0
    of_ledger = {each["group"].rsplit("-", 1)[-1]: each for each in report["groups"]["groups"] if each["partitions"]}
    assert of_ledger["classic"]["partitions"] == 12
    assert of_ledger["classic"]["watched_s"] > 0
    assert shell("verify", "--cluster", "shell").returncode == 0

    refused = shell("roll-back", "--cluster", "shell", "--run", run.name, *APPROVED)
    assert refused.returncode == 3
    assert "3.9.1 can no longer run this cluster" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert starts(shell.cluster) == {1: ["4.3.1"], 2: ["4.3.1"], 3: ["4.3.1"]}


def _stopped(shell: Shell) -> int:
    runs = shell.home / "runs" / "shell"
    if not runs.is_dir() or not (shell.newest_run() / "events.jsonl").exists():
        return 0
    return (shell.newest_run() / "events.jsonl").read_text().count('"kind": "stopping"')


def test_a_node_that_does_not_start_is_mended_and_started_once_more_and_the_roll_can_still_go_back(
    shell: Shell,
) -> None:
    spec = replace(shell.cluster.spec, release_overrides={"4.3.1": BREAKS_WHERE_A_FILE_IS_IN_THE_WAY})
    shell.cluster.inventory_path.write_text(dump_cluster(spec))
    plan = shell("plan", "--cluster", "shell", "--to", "4.3.1", "--json")
    assert plan.returncode == 0, plan.stderr
    made = json.loads(plan.stdout)
    second, third = (made["plan"]["hops"][0]["order"][place]["node_id"] for place in (1, 2))
    in_the_way = Path(spec.node(second).directory or "") / "figures"
    in_the_way.write_text("")
    this_run = ("-c", "shell", "--run", made["run"])

    rolled = shell("roll", *this_run, "--to", "4.3.1", *QUICK, "--timeout", "25", *APPROVED, "--no-scan")

    assert rolled.returncode == 3, rolled.stderr
    assert f"after node {second} failed" in rolled.stderr
    assert f"kafka-rollout retry --cluster shell --run {made['run']}" in rolled.stderr
    in_the_way.unlink()
    again = shell("retry", *this_run, *QUICK, *APPROVED)
    assert again.returncode == 0, again.stderr
    assert starts(shell.cluster)[second] == ["4.3.1", "4.3.1"]
    assert starts(shell.cluster)[third] == []
    back = shell("roll-back", *this_run, *QUICK, *APPROVED)
    assert back.returncode == 0, back.stderr
    report = json.loads(Path(back.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "rolled_back", report["sentence"]
    assert starts(shell.cluster)[third] == []


def test_a_configuration_that_is_broken_after_the_plan_is_found_before_the_node_goes_down(shell: Shell) -> None:
    """The process that runs never reads the file again: only the next one would die of it."""
    plan = shell("plan", "--cluster", "shell", "--to", "4.3.1", "--json")
    assert plan.returncode == 0, plan.stderr
    made = json.loads(plan.stdout)
    first = made["plan"]["hops"][0]["order"][0]["node_id"]
    properties = Path(shell.cluster.spec.node(first).directory or "") / "server.properties"
    properties.write_text(properties.read_text() + "\nprocess.roles=broker,controller,nonsense\n")

    rolled = shell("roll", "-c", "shell", "--run", made["run"], "--to", "4.3.1", *QUICK, *APPROVED, "--no-scan")

    assert rolled.returncode == 3, rolled.stderr
    assert f"The approval is void, because of what was not there when it was given: CONFIG-REJECTED node {first}" in (
        " ".join(rolled.stderr.split())
    )
    assert all(each == [] for each in starts(shell.cluster).values())
