"""A node is back only with the lines that the run has written into its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import NotObservableError, RefusedError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateRef
from kafka_rollout.gates.written_lines import CONDITION, written_lines_condition
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import HIDDEN, ConfigSource, Setting
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.gate_checks import check_gate, wait_for_gate
from kafka_rollout.roll.node import replace_node, restart_node
from kafka_rollout.roll.walk import roll_back, roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports, in_step
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade
from tests.unit.builders import SEPARATE

STEP, NODE = "3.9.1-to-4.3.1", 12
THREADS, PINNED, OLD = "num.io.threads", "num.network.threads", "background.threads"
QUICK = GatePolicy(checks=1, interval_s=1, timeout_s=30)
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=NODE)


def planned(cluster: FakeCluster, home: Path) -> tuple[ClusterPorts, Plan]:
    """The target has a line of its own, keeps a value that the file has, and loses one."""
    for node in cluster.nodes.values():
        node.config |= {PINNED: "3", OLD: "10"}
    ports = fake_ports(cluster, home)
    lines: dict[str, str | None] = {THREADS: "16", PINNED: "3", OLD: None}
    ports = replace(ports, cluster=replace(ports.cluster, release_overrides={"4.3.1": lines}))
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return ports, plan


def template(cluster: FakeCluster, lines: dict[str, str], node_id: int = NODE) -> None:
    """The start of the node writes its file."""
    cluster.files_at_start[node_id] = dict(lines)


def replaced(ports: ClusterPorts, plan: Plan) -> str:
    """Return what the gate says of the lines of the started node."""
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    return shown(ports, plan)


def shown(ports: ClusterPorts, plan: Plan) -> str:
    """The first checks wait for the replicas and the leaderships of the node."""
    for _ in range(4):
        seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
        if any(one.name == CONDITION for one in seen.conditions):
            break
    (found,) = [one for one in seen.conditions if one.name == CONDITION]
    assert found.is_met is (CONDITION not in seen.waits_for)
    return f"{'met' if found.is_met else 'unmet'}: {found.evidence}"


def test_a_start_that_writes_the_file_again_is_no_success(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = planned(cluster, tmp_path)
    template(cluster, {OLD: "10"})
    said = replaced(ports, plan)
    assert said.startswith("unmet: the file of node 12 does not have what the run has written: ")
    assert "no background.threads, num.io.threads=16, num.network.threads=3." in said
    assert "template" in said
    with pytest.raises(RefusedError, match=rf"{CONDITION}: .*num.io.threads=16"):
        wait_for_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster), QUICK)


def test_a_corrected_template_and_a_retry_pass(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = planned(cluster, tmp_path)
    template(cluster, {})
    assert "unmet" in replaced(ports, plan)
    cluster.nodes[NODE].in_use = {}
    cluster.nodes[NODE].config = {THREADS: "16", PINNED: "3"}  # by hand: the process has read the other file
    said = shown(ports, plan)
    assert "unmet: the process of node 12 does not use num.io.threads=16" in said
    template(cluster, {THREADS: "16", PINNED: "3", "log.dirs": "/data"})
    restart_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    assert shown(ports, plan) == "met: no background.threads, num.io.threads=16, num.network.threads=3: in use"
    wait_for_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster), QUICK)


def test_the_whole_roll_and_its_rollback_pass_where_the_files_stay(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = planned(cluster, tmp_path)
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert {node.config[THREADS] for node in cluster.nodes.values()} == {"16"}
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "the clients do not like it")
    roll_back(Run(ports, plan), QUICK)
    assert [node.config for node in cluster.nodes.values()] == [{PINNED: "3", OLD: "10"}] * len(cluster.nodes)


def test_a_rollback_to_the_new_lines_is_no_success(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = planned(cluster, tmp_path)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    template(cluster, cluster.nodes[NODE].config)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "the clients do not like it")
    with pytest.raises(RefusedError, match=rf"{CONDITION}: .*background.threads=10, no num.io.threads"):
        roll_back(Run(ports, plan), QUICK)


def test_a_node_that_catches_up_is_not_asked_for_its_file_at_each_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391, catch_up_rounds=1000)
    ports, plan = planned(cluster, tmp_path)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    read: list[int] = []

    def config(runtime: FakeRuntime, node: NodeSpec) -> dict[str, str]:
        read.append(node.node_id)
        return dict(cluster.nodes[node.node_id].config)

    monkeypatch.setattr(FakeRuntime, "config", config)
    seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    assert (seen.passes, read) == (False, [])
    cluster.nodes[NODE].behind = 0
    assert shown(ports, plan).startswith("met: ")
    assert read == [NODE]  # once for all conditions


def test_a_node_that_does_not_come_up_shows_what_its_file_lacks(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.cannot_start = {(NODE, R431)}
    ports, plan = planned(cluster, tmp_path)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    cluster.nodes[NODE].config = {OLD: "10"}
    assert shown(ports, plan).startswith("unmet: the file of node 12")


def test_nodes_for_which_nothing_is_written_have_no_new_condition(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    template(cluster, {})
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    assert CONDITION not in [one.name for one in seen.conditions]


def test_a_node_that_another_run_has_upgraded_has_no_new_condition(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.nodes[NODE].installed = cluster.nodes[NODE].running = R431
    ports, plan = planned(cluster, tmp_path)
    cluster.nodes[NODE].config = {}
    seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    assert CONDITION not in [one.name for one in seen.conditions]


def test_a_node_that_does_not_report_its_settings_is_judged_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotObservableError("No right.", remedy="")

    cluster = FakeCluster(R391)
    ports, plan = planned(cluster, tmp_path)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    monkeypatch.setattr(FakeAdmin, "settings_in_use", refuse)
    assert shown(ports, plan).endswith(": in the file")
    cluster.nodes[NODE].config = {}
    assert "unmet: the file of node 12" in shown(ports, plan)


@pytest.mark.parametrize(
    ("line", "setting", "met"),
    [
        ("16", Setting("16", ConfigSource.FILE, ValueType.INT), True),
        (" 016", Setting("16", ConfigSource.FILE, ValueType.INT), True),
        ("16", Setting("8", ConfigSource.DEFAULT, ValueType.INT), False),
        ("16", Setting("8", ConfigSource.FILE, ValueType.INT), False),
        ("16", Setting("8", ConfigSource.ALL_BROKERS, ValueType.INT), True),  # counts more than each file
        ("16", Setting(HIDDEN, ConfigSource.FILE, ValueType.PASSWORD), True),
        ("16", Setting(None, ConfigSource.DEFAULT), True),
        ("${file:/a:b}", Setting("8", ConfigSource.FILE, ValueType.INT), True),
        ("a, b", Setting("a,b", ConfigSource.FILE, ValueType.LIST), True),
    ],
)
def test_the_process_is_compared_by_meaning(line: str, setting: Setting, met: bool) -> None:
    file = {THREADS: line}
    assert written_lines_condition(SEPARATE.node(4), {THREADS: line}, file, {THREADS: setting}).is_met is met


def test_a_secret_is_not_shown() -> None:
    lines = {"ssl.keystore.password": "S3CRET", THREADS: "4"}
    said = written_lines_condition(SEPARATE.node(4), lines, {}, None).evidence
    assert "ssl.keystore.password=" in said
    assert "S3CRET" not in said
