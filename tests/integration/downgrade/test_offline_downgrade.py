"""Offline downgrades of real clusters across a level that Kafka refuses to lower: 4.3.1 at 30 to 4.2.1 at 29."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.cli.app import run_main
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import finalize
from kafka_rollout.formats.files import server_properties
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy
from kafka_rollout.lowering import offline as steps
from kafka_rollout.lowering.offline import undo_offline
from kafka_rollout.lowering.outage_facts import estimate_outage
from kafka_rollout.metadata_log.changes import places as metadata_places
from kafka_rollout.metadata_log.changes.trimmer import trim
from kafka_rollout.metadata_log.disk.folder import log_range, open_folder
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.plan_making import freeze
from kafka_rollout.procedure.parts import OFFLINE_SECTION
from kafka_rollout.procedure.step import ActStep, StepCall
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jvm.java import java_binary
from kafka_rollout.releases.jvm.jvm import run_jvm
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.view import RunView
from tests.fakes.dying_files import DyingFiles, KilledError
from tests.fakes.ports import gate_of
from tests.integration.conftest import MakeCluster
from tests.integration.harness.cluster_contents import WITH_ACLS, contents, fill
from tests.integration.harness.feature_harness import opened
from tests.integration.metadata_log.test_metadata_on_brokers import SNAPSHOTS
from tests.plans import plan_downgrade
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

NEW, OLD = Release(4, 3, 1), Release(4, 2, 1)
RELEASE_STEP = "4.3.1-to-4.2.1"
GATE = GatePolicy(checks=2, interval_s=0.5, timeout_s=240, soak_s=0)


def approved_plan(ports: ClusterPorts) -> Plan:
    """Offline also where the controllers are separate, and a live downgrade would be planned."""
    plan = replace(plan_downgrade(ports, OLD, lowering=Lowering.OFFLINE), lowering=Lowering.OFFLINE)
    freeze(Run(ports, plan), RunOf.DOWNGRADE)
    assert (plan.levels, [step.key for step in plan.release_steps]) == ({METADATA_VERSION: 29}, [RELEASE_STEP])
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    return plan


def go_down(ports: ClusterPorts, plan: Plan) -> None:
    steps.stop_all(Run(ports, plan))
    steps.install_snapshot(Run(ports, plan))
    steps.install_binaries(Run(ports, plan))
    steps.start_controllers(Run(ports, plan))
    steps.start_brokers(Run(ports, plan))
    all_are_back(ports, plan, RELEASE_STEP)
    wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)


def all_are_back(ports: ClusterPorts, plan: Plan, release_step: str) -> None:
    for node in ports.cluster.nodes:
        wait_for_gate(
            Run(ports, plan),
            gate_of(ports, plan, GateKind.AFTER_START, release_step, node.node_id),
            GATE,
        )


def levels(ports: ClusterPorts) -> dict[int, dict[str, int]]:
    return {node.node_id: dict(ports.admin.features(node).finalized) for node in ports.cluster.nodes}


def bytes_of(ports: ClusterPorts) -> dict[str, bytes]:
    """Every file of every node's metadata directory but the lock."""
    roots = [ports.runtime.metadata_log_dir(node) for node in ports.cluster.nodes]
    return {
        str(path): path.read_bytes()
        for root in roots
        if root is not None
        for path in root.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def install_and_die_everywhere(ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> int:
    """The installation, killed at the first change of each node's disk, then at the second, … until it ends; how
    often it was killed on a node. After each death it goes on where it was."""
    deaths = []

    class CountedFiles(DyingFiles):
        def _step(self, target: Path | None = None) -> None:
            try:
                super()._step(target)
            except KilledError:
                deaths.append(target)
                raise

    for at in count():
        with monkeypatch.context() as patched:
            patched.setattr(
                metadata_places, "DiskChanges", lambda dies_at=at, **_: CountedFiles(dies_at, half=dies_at % 2 == 0)
            )
            try:
                steps.install_snapshot(Run(ports, plan))
            except KilledError:
                continue
        return len(deaths)
    raise AssertionError


def trim_and_die_everywhere(ports: ClusterPorts, node: NodeSpec) -> None:
    """As the installation: a stopped node's trim, killed at one change of the disk after the other."""
    for at in count():
        try:
            trim(open_folder(Path(str(ports.runtime.metadata_log_dir(node)))), files=DyingFiles(at, half=at % 2 == 0))
        except KilledError:
            continue
        assert at > 3
        return


def refuse_what_is_not_enough_or_not_ours(ports: ClusterPorts, plan: Plan) -> None:
    """Two of three voters' logs missing, a snapshot cut off on top of a third, the log of another cluster."""
    before = bytes_of(ports)
    first, second, third = (Path(str(ports.runtime.metadata_log_dir(n))) for n in ports.cluster.controllers[:3])
    away = [(root, root.with_name("away")) for root in (first, second)]
    for root, aside in away:
        root.rename(aside)
    with pytest.raises(RefusedError, match=r"1 of 3 voters are available\. 2 are needed"):
        steps.choose(Run(ports, plan))
    for root, aside in away:
        aside.rename(root)
    meta = third / "meta.properties"
    ours = meta.read_bytes()
    meta.write_bytes(ours.replace(plan.cluster_id.encode(), b"AnotherClustersIdIsHere"))
    with pytest.raises(UserError, match="is of cluster AnotherClustersIdIsHere"):
        steps.choose(Run(ports, plan))
    meta.write_bytes(ours)
    assert bytes_of(ports) == before


@pytest.mark.parametrize("quorum", ["static", "dynamic"])
def test_combined_nodes_killed_at_every_change_of_the_disk_end_on_the_older_release_with_everything_there(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: str
) -> None:
    cluster = make_cluster(str(NEW), layout="combined", quorum=quorum, extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    with opened(cluster, tmp_path / "home") as ports:
        finalized = levels(ports)[1]
        plan = approved_plan(ports)
        estimated = estimate_outage(ports).total_s
        began = time.monotonic()
        steps.stop_all(Run(ports, plan))
        refuse_what_is_not_enough_or_not_ours(ports, plan)
        assert steps.choose(Run(ports, plan)).voters == (1, 2, 3)
        steps.write_snapshot(Run(ports, plan))
        assert install_and_die_everywhere(ports, plan, monkeypatch) > 15
        steps.install_binaries(Run(ports, plan))
        steps.start_controllers(Run(ports, plan))
        all_are_back(ports, plan, RELEASE_STEP)
        print(f"outage {time.monotonic() - began:.0f} s, estimated {estimated:.0f} s")
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)
        assert levels(ports) == {node_id: {**finalized, METADATA_VERSION: 29} for node_id in (1, 2, 3)}
        record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "too late")
        with pytest.raises(RefusedError, match="so the downgrade cannot be undone"):
            undo_offline(Run(ports, plan))
    assert contents(cluster.spec) == before


@pytest.mark.parametrize("quorum", ["dynamic", "static"])
def test_separate_nodes_are_trimmed_and_taken_back_from_controllers_on_the_new_level_and_go_down_after_that(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: str
) -> None:
    cluster = make_cluster(str(NEW), layout="separate", quorum=quorum, extra_config={**WITH_ACLS, **SNAPSHOTS})
    fill(cluster)
    before = contents(cluster.spec)
    with opened(cluster, tmp_path / "home") as ports:
        finalized = levels(ports)[1]
        wait_until(lambda: all(ports.runtime.checkpoints(node) for node in cluster.spec.nodes), 240)
        plan = approved_plan(ports)
        steps.stop_all(Run(ports, plan))
        first, *others = cluster.spec.nodes
        trim_and_die_everywhere(ports, first)
        for node in others:
            assert metadata("trim", ports, node, "--release", NEW) == 0
        assert 0 not in starts_of_logs(ports)
        stopped = bytes_of(ports)
        for node in (cluster.spec.controllers[0], cluster.spec.nodes[-1]):
            out = tmp_path / f"of-{node.node_id}"
            of_one_log = ("--to-level", 29, "--release", OLD, "--epoch", 1000, "--out", out)
            assert metadata("snapshot", ports, node, *of_one_log) == 0
        assert bytes_of(ports) == stopped
        assert steps.choose(Run(ports, plan)).voters == (101, 102, 103)
        steps.install_snapshot(Run(ports, plan))
        steps.install_binaries(Run(ports, plan))
        steps.start_controllers(Run(ports, plan))
        for node in ports.cluster.controllers:  # two of them are a quorum: the third may be later
            wait_until(lambda node=node: release_of(ports, node) == OLD, 240)  # type: ignore[misc]
    seen: list[dict[str, bytes]] = []
    start = LocalProcessRuntime.start

    def look_then_start(runtime: LocalProcessRuntime, node: NodeSpec) -> None:
        seen.append({} if seen else bytes_of(ports))
        start(runtime, node)

    with monkeypatch.context() as patched:
        patched.setattr(LocalProcessRuntime, "start", look_then_start)
        patched.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
        patched.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
        named = ("--as", "alice", "--reason", "a test", "--yes")
        assert run_main(["rollback", "--cluster", cluster.spec.name, "--run", "run", *named]) == 0
    assert seen[0] == stopped, "every byte is as it was before the installation"
    with opened(cluster, tmp_path / "home") as ports:
        assert levels(ports)[1] == finalized
        assert contents(cluster.spec) == before
        # Once more, and through.
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "again")
        go_down(ports, plan)
        assert levels(ports)[1] == {**finalized, METADATA_VERSION: 29}
    assert contents(cluster.spec) == before


