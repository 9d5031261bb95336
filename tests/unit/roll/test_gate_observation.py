"""What the gates read of a cluster: through which brokers, by which limits, and from whose counters and logs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.counters import REMOTE_REQUESTS
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy, GateRef, GateWatch
from kafka_rollout.gates.reasons import PROCESS
from kafka_rollout.gates.remote_storage import CONDITION, KAFKA_MANAGER, SYSTEM_ENABLE
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import NodeFeatures, NodeMetrics, PartitionState, QuorumState, RegisteredNodes
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.observation.cluster_ports import FETCH_TIMEOUT, ClusterPorts, observe_some
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.gate_checks import check_gate, check_gates, check_stop_is_safe
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.log_directories import JBOD, with_directories
from tests.fakes.ports import FakeAdmin, FakeMetrics, fake_ports, in_step
from tests.plans import plan_upgrade

RELEASE_STEP = "3.9.1-to-4.3.1"
BEFORE = GateRef(kind=GateKind.BEFORE_STOP, release_step=RELEASE_STEP, node_id=12)
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=RELEASE_STEP, node_id=12)


def test_partitions_and_registrations_are_read_only_through_brokers_with_current_metadata(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, registered = FakeAdmin.partitions, FakeAdmin.registered
    asked: dict[str, list[int]] = {}

    def read_partitions(
        admin: FakeAdmin, *, through: Collection[int] = (), **options: Any
    ) -> tuple[PartitionState, ...]:
        asked["partitions"] = sorted(through)
        return partitions(admin, through=through, **options)

    def read_registered(admin: FakeAdmin, *, through: Collection[int] = ()) -> RegisteredNodes:
        asked["registered"] = sorted(through)
        return registered(admin, through=through)

    monkeypatch.setattr(FakeAdmin, "partitions", read_partitions)
    monkeypatch.setattr(FakeAdmin, "registered", read_registered)
    cluster.nodes[11].behind = 100  # the first broker of the inventory answers from its old metadata
    assert not check_gate(Run(ports, plan), BEFORE.resolve(plan, ports.cluster)).passes
    assert asked == {"partitions": [12, 13], "registered": [12, 13]}


@pytest.mark.parametrize(("timeout_ms", "passes"), [(None, False), ("2000", False), ("60000", True)])
def test_the_fetch_timeout_in_the_controllers_files_is_the_limit_of_a_silent_voter(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, timeout_ms: str | None, passes: bool
) -> None:
    quorum = FakeAdmin.quorum

    def silent_for_30_s(admin: FakeAdmin, *, through_brokers: bool = True) -> QuorumState:
        found = quorum(admin)
        since = int((cluster.clock.now() - 30) * 1000)
        return replace(
            found,
            voters=tuple(
                replace(one, last_fetch_ms=since) if one.replica_id != found.leader_id else one for one in found.voters
            ),
        )

    monkeypatch.setattr(FakeAdmin, "quorum", silent_for_30_s)
    if timeout_ms is not None:
        cluster.nodes[3].config[FETCH_TIMEOUT] = timeout_ms
    seen = observe_some(ports, ports.cluster.nodes, metrics=False).quorum
    assert seen is not None
    assert (seen.fetch_limit_ms >= 30_000) is passes, seen.fetch_limit_ms


@pytest.mark.parametrize("kind", [GateKind.METADATA_VERSION, GateKind.FINAL_METADATA_VERSION])
def test_metadata_that_one_node_could_not_apply_fails_the_gate_of_the_level(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch, kind: GateKind
) -> None:
    """No node restarts after a level was raised, so no gate of a start reads the counters again."""
    read = FakeMetrics.read
    counted = {"metadata_apply_errors": 0, "metadata_load_errors": 0, "metadata_errors": 0}

    def with_counters(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        counters = {**counted, "metadata_apply_errors": errors} if node.node_id == 12 else counted
        return replace(read(metrics, node), counters=counters)

    monkeypatch.setattr(FakeMetrics, "read", with_counters)
    failing = []
    for errors in (0, 1):
        seen = check_gate(Run(ports, plan), Gate(kind=kind))
        failing.append([one.evidence for one in seen.conditions if one.name == "no metadata errors" and not one.is_met])
        assert not errors or not seen.passes
    assert failing[0] == []
    assert "node 12 reports metadata-apply-error-count 1" in failing[1][0]


@pytest.mark.parametrize(
    ("errors", "level", "lines"),
    [(1, 14, JBOD), (1, 30, JBOD), (2, 14, JBOD), (1, 14, ())],
    ids=["expected", "after finalizing", "one more", "not in the log"],
)
def test_the_gates_accept_the_error_of_several_log_directories_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: int, level: int, lines: tuple[str, ...]
) -> None:
    """Brokers of 3.7.1 or later count it at each start below metadata.version 17: no repetition would end it."""
    cluster = FakeCluster()
    ports = fake_ports(cluster, tmp_path)
    with_directories(cluster, monkeypatch, errors=0)
    plan = plan_upgrade(ports, R431, finalize=True)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    with_directories(cluster, monkeypatch, errors=errors)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    cluster.nodes[12].log.extend(lines)
    cluster.finalized = {"metadata.version": level}
    for gate in (AFTER.resolve(plan, ports.cluster), Gate(kind=GateKind.METADATA_VERSION)):
        (found,) = [one for one in check_gate(Run(ports, plan), gate).conditions if one.name == "no metadata errors"]
        assert found.is_met is (errors == 1 and lines == JBOD), found.evidence
        assert found.doubts == ()


def test_a_started_broker_that_has_not_initialised_its_tiered_storage_fails_its_gate(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.nodes[12].config[SYSTEM_ENABLE] = "true"
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    logged = "[2026-11-24 02:14:07,123] INFO {} ({})"
    cluster.nodes[12].log.append(
        logged.format(
            "Registered signal handlers for TERM, INT, HUP", "org.apache.kafka.common.utils.LoggingSignalHandler"
        )
    )
    for _ in range(5):
        seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    assert [one.name for one in seen.conditions if not one.is_met] == [CONDITION]
    assert "it serves no remote data" in seen.waits_for
    cluster.nodes[12].log.append(logged.format("Initialized topic-based RLMM resources successfully", KAFKA_MANAGER))
    assert check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster)).passes


@pytest.mark.parametrize("tiered", [True, False])
def test_a_started_broker_that_cannot_reach_its_remote_storage_fails_its_gate_until_its_errors_end(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch, tiered: bool
) -> None:
    read, rate = FakeMetrics.read, [0.4]

    def with_rates(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        return replace(read(metrics, node), counters={"remote_copy_errors": rate[0], "remote_fetch_errors": 0.0})

    cluster.nodes[12].config[SYSTEM_ENABLE] = str(tiered).lower()
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    initialised = "Initialized topic-based RLMM resources successfully"
    cluster.nodes[12].log.append(f"[2026-11-24 02:14:07,123] INFO {initialised} ({KAFKA_MANAGER})")
    monkeypatch.setattr(FakeMetrics, "read", with_rates)
    for _ in range(5):
        seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    unmet = [(one.name, one.evidence) for one in seen.conditions if not one.is_met]
    if not tiered:
        assert unmet == []
        return
    assert [name for name, _ in unmet] == [REMOTE_REQUESTS]
    assert "RemoteCopyErrorsPerSec 0.4" in unmet[0][1]
    rate[0] = 0.001
    assert check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster)).passes


def _queries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Record the options of each query of partitions."""
    partitions, queries = FakeAdmin.partitions, list[dict[str, Any]]()

    def read(admin: FakeAdmin, **options: Any) -> tuple[PartitionState, ...]:
        queries.append(options)
        return partitions(admin, **options)

    monkeypatch.setattr(FakeAdmin, "partitions", read)
    return queries


