"""A roll back ends on the last release that can load what the newer ones wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.outside_text import is_listed
from kafka_rollout.control.approval import accept_doubts, record_approval
from kafka_rollout.coordinator_logs.findings import unread_replica_sentences
from kafka_rollout.coordinator_logs.replicas import unread_replica
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.model.acls import AclDifferences
from kafka_rollout.model.configs import HIDDEN, ConfigCheck, ConfigKind, ConfigProblem
from kafka_rollout.model.host_state import (
    HostState,
    Installation,
    PlaceState,
    StartFile,
    StartFileKind,
    StartPath,
    StartPlace,
)
from kafka_rollout.model.jvm_options import LostOption, NextOptions
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL
from kafka_rollout.preparation.node_checks import readable_configs
from kafka_rollout.procedure.approval_requests import rollback_part
from kafka_rollout.procedure.kinds import build_report_of_run
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.walk import roll_back, roll_release_steps
from kafka_rollout.run.events import (
    ApprovalOf,
    Decision,
    RollbackAskedAgain,
    RollbackClosed,
    RollbackUnread,
    StepBegan,
    StepEnded,
    events_of,
)
from kafka_rollout.run.projections.approvals import find_doubts, find_unaccepted_of_rollback
from kafka_rollout.run.step_events import GatePassed
from tests.acls import read_acl
from tests.fakes.cluster import COMBINED, R340, R341, R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import compare, plan_upgrade

QUICK = GatePolicy(checks=2, interval_s=1, timeout_s=60)
VOTERS = "controller.quorum.voters"
COMMIT = RecordKind(topic="__consumer_offsets", partition=0, key_version=1, value_version=3, count=4, first_offset=0)
BY_4_3_1 = replace(COMMIT, value_version=4, count=1)


def rolled(cluster: FakeCluster, home: Path, *, scanned: bool = True) -> tuple[ClusterPorts, Plan]:
    """Rolled from 3.4.0 by way of 3.4.1 to 4.3.1, and a person decided to go back."""
    ports = fake_ports(cluster, home)
    scan = ScanResult(
        cluster="fake",
        scanned_at=0.0,
        logs=(LogRange(topic=COMMIT.topic, partition=0, start=0, end=4),),
        classes=(COMMIT,),
        verdicts=evaluate_records(cluster.catalogue, (COMMIT,), list(cluster.catalogue)),
    )
    if scanned:
        ports.run.attach(SCAN_BEFORE_ROLL, scan)
    plan = plan_upgrade(ports, R431, finalize=False)
    (told,) = [finding for finding in plan.findings if finding.code == "ROLLBACK-ENDS"]
    assert "A rollback reaches at most 3.4.1" in told.sentence
    roll_and_regret(ports, plan)
    return ports, plan


def upgraded(cluster: FakeCluster, home: Path) -> tuple[ClusterPorts, Plan]:
    """Rolled to 4.3.1, and a person decided to go back."""
    ports = fake_ports(cluster, home)
    plan = plan_upgrade(ports, R431, finalize=False)
    roll_and_regret(ports, plan)
    return ports, plan


def roll_and_regret(ports: ClusterPorts, plan: Plan) -> None:
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    assert roll_release_steps(Run(ports, plan), QUICK)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "the clients do not like it")


FOUND = Installation(link="/opt/kafka_2.13-3.9.1-acme3", held=("kafka",))


def test_a_rollback_restores_the_installation_that_a_node_had(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    nodes = (replace(node, service=ServiceSpec(host=node.name)) for node in cluster.spec.nodes)
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    for fake in cluster.nodes.values():
        fake.installation = FOUND
    ports, plan = upgraded(cluster, tmp_path)
    assert {fake.installation for fake in cluster.nodes.values()} == {replace(FOUND, link="/opt/kafka_2.13-4.3.1")}
    assert roll_back(Run(ports, plan), QUICK)
    assert {fake.installation for fake in cluster.nodes.values()} == {FOUND}


def test_a_rollback_reads_no_groups_and_no_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports, plan = upgraded(FakeCluster(R391), tmp_path)

    def refuse(admin: FakeAdmin) -> Any:
        raise RefusedError("The coordinator does not answer.")

    monkeypatch.setattr(FakeAdmin, "groups", refuse)
    monkeypatch.setattr(FakeAdmin, "transactions", refuse)
    assert roll_back(Run(ports, plan), QUICK)


def test_what_an_interrupted_installation_lost_is_known_from_before_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391)
    for fake in cluster.nodes.values():
        fake.installation = FOUND
    install, cut = FakeRuntime.install, []

    def end_in_it(runtime: FakeRuntime, node: NodeSpec, *words: Any, held: Sequence[str]) -> None:
        install(runtime, node, *words)  # as a package manager leaves it
        if node.node_id not in cut:
            cut.append(node.node_id)
            raise TransientError("The connection broke.")
        install(runtime, node, *words, held=held)

    monkeypatch.setattr(FakeRuntime, "install", end_in_it)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    assert roll_release_steps(Run(ports, plan), QUICK)  # repeats a step
    assert {*cut} == {*cluster.nodes}
    assert {fake.installation.held for fake in cluster.nodes.values()} == {("kafka",)}


def test_a_node_is_not_rolled_back_into_another_quorum(tmp_path: Path) -> None:
    """The file was changed after the node started: its next process would count votes of itself alone."""
    cluster = FakeCluster(R391)
    for node in cluster.spec.nodes:
        cluster.nodes[node.node_id].config[VOTERS] = "1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003"
    ports, plan = upgraded(cluster, tmp_path)
    cluster.nodes[13].config[VOTERS] = "3@127.0.0.1:9003"
    with pytest.raises(RefusedError, match=r"cannot be rolled back now\. VOTERS-DIFFER: .* of node 13 names 3\."):
        roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R431}


def test_a_node_is_rolled_back_with_the_lines_of_the_plan_and_with_no_other_ones_about_access(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    fake = cluster.nodes[13]
    fake.config["super.users"] = "User:admin"
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    assert roll_release_steps(Run(ports, plan), QUICK)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "the clients do not like it")
    fake.in_use = {**fake.config, "super.users": HIDDEN}
    fake.start_files = (StartFile(path="/etc/kafka/x", kind=StartFileKind.CONFIGURATION, changed_at=1e12),)
    fake.config["super.users"] = "User:mallory"
    with pytest.raises(RefusedError, match=r"back now\. FILE-CHANGES-ACCESS: super\.users of node 13") as refused:
        roll_back(Run(ports, plan), QUICK)
    assert refused.value.remedy == (
        "Check that the line gives nobody more access than intended. No approval of a rollback covers it: write the "
        "earlier line into the file, then repeat the rollback."
    )
    fake.config["super.users"] = "User:admin"
    assert roll_back(Run(ports, plan), QUICK)


def test_a_node_is_not_rolled_back_to_a_folder_without_what_its_start_reads(tmp_path: Path) -> None:
    """Its agent was replaced in the folder of the new release alone."""
    cluster = FakeCluster(R391)
    service = ServiceSpec(host="kafka-1")
    nodes = (replace(node, service=service) if node.node_id == 13 else node for node in cluster.spec.nodes)
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    ports, plan = upgraded(cluster, tmp_path)
    now = StartPlace(path="/opt/kafka_2.13-4.3.1/agent.jar", state=PlaceState.FILE)
    gone = StartPlace(path="/opt/kafka_2.13-3.9.1/agent.jar", state=PlaceState.MISSING)
    agent = StartPath(kind=StartFileKind.AGENT, path="/opt/kafka/agent.jar", now=now, after={R391: gone})
    host = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={},
        releases=frozenset({R391}),
        symlink_can_switch=True,
        stop_timeout_s=1.0,  # a blocker of a plan, and none of the way back
        start_paths=(agent,),
    )
    cluster.hosts[13] = host
    with pytest.raises(RefusedError, match=r"Node 13 cannot be rolled back now\. START-PATH-SWITCHED: .*agent\.jar"):
        roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R431}
    there = (replace(agent, after={R391: replace(gone, state=PlaceState.FILE)}),)
    lost = NextOptions(lost=(LostOption(option="-Djava.security.auth.login.config=/etc/kafka/jaas.conf"),))
    cluster.hosts[13] = replace(host, start_paths=there, options={R391: lost})
    with pytest.raises(RefusedError, match=r"Node 13 cannot be rolled back now\. JVM-OPTION-LOST: .*jaas\.conf"):
        roll_back(Run(ports, plan), QUICK)
    cluster.hosts[13] = replace(host, start_paths=there, read_only=("/opt",), written=("/opt",))
    with pytest.raises(RefusedError, match=r"Node 13 cannot be rolled back now\. HOST-READ-ONLY: .*of /opt on host"):
        roll_back(Run(ports, plan), QUICK)
    cluster.hosts[13] = replace(host, start_paths=there, needs_reload="NeedDaemonReload=yes")
    with pytest.raises(RefusedError, match=r"Node 13 cannot be rolled back now\. UNIT-NOT-RELOADED: .*kafka\.service"):
        roll_back(Run(ports, plan), QUICK)
    cluster.hosts[13] = replace(host, start_paths=there)
    assert roll_back(Run(ports, plan), QUICK)


def test_it_stays_on_the_tolerant_release_when_the_intolerant_one_could_not_load_the_logs(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path)
    cluster.written_since.append(BY_4_3_1)
    with pytest.raises(RefusedError, match=r"rollback to 3\.4\.0 is not possible: .*__consumer_offsets-0.*version 4"):
        roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R341}
    report = build_report_of_run(Run(ports, plan))
    assert report.outcome == "stopped"
    assert "A rollback to 3.4.0 is not possible" in report.sentence


def test_it_goes_all_the_way_when_nothing_was_written_that_closes_it(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path)
    cluster.written_since.append(COMMIT)
    assert roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R340}


def rolled_with_share_groups(cluster: FakeCluster, home: Path) -> tuple[ClusterPorts, Plan]:
    """Rolled from 4.0.1 to 4.1.1, which writes a record at which 4.0 stops, also at share.version 0."""
    for node in cluster.nodes.values():
        node.config["group.share.enable"] = "true"
    ports = fake_ports(cluster, home)
    scan = ScanResult(
        cluster="fake",
        scanned_at=0.0,
        logs=(LogRange(topic=COMMIT.topic, partition=0, start=0, end=4),),
        classes=(COMMIT,),
        verdicts=evaluate_records(cluster.catalogue, (COMMIT,), list(cluster.catalogue)),
    )
    ports.run.attach(SCAN_BEFORE_ROLL, scan)
    plan = plan_upgrade(ports, Release(4, 1, 1), finalize=False)
    roll_and_regret(ports, plan)
    return ports, plan


def test_the_files_of_the_hosts_are_read_once_for_each_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(Release(4, 0, 1))
    ports, plan = rolled_with_share_groups(cluster, tmp_path)
    stopped, reads = len(cluster.stops), list[int]()

    def read(*words: Any) -> Any:
        reads.append(len(cluster.stops) - stopped)
        return readable_configs(*words)

    monkeypatch.setattr("kafka_rollout.roll.stop.readable_configs", read)
    assert roll_back(Run(ports, plan), QUICK)
    assert reads == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("rolled_back", [0, 2])
def test_share_groups_that_a_setting_enables_close_it_before_each_stop(tmp_path: Path, rolled_back: int) -> None:
    older = Release(4, 0, 1)
    cluster = FakeCluster(older)
    ports, plan = rolled_with_share_groups(cluster, tmp_path)
    stopped = len(cluster.stops)

    def a_client_makes_a_share_group() -> bool:
        if len(cluster.stops) == stopped + rolled_back and not cluster.written_since:
            cluster.written_since.append(replace(COMMIT, key_version=15, value_version=0, count=1, first_offset=4))
        return False

    with pytest.raises(RefusedError, match=r"rollback to 4\.0\.1 is not possible: .*unknown record type 15"):
        roll_back(Run(ports, plan), QUICK, stop_asked=a_client_makes_a_share_group)
    assert len(cluster.stops) == stopped + rolled_back
    assert [node.running for node in cluster.nodes.values()].count(older) == rolled_back


def test_a_replica_that_no_broker_returns_now_is_waited_for_and_closes_nothing(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path)
    cluster.unread_replicas = [unread_replica(COMMIT.topic, 0, 13)]
    with pytest.raises(
        TransientError, match=r"unknown whether 3\.4\.0 can load .*1 replica could not be read"
    ) as waits:
        roll_back(Run(ports, plan), QUICK)
    assert "Start broker 13" in waits.value.remedy
    assert not events_of(ports.run.events(), RollbackClosed)
    cluster.unread_replicas = []
    assert roll_back(Run(ports, plan), QUICK)


def unreadable(cluster: FakeCluster) -> None:
    cluster.logs_problem = "__consumer_offsets-0 has no leader."


@pytest.mark.parametrize(
    ("fail", "listed"),
    [
        (
            lambda cluster: setattr(cluster, "unread_replicas", [unread_replica(COMMIT.topic, 0, 13)]),
            "Broker 13 did not return its replicas of __consumer_offsets: it is unknown whether 3.4.0 can load them "
            "when this broker leads.",
        ),
        (unreadable, "The coordinator logs could not be read: it is unknown whether 3.4.0 can load them."),
    ],
    ids=["a replica", "no leader"],
)
def test_an_approver_who_has_read_what_is_unread_rolls_back_without_it(
    tmp_path: Path, fail: Callable[[FakeCluster], None], listed: str
) -> None:
    """A broker that fails on the newer release does not return its replicas before it is rolled back."""
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path)
    assert rollback_part(Run(ports, plan)) == []
    fail(cluster)
    with pytest.raises(TransientError) as waits:
        roll_back(Run(ports, plan), QUICK)
    assert "Or approve the rollback again: the request lists what could not be read" in waits.value.remedy
    text = "\n\n".join(rollback_part(Run(ports, plan)))
    assert is_listed(text, listed)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "Broker 13 is lost.", text=text)
    assert roll_back(Run(ports, plan), QUICK)
    (recorded,) = events_of(ports.run.events(), RollbackUnread)
    assert recorded.sentences == (listed,)


def test_what_was_asked_again_is_accepted_and_a_later_replica_is_not(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path)
    sentences = unread_replica_sentences([unread_replica(COMMIT.topic, 0, broker) for broker in (12, 13)], R340)
    assert find_unaccepted_of_rollback(ports.run.events(), plan.hash, sentences) == sentences
    ports.run.record(RollbackAskedAgain(by="alice", sentences=sentences[:1]))
    assert find_unaccepted_of_rollback(ports.run.events(), plan.hash, sentences) == sentences, "asked alone"
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "once more", text="an old text")
    assert find_unaccepted_of_rollback(ports.run.events(), plan.hash, sentences) == sentences[1:]
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.REJECTED, "no", text=f"- {sentences[0]}")
    assert find_unaccepted_of_rollback(ports.run.events(), plan.hash, sentences) == sentences


def test_what_an_approver_accepted_hides_no_record_that_the_older_release_cannot_load(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path)
    cluster.unread_replicas = [unread_replica(COMMIT.topic, 0, 13)]
    text = "\n\n".join(rollback_part(Run(ports, plan)))
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "Broker 13 is lost.", text=text)
    cluster.written_since.append(BY_4_3_1)
    with pytest.raises(RefusedError, match=r"rollback to 3\.4\.0 is not possible: .*version 4"):
        roll_back(Run(ports, plan), QUICK)


def test_logs_that_nobody_scanned_close_it(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports, plan = rolled(cluster, tmp_path, scanned=False)
    with pytest.raises(RefusedError, match="no scan shows whether such records exist"):
        roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R341}


def test_settings_that_the_older_release_would_make_unreadable_are_taken_away_by_a_person_first(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = upgraded(cluster, tmp_path)
    cluster.group_configs = {"billing": {"consumer.session.timeout.ms": "50000"}}
    stopped = list(cluster.stops)
    with pytest.raises(
        RefusedError, match=r"rollback to 3\.9\.1 is not possible now.*SETTINGS-NOT-KEPT: .*: billing"
    ) as refused:
        roll_back(Run(ports, plan), QUICK)
    assert "Save these settings and delete them. Then roll back again" in refused.value.remedy
    assert cluster.stops == stopped
    assert "SETTINGS-NOT-KEPT" in build_report_of_run(Run(ports, plan)).sentence
    cluster.group_configs = {}
    assert roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R391}


def test_settings_of_a_long_pause_are_found_in_the_middle_of_a_rollback(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = upgraded(cluster, tmp_path)
    before = len(cluster.stops)

    def pauses_between_nodes() -> bool:
        of_nodes = [event for event in ports.run.events() if not isinstance(event, StepBegan | StepEnded)]
        if len(cluster.stops) == before + 2 and isinstance(of_nodes[-1], GatePassed):
            cluster.clock.sleep(4000.0)
            cluster.group_configs = {"billing": {"consumer.session.timeout.ms": "50000"}}
        return False

    with pytest.raises(RefusedError, match="SETTINGS-NOT-KEPT"):
        roll_back(Run(ports, plan), QUICK, stop_asked=pauses_between_nodes)
    assert len(cluster.stops) == before + 2


def test_a_value_that_would_stop_the_older_release_is_removed_by_a_person_first(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = upgraded(cluster, tmp_path)
    problem = ConfigProblem(
        kind=ConfigKind.TOPIC,
        name="orders",
        settings=(("message.format.version", "3.9-IV0"),),
        check=ConfigCheck.VALUE,
        reason="Version 3.9-IV0 is not a valid version",
    )
    cluster.dynamic_config_problems[R391] = (problem, replace(problem, check=ConfigCheck.NAME))
    stopped = list(cluster.stops)
    with pytest.raises(RefusedError, match=r"not possible now\. DYNAMIC-CONFIG-REJECTED: Topic orders") as refused:
        roll_back(Run(ports, plan), QUICK)
    assert "DYNAMIC-CONFIG-UNKNOWN" not in refused.value.sentence
    assert refused.value.remedy.endswith("Then roll back again.")
    assert cluster.stops == stopped
    del cluster.dynamic_config_problems[R391]
    assert roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R391}


@pytest.mark.parametrize(
    ("what", "why"), [("acl", "TWO_PHASE_COMMIT"), ("metadata", "TWO_PHASE_COMMIT"), ("log", "would stop at offset 7")]
)
def test_metadata_that_the_older_release_would_destroy_refuses_a_rollback_before_its_first_stop(
    tmp_path: Path, what: str, why: str
) -> None:
    cluster = FakeCluster(R391)
    ports, plan = upgraded(cluster, tmp_path)
    stopped = list(cluster.stops)
    if what == "log":
        assert cluster.leader is not None
        cluster.unreadable = {(cluster.leader, R391)}
    elif what == "acl":
        cluster.acls = {read_acl("User:bob", resource_type=5, operation=15)}
        cluster.acl_differences[R391] = AclDifferences(unknown=tuple(cluster.acls))
    else:
        cluster.losses = [Loss("operation", "User:bob on tx", "User:bob on tx loses its operation: TWO_PHASE_COMMIT.")]
    with pytest.raises(RefusedError, match=rf"A rollback to 3\.9\.1 is not possible now.*{why}") as refused:
        roll_back(Run(ports, plan), QUICK)
    assert "bug" not in refused.value.remedy
    assert cluster.stops == stopped
    cluster.acls, cluster.acl_differences, cluster.losses, cluster.unreadable = set(), {}, [], set()
    assert roll_back(Run(ports, plan), QUICK)


def test_whoever_stays_after_a_refused_way_back_has_rolled_and_stopped_nowhere(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = upgraded(cluster, tmp_path)
    cluster.group_configs = {"billing": {"consumer.session.timeout.ms": "50000"}}
    with pytest.raises(RefusedError, match="is not possible"):
        roll_back(Run(ports, plan), QUICK)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "then it stays")
    assert roll_release_steps(Run(ports, plan), QUICK)
    compare(ports)
    report = build_report_of_run(Run(ports, plan))
    assert report.outcome == "rolled_not_finalized"
    assert "Every node runs 4.3.1. Not finalized yet" in report.sentence


def log_line(level: str, message: str) -> str:
    return (
        f"[2026-11-24 02:14:07,123] {level} {message} (org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime)"
    )


MOVED = "__consumer_offsets-0"
FINISHED = log_line("INFO", f"Finished loading of metadata from {MOVED} with epoch 3 in 5ms where 0ms was spent.")
FAILED = log_line("ERROR", f"Failed to load metadata from {MOVED} with epoch 3 due to unknown record type 15.")


@pytest.mark.parametrize(
    ("answer", "logged", "waits_for"),
    [
        ("NONE", FINISHED, ""),
        ("NOT_COORDINATOR", FINISHED, rf"node 13: does not serve 1 of 1 coordinator partition: {MOVED}"),
        ("NONE", FAILED, "node 13: the log shows that the broker could not load .*unknown record type 15"),
        ("NONE", "", rf"node 13: the log does not show the load of {MOVED}"),
    ],
    ids=["loaded", "not served", "failed", "not shown"],
)
def test_the_next_node_stops_only_if_what_moved_to_an_older_broker_is_loaded(
    tmp_path: Path, answer: str, logged: str, waits_for: str
) -> None:
    """A client can write what the older release cannot load between the reading of the logs and the stop."""
    cluster = FakeCluster(R391)
    cluster.add_partition("__consumer_offsets", 0, [11, 12, 13])
    ports, plan = upgraded(cluster, tmp_path)
    stopped = len(cluster.stops)

    def moves() -> bool:
        if len(cluster.stops) == stopped + 1:
            cluster.topics[MOVED] = replace(cluster.topics[MOVED], leader=12)
        if len(cluster.stops) == stopped + 2 and not cluster.coordinator_answers:
            cluster.topics[MOVED] = replace(cluster.topics[MOVED], leader=13)
            cluster.coordinator_answers[MOVED] = answer
            cluster.nodes[13].log += [logged] if logged else []
        if len(cluster.stops) == stopped + 3:
            cluster.nodes[11].log.append(FINISHED)
        return False

    run = Run(ports, plan)
    if not waits_for:
        assert roll_back(run, QUICK, stop_asked=moves)
        return
    with pytest.raises(RefusedError, match=rf"gate before node 11 failed .*coordinators loaded: {waits_for}"):
        roll_back(run, QUICK, stop_asked=moves)
    assert cluster.stops[stopped:] == [13, 12]
    if answer == "NONE":
        accept_doubts(ports, find_doubts(ports.run.events()), "alice", "The group is not needed.")
    else:
        cluster.coordinator_answers[MOVED] = "NONE"
    assert roll_back(run, QUICK, stop_asked=moves)


@pytest.mark.parametrize(
    ("answer", "logged", "waits_for"),
    [
        ("NONE", FINISHED, ""),
        ("NOT_COORDINATOR", FINISHED, rf"does not serve 1 of 1 coordinator partition: {MOVED}"),
        ("NONE", FAILED, "the log shows that the broker could not load .*unknown record type 15"),
        ("NONE", "", rf"the log does not show the load of {MOVED}"),
    ],
    ids=["loaded", "not served", "failed", "not shown"],
)
def test_a_rollback_ends_only_if_what_its_last_stop_moved_is_loaded(
    tmp_path: Path, answer: str, logged: str, waits_for: str
) -> None:
    """The last node is a combined one. The new leader is the preferred one, so the partition stays there."""
    cluster = FakeCluster(R391, spec=COMBINED)
    ports, plan = upgraded(cluster, tmp_path)
    first, _, last = (one.node_id for one in plan.release_steps[0].reversed().order)
    cluster.add_partition("__consumer_offsets", 0, [first, last])
    cluster.topics[MOVED] = replace(cluster.topics[MOVED], leader=last)
    stop = cluster.stop

    def moves(node_id: int) -> None:
        stop(node_id)
        if node_id == last:
            assert cluster.topics[MOVED].leader == first
            cluster.coordinator_answers[MOVED] = answer
            cluster.nodes[first].log += [logged] if logged else []

    cluster.stop = moves  # type: ignore[method-assign]
    run = Run(ports, plan)
    if not waits_for:
        assert roll_back(run, QUICK)
        return
    why = rf"gate after node {last} failed .*other coordinators loaded: node {first}: {waits_for}"
    with pytest.raises(RefusedError, match=why):
        roll_back(run, QUICK)
    if answer == "NONE":
        accept_doubts(ports, find_doubts(ports.run.events()), "alice", "The group is not needed.")
    else:
        cluster.coordinator_answers[MOVED] = "NONE"
    assert roll_back(run, QUICK)


def test_a_partition_that_the_cluster_moves_from_a_node_of_the_newer_release_must_be_shown_as_loaded(
    tmp_path: Path,
) -> None:
    """The node that led it has not stopped yet, so no record of a stop names it."""
    cluster = FakeCluster(R391)
    cluster.add_partition("__consumer_offsets", 0, [11, 12, 13])
    ports, plan = upgraded(cluster, tmp_path)
    stopped = len(cluster.stops)

    def moves() -> bool:
        if len(cluster.stops) == stopped + 1:  # node 13 runs the older release again
            cluster.topics[MOVED] = replace(cluster.topics[MOVED], leader=13)
        return False

    with pytest.raises(RefusedError, match=r"gate before node 12 failed .*node 13: the log does not show the load of"):
        roll_back(Run(ports, plan), QUICK, stop_asked=moves)