@pytest.mark.parametrize("quorum", ["static", "dynamic"])
@pytest.mark.parametrize("layout", ["combined", "separate"])
def test_a_controller_whose_disk_is_lost_is_left_behind_and_fetches_everything_once_it_is_formatted_anew(
    make_cluster: MakeCluster, tmp_path: Path, layout: str, quorum: str
) -> None:
    cluster = make_cluster(str(NEW), layout=layout, quorum=quorum, extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    with opened(cluster, tmp_path / "home") as ports:
        finalized = levels(ports)[1]
        plan = approved_plan(ports)
        # The active controller's: of all logs the one that may be ahead.
        lost = ports.cluster.node(ports.admin.quorum().leader_id)
        others = [node for node in ports.cluster.nodes if node != lost]
        controllers = [node for node in ports.cluster.controllers if node != lost]
        steps.stop_all(Run(ports, plan))
        directory = Path(str(ports.runtime.metadata_log_dir(lost)))
        old_id = directory_id(directory)
        shutil.rmtree(directory)
        second = Path(str(ports.runtime.metadata_log_dir(controllers[0])))
        second.rename(second.with_name("away"))
        with pytest.raises(RefusedError, match=r"1 of 3 voters are available\. 2 are needed") as refused:
            steps.choose(Run(ports, plan))
        assert f"node {lost.node_id}: " in refused.value.sentence
        second.with_name("away").rename(second)
        chosen = steps.choose(Run(ports, plan))
        assert (set(chosen.read), len(chosen.not_read)) == ({node.node_id for node in others}, 1)
        assert steps.install_snapshot(Run(ports, plan))[lost.node_id].startswith("Left as it is: ")
        steps.install_binaries(Run(ports, plan))
        steps.start_controllers(Run(ports, plan), ready_within_s=600.0)
        steps.start_brokers(Run(ports, plan), ready_within_s=600.0)
        for node in others:
            wait_until(lambda node=node: levels_of(ports, node).get(METADATA_VERSION) == 29, 240)  # type: ignore[misc]
        wait_until(lambda: ports.runtime.process(lost).pid is None, 240)
        # A person puts a new disk in, formats it, and goes on with the same run.
        format_anew(cluster, lost, *(("--no-initial-controllers",) if quorum == "dynamic" else ()))
        assert lost.node_id in steps.start_controllers(Run(ports, plan), ready_within_s=600.0)
        if quorum == "dynamic":
            wait_until(lambda: lost.node_id in {one.replica_id for one in ports.admin.quorum().observers}, 240)
            vote_by_the_new_directory(cluster, lost, old_id, directory_id(directory))
        all_are_back(ports, plan, RELEASE_STEP)
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)
        assert levels(ports) == {node.node_id: {**finalized, METADATA_VERSION: 29} for node in ports.cluster.nodes}
        assert RunView.of(ports.run.events()).outages[0].served_at is not None
    assert contents(cluster.spec) == before