def test_a_gate_after_a_start_asks_for_the_node_s_topics_through_brokers_that_applied_the_metadata(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_partition("elsewhere", 0, [11, 13], min_isr=1)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    features = FakeAdmin.features

    def of_13_is_old(admin: FakeAdmin, node: NodeSpec) -> NodeFeatures:
        found = features(admin, node)
        return replace(found, epoch=0) if node.node_id == 13 else found

    monkeypatch.setattr(FakeAdmin, "features", of_13_is_old)
    monkeypatch.setattr("kafka_rollout.model.state.LAG_RECORDS", 0)
    queries = _queries(monkeypatch)
    for _ in range(6):  # whichever broker is first, also when node 12 is back
        check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
        cluster.clock.sleep(1)
    assert all("orders" in query["topics"] and "elsewhere" not in query["topics"] for query in queries)
    assert {query["min_isr_age_s"] for query in queries} == {None}
    assert {node_id for query in queries for node_id in query["through"]} <= {11, 12}
    assert {len(query["through"]) for query in queries[-3:]} == {2}, "the second responds if the first is overloaded"
    assert {query["through"][0] for query in queries[-3:]} == {11, 12}, "the load is shared"


def test_a_gate_after_a_start_waits_while_no_broker_has_applied_the_metadata(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    features = FakeAdmin.features
    monkeypatch.setattr(FakeAdmin, "features", lambda admin, node: replace(features(admin, node), epoch=0))
    monkeypatch.setattr("kafka_rollout.model.state.LAG_RECORDS", 0)
    seen = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    unmet = {one.name: one.evidence for one in seen.conditions if not one.is_met}
    assert "No broker that was queried has applied the newest metadata" in unmet["every query answered"]


@pytest.mark.parametrize("lost", ["quorum", "partitions", "registered"])
def test_a_gate_after_a_start_sees_a_dead_process_while_the_cluster_reports_nothing(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    cluster.nodes[12].running = None

    def silent(*_: object, **__: object) -> None:
        raise TransientError(f"Nobody reports {lost}.")

    monkeypatch.setattr(FakeAdmin, lost, silent)
    unmet = {
        one.name: one.evidence for one in check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster)).conditions
    }
    assert unmet[PROCESS].startswith("no process")
    assert f"Nobody reports {lost}" in unmet["every query answered"]


def test_the_gate_after_the_last_start_compares_the_counts_of_all_partitions(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = plan.release_steps[-1].order[-1].node_id
    asked = {}
    for node_id in (12, last):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, node_id)))
        queries = _queries(monkeypatch)
        check_gate(Run(ports, plan), replace(AFTER, node_id=node_id).resolve(plan, ports.cluster))
        asked[node_id] = [query.get("topics") is None for query in queries]
    assert last != 12
    assert asked == {12: [False], last: [True]}


