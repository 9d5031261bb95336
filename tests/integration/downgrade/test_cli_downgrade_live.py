"""The shell's live downgrade on a real cluster: killed with the controllers stopped, called again, and rolled."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.run.events import events_of, has
from kafka_rollout.run.step_events import (
    GateChecked,
    LiveFailed,
    LiveLowered,
    OfflineInstalled,
    OfflineStopping,
    OfflineUndoing,
)
from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_live_downgrade import traffic
from tests.integration.harness.airflow.server import all_run, finalized
from tests.integration.harness.cluster_contents import (
    WITH_ACLS,
    assert_clients_data_is_kept,
    contents,
    contents_kept,
    fill,
)
from tests.integration.harness.faults.kill_points import KillPoints, around
from tests.integration.harness.logs.many_records import many_records
from tests.integration.harness.shell import APPROVED, KILLED_IN_AN_INSTALLATION, QUICK, Shell, later_starts
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

LEVELS = {"4.3.1": 30, "4.2.1": 29, "4.0.1": 25}


def test_a_live_downgrade_killed_with_the_controllers_stopped_ends_right_when_it_is_called_again(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="served", layout="separate", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    shell = Shell(tmp_path, cluster)
    opens = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=4)
    spec = replace(cluster.spec, window=f"{opens:%M %H} * * * 6h UTC")
    cluster.inventory_path.write_text(dump_cluster(spec))
    down = ("downgrade", "--cluster", "served", "--to", "4.2.1", "--lowering", "live")
    down = (*down, *QUICK, *APPROVED)
    with traffic(cluster, tmp_path / "served"):
        killed = shell(*down, beforehand=KILLED_IN_AN_INSTALLATION)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        run = shell.newest_run()
        assert not has(shell.events(run), LiveLowered)
        (stopping,) = events_of(shell.events(run), OfflineStopping)
        held = [event for event in events_of(shell.events(run), GateChecked) if event.check.is_held]
        assert stopping.at >= opens.timestamp() > held[0].at
        assert held[0].check.waits_for.startswith("maintenance window: closed until ")
        assert all(cluster.runtime.process(node).pid is None for node in cluster.spec.controllers)
        assert all(cluster.runtime.process(node).pid is not None for node in cluster.spec.brokers)

        again = shell(*down, "--run", run.run_id)
        assert again.returncode == 0, again.stderr
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    assert {event.node_id for event in events_of(shell.events(run), OfflineInstalled)} == {101, 102, 103}
    starts = later_starts(cluster)
    assert {tuple(starts[node.node_id]) for node in cluster.spec.controllers} == {("4.3.1", "4.2.1")}
    assert {tuple(starts[node.node_id]) for node in cluster.spec.brokers} == {("4.2.1",)}, "each broker restarts once"
    report = json.loads(Path(again.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    contents_kept(report)
    (lowered,) = events_of(shell.events(run), LiveLowered)
    assert lowered.sentence in report["sentence"]
    assert lowered.sentence in again.stderr
    print(report["sentence"])
    assert_clients_data_is_kept(cluster.spec, before)


def test_a_live_downgrade_killed_around_each_of_its_events_ends_right(
    tmp_path: Path, make_cluster: MakeCluster
) -> None:
    """The last kill is after the brokers follow; the rest of the run is that of every downgrade."""
    cluster = make_cluster("4.3.1", name="served", layout="separate", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    pids = {node.node_id: cluster.runtime.process(node).pid for node in cluster.spec.brokers}
    shell = Shell(tmp_path, cluster)
    down = ("downgrade", "--cluster", "served", "--to", "4.2.1", "--lowering", "live", *QUICK, *APPROVED)
    installed = [f"OfflineInstalled {node.node_id}" for node in cluster.spec.controllers]
    points = KillPoints(
        tmp_path / "points",
        around(
            *("StepEnded live.begin", "GatePassed controllers-stop", "StepEnded live.gate_controllers"),
            *("OfflineStopping", "OfflineLogChosen", "OfflineSnapshotWritten", *installed, "LiveLowered"),
            *("StepEnded live.lower_level", "GatePassed metadata-version", "StepEnded live.gate_level"),
        ),
    )
    with traffic(cluster, tmp_path / "served"):
        run: tuple[str, ...] = ()
        while left := points.left:
            killed = shell(*down, *run, beforehand=points.code)
            assert killed.returncode == -signal.SIGKILL, f"{left}: {killed.stderr}"
            assert len(points.left) == len(left) - 1
            run = ("--run", shell.newest_run().run_id)
        wait_until(lambda: {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}, 60)
    events = shell.events(shell.newest_run())
    assert not has(events, LiveFailed, OfflineUndoing), "no kill made the run return to the old logs"
    assert len(events_of(events, LiveLowered)) == 1
    assert {node.node_id: cluster.runtime.process(node).pid for node in cluster.spec.brokers} == pids
    assert all(later_starts(cluster)[node.node_id] == ["4.3.1"] for node in cluster.spec.controllers)
    assert_clients_data_is_kept(cluster.spec, before)


@pytest.mark.parametrize(
    ("releases", "quorum"),
    [
        (("4.3.1", "4.2.1"), "static"),
        (("4.3.1", "4.2.1"), "dynamic"),
        (("4.4.0", "4.3.1", "4.2.1"), "static"),
        (("4.3.1", "4.0.1"), "static"),
    ],
    ids=lambda value: value if isinstance(value, str) else " to ".join(value),
)
def test_pairs_of_releases_keep_everything(
    releases: tuple[str, ...], quorum: str, tmp_path: Path, make_cluster: MakeCluster
) -> None:
    """4.4.0 starts at level 33 and share.version 2: the share feature is lowered too."""
    cluster = make_cluster(releases[0], name="served", layout="separate", quorum=quorum, extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    shell = Shell(tmp_path, cluster)
    with traffic(cluster, tmp_path / "served"), many_records(cluster.spec):
        for target in releases[1:]:
            done = shell("downgrade", "--cluster", "served", "--to", target, "--lowering", "live", *QUICK, *APPROVED)
            assert done.returncode == 0, done.stderr
            all_run(cluster, target)
            assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {LEVELS[target]}
            (lowered,) = events_of(shell.events(shell.newest_run()), LiveLowered)
            print(f"{target}: {lowered.sentence}")
    starts = later_starts(cluster)
    assert {tuple(starts[node.node_id]) for node in cluster.spec.brokers} == {releases[1:]}, "each broker restarts once"
    assert_clients_data_is_kept(cluster.spec, before)


@pytest.mark.parametrize("layout", ["combined", "mixed"])
def test_a_cluster_with_a_combined_node_goes_down_offline_and_the_plan_shows_why(
    layout: str, tmp_path: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="served", layout=layout, extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    shell = Shell(tmp_path, cluster)
    down = ("downgrade", "--cluster", "served", "--to", "4.2.1", *QUICK, *APPROVED)
    with traffic(cluster, tmp_path / "served"), many_records(cluster.spec):
        refused = shell(*down, "--lowering", "live")
        assert refused.returncode == RefusedError.exit_code, refused.stderr
        assert "would stop serving, because a combined node is controller and broker" in refused.stderr
        done = shell(*down, "--lowering", "offline")
        assert done.returncode == 0, done.stderr
    (finding,) = [f for f in shell.newest_run().load_plan().findings if f.code == "OFFLINE-DOWNGRADE"]
    assert "would stop serving, because a combined node is controller and broker" in finding.sentence
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    assert_clients_data_is_kept(cluster.spec, before)