def test_a_release_that_cannot_read_the_bootstrap_file_of_the_newest_level_starts_at_its_own_with_everything_there(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Across 30 and 23, which changed metadata: released Kafka has no way from 4.3.1 at 30 to 3.9.1."""
    cluster = make_cluster(str(NEW), layout="combined", size=1, extra_config=WITH_ACLS)
    fill(cluster, settings=False)
    before = contents(cluster.spec)
    with opened(cluster, tmp_path / "home") as ports:
        plan = plan_downgrade(ports, Release(3, 9, 1), unsafe=True, lowering=Lowering.OFFLINE)
        assert (plan.lowering is Lowering.OFFLINE, plan.levels[METADATA_VERSION], plan.blockers) == (True, 21, ())
        record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "a test")
        finalize(Run(ports, plan))
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
        call = StepCall(ports=ports, request=Request(), plan_or_none=plan)
        for step in OFFLINE_SECTION.parts:
            if isinstance(step, ActStep):
                step.act(call)
        all_are_back(ports, plan, plan.release_steps[0].key)
        assert levels(ports)[1][METADATA_VERSION] == 21
        root = Path(str(ports.runtime.metadata_log_dir(cluster.spec.nodes[0])))
        (backup,) = root.glob("__cluster_metadata-0/kafka-rollout-install-*")
        assert "bootstrap.checkpoint" in (backup / "manifest.json").read_text()
    assert contents(cluster.spec) == before


def directory_id(directory: Path) -> str:
    return server_properties.parse((directory / "meta.properties").read_bytes())["directory.id"]


def vote_by_the_new_directory(cluster: LocalCluster, node: NodeSpec, old: str, new: str) -> None:
    """As kafka-metadata-quorum.sh remove-controller and add-controller: Kafka's own client, asked directly."""
    with run_jvm(cluster.runtime.cache.libs(OLD)) as jvm:
        java = jvm.packages
        properties = java.java.util.Properties()
        properties.setProperty("bootstrap.servers", cluster.spec.bootstrap_servers)
        admin = jvm.static("org.apache.kafka.clients.admin.Admin").create(properties)
        of = jvm.static("org.apache.kafka.common.Uuid").fromString
        host, _, port = str(node.controller_address).rpartition(":")
        endpoints = java.java.util.HashSet()
        endpoint = jvm.static("org.apache.kafka.clients.admin.RaftVoterEndpoint")
        endpoints.add(endpoint("CONTROLLER", host, int(port)))
        try:
            admin.removeRaftVoter(node.node_id, of(old)).all().get()
            admin.addRaftVoter(node.node_id, of(new), endpoints).all().get()
        finally:
            admin.close()


def format_anew(cluster: LocalCluster, node: NodeSpec, *options: str) -> None:
    libs = cluster.runtime.cache.libs(OLD)
    command = [str(java_binary()), "-Xmx128m", "-cp", str(libs / "*"), "kafka.tools.StorageTool", "format"]
    command += ["-t", cluster.cluster_id, "-c", str(Path(str(node.directory)) / "server.properties")]
    subprocess.run([*command, "--ignore-formatted", *options], check=True, capture_output=True)


def release_of(ports: ClusterPorts, node: NodeSpec) -> Release | None:
    try:
        return ports.metrics.read(node).release
    except TransientError:
        return None


def levels_of(ports: ClusterPorts, node: NodeSpec) -> Mapping[str, int]:
    try:
        return ports.admin.features(node).finalized
    except TransientError:
        return {}


def metadata(command: str, ports: ClusterPorts, node: NodeSpec, *options: object) -> int:
    """`kafka-rollout metadata`, on one node's directory."""
    return run_main(["metadata", command, "--log-dir", str(ports.runtime.metadata_log_dir(node)), *map(str, options)])


def starts_of_logs(ports: ClusterPorts) -> set[int]:
    folders = [open_folder(Path(str(ports.runtime.metadata_log_dir(node)))) for node in ports.cluster.nodes]
    return {log_range(folder)[0] for folder in folders}