def test_the_check_right_before_a_stop_reads_min_insync_replicas_again(
    ports: ClusterPorts, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = _queries(monkeypatch)
    check_gates(Run(ports, plan), [BEFORE.resolve(plan, ports.cluster)], [GateWatch(policy=GatePolicy())])
    (waiting,) = queries
    assert waiting["min_isr_age_s"] > 0
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert all(query.get("min_isr_age_s", 0.0) == 0.0 for query in queries[1:])
    assert queries[1:]


def test_responses_about_all_partitions_come_from_another_current_broker_each_second(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.nodes[11].behind = 100
    queries = _queries(monkeypatch)
    for _ in range(3):
        assert observe_some(ports, ports.cluster.nodes, metrics=False).read_from == (12, 13)
        ports.clock.sleep(1.0)
    asked = [list(query["through"]) for query in queries]
    assert asked[0] != asked[1] != asked[2]
    assert sorted(map(tuple, asked[:2])) == [(12, 13), (13, 12)]


def test_the_gate_of_an_accepted_topic_reads_whether_controllers_elect_unclean_leaders(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_rejoin", lambda node_id: None)
    cluster.add_partition("tmp-x", 0, [11, 12])
    cluster.topics["tmp-x-0"] = replace(cluster.topics["tmp-x-0"], isr=(11,))
    plan = plan_upgrade(ports, R431, finalize=False, accept_unavailable=["tmp-*"])
    passes = {}
    for value in ("false", "true"):
        cluster.set_topic("tmp-x", ENABLE, value)
        seen = check_stop_is_safe(Run(ports, plan), ports.cluster.node(11))
        passes[value] = seen.passes
    assert passes == {"false": True, "true": False}
    assert f"{ENABLE} is true" in seen.waits_for
