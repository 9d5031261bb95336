"""Upgrades from each line to 4.x with finalized levels: nodes that an old controller registered restart once more."""

from __future__ import annotations

import json
import re
import signal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.features.registrations import keeps_registrations
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import RegistrationsRead, Started, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.shell import APPROVED, QUICK, Shell
from tests.releases import NEWEST
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

# The newest release of each line. Each line and each layout goes to both targets.
SOURCES = ("3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2")
LAYOUTS = ("combined", "mixed", "separate")
TARGETS = ("4.3.1", NEWEST)
MATRIX = [
    (source, layout, TARGETS[(SOURCES.index(source) + LAYOUTS.index(layout)) % 2])
    for source, layout in product(SOURCES, LAYOUTS)
]


def finalize(shell: Shell, source: str, target: str) -> tuple[dict[str, Any], dict[int, list[str]]]:
    """Upgrade with test traffic; return the report, and node id → release steps of its starts."""
    roll = ("upgrade", "--cluster", "shell", "--to", target, *QUICK, "--finalize", "after-approval", "--traffic")
    rolled = shell(*roll, "--pin-min-insync-replicas", "--no-scan", *APPROVED)
    assert rolled.returncode == 0, rolled.stderr
    report = json.loads(Path(rolled.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert report["traffic"]["ok"]
    assert report["traffic"]["acknowledged"] > 0
    assert report["snapshot"]["proved"]
    levels = report["features"]["after"]
    assert (levels["group.version"], levels["transaction.version"]) == (1, 2), levels
    assert shell("verify", "--cluster", "shell").returncode == 0
    steps: dict[int, list[str]] = {}
    for event in events_of(shell.events(shell.newest_run()), Started):
        steps.setdefault(event.node_id, []).append(event.release_step)
    return report, steps


@pytest.mark.full
@pytest.mark.parametrize(("source", "layout", "target"), MATRIX)
def test_every_line_is_finalized_on_4(
    source: str, layout: str, target: str, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """3.7 and 3.8 with combined nodes: a controller before 3.9 drops the ranges that the levels need."""
    cluster = make_cluster(source, name="shell", layout=layout, extra_config=QUICK_SNAPSHOTS)
    shell = Shell(tmp_path, cluster)

    report, starts = finalize(shell, source, target)

    again = f"{target}-to-{target}"
    restarted = {node_id for node_id, steps in starts.items() if again in steps}
    planned = {one["node_id"] for step in report["release_steps"] if step["key"] == again for one in step["order"]}
    combined = {node.node_id for node in cluster.spec.nodes if node.is_broker and node.is_controller}
    level = report["features"]["before"]["metadata.version"]
    can_lack = Release.parse(source) < Release(3, 9, 0) and keeps_registrations(level)
    assert restarted <= planned <= (combined if can_lack else set()), (restarted, planned)
    seen = events_of(shell.events(shell.newest_run()), RegistrationsRead)
    assert restarted == {node_id for event in seen for node_id in event.seen.lacking}, "none that was registered right"
    if can_lack and layout == "combined":
        first = next(event.node_id for event in events_of(shell.events(shell.newest_run()), Started))
        assert first in restarted
    assert all(steps.count(again) <= 1 for steps in starts.values())


@pytest.mark.full
def test_levels_raised_by_hand_later_need_the_restart_that_the_refusal_gives(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, make_cluster("3.8.1", name="shell", layout="combined", extra_config=QUICK_SNAPSHOTS))
    rolled = shell(
        "upgrade", "--cluster", "shell", "--to", NEWEST, *QUICK, "--finalize", "later", "--no-scan", *APPROVED
    )
    assert rolled.returncode == 0, rolled.stderr
    planned = json.loads(Path(rolled.stdout.splitlines()[-1]).read_text())
    assert "SECOND-RESTART-LATER" in {finding["code"] for finding in planned["findings"]}
    node_ids = {node.node_id for node in shell.cluster.spec.nodes}

    refused = shell("features", "set", "--action", "upgrade-all", "--cluster", "shell", "--dry-run", "--json")

    assert refused.returncode == 3, refused.stderr
    findings = [one for one in json.loads(refused.stdout)["findings"] if one["severity"] == "blocker"]
    (finding,) = findings
    assert finding["code"] == "REGISTRATION-DROPPED-RANGES"
    command = re.search(r"`kafka-rollout (restart [^`]*)`", finding["remedy"])
    assert command is not None, finding["remedy"]
    named = {int(number) for number in re.findall(r"--node (\d+)", command[1])}
    assert 1 <= len(named) < len(node_ids), "the last controller registered with a new one"
    restarted = shell(*command[1].split(), *QUICK, *APPROVED)
    assert restarted.returncode == 0, restarted.stderr
    raised = shell("features", "set", "--action", "upgrade-all", "--cluster", "shell", *APPROVED, "--json")
    assert raised.returncode == 0, raised.stderr
    results = {one["feature"]: one["result"] for one in json.loads(raised.stdout)["results"]}
    assert set(results.values()) == {"OK"}, results
    assert results.keys() >= {"metadata.version", "group.version", "share.version"}


@pytest.mark.full
def test_a_run_killed_between_the_two_restarts_of_a_node_continues(make_cluster: MakeCluster, tmp_path: Path) -> None:
    shell = Shell(tmp_path, make_cluster("3.8.1", name="shell", layout="combined", extra_config=QUICK_SNAPSHOTS))
    roll = ("upgrade", "--cluster", "shell", "--to", "4.3.1", *QUICK, "--finalize", "after-approval", "--no-scan")
    process = shell.start(*roll, "--pin-min-insync-replicas", *APPROVED)
    try:
        wait_until(lambda: shell.count_events(Stopping) >= 4, 900, every_s=0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    run = shell.newest_run()
    *_, last = events_of(shell.events(run), Stopping)
    assert last.release_step == "4.3.1-to-4.3.1"

    again = shell(*roll, "--pin-min-insync-replicas", *APPROVED, "--run", run.run_id)

    assert again.returncode == 0, again.stderr
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    steps = [(event.release_step, event.node_id) for event in events_of(shell.events(run), Started)]
    assert len(steps) == len(set(steps)), steps
    assert ("4.3.1-to-4.3.1", last.node_id) in steps
    assert report["features"]["after"]["group.version"] == 1
