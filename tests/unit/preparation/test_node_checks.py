"""What a plan checks of each node's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import CheckOf, Severity
from kafka_rollout.model.configs import HIDDEN, DynamicConfigs
from kafka_rollout.model.host_state import (
    DirectoryFormat,
    DirectoryIdentity,
    HostPath,
    HostState,
    OwnName,
    StartFile,
    StartFileKind,
)
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.quorum_addresses import Address
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.changes_on_disk import unapproved_changes
from kafka_rollout.preparation.frozen_plan import refuse_new_blockers
from kafka_rollout.preparation.node_checks import check_hosts, host_findings
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import check_release, checks_of
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_downgrade, plan_upgrade

R381, R391, R431 = Release(3, 8, 1), Release(3, 9, 1), Release(4, 3, 1)
VOTERS = "controller.quorum.voters"
ALL_VOTERS = "1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003"
FORMAT = DirectoryFormat(meta=b"version=1", bootstrap=b"records", has_metadata_log=True)


@pytest.mark.parametrize(
    ("formats", "target", "expected"),
    [
        pytest.param({"/data": FORMAT}, R431, {"/data": FORMAT}, id="upgrade"),
        pytest.param({"/data": FORMAT}, R381, {"/data": replace(FORMAT, bootstrap=None)}, id="downgrade"),
        pytest.param(None, R431, None, id="unknown-upgrade"),
        pytest.param(None, R381, None, id="unknown-downgrade"),
    ],
)
def test_directories_are_checked_with_the_format_that_the_runtime_reads(
    tmp_path: Path,
    formats: dict[str, DirectoryFormat] | None,
    target: Release,
    expected: dict[str, DirectoryFormat] | None,
) -> None:
    """A path of the configuration names another directory on this machine than on the host of the node.

    A downgrade lowers bootstrap.checkpoint itself.
    """
    cluster = FakeCluster(R391)
    cluster.formats = formats
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, target, finalize=False) if target > R391 else plan_downgrade(ports, target)
    assert [start.formats for start in cluster.checked_starts] == [expected] * len(ports.cluster.nodes)
    (release_step,) = plan.release_steps
    ports.run.save_fingerprints({})  # before a stop, a configuration that changed is checked again
    host_findings(Run(ports, plan), release_step, ports.cluster.nodes[0], {})
    assert [start.formats for start in cluster.checked_starts] == [expected] * (len(ports.cluster.nodes) + 1)


@pytest.mark.parametrize("arguments", [("java",), None], ids=["missing", "unknown"])
def test_an_oauth_url_that_the_jvm_does_not_allow_blocks_the_plan_and_the_stop(
    tmp_path: Path, arguments: tuple[str, ...] | None
) -> None:
    url = "listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp/jwks"
    cluster = FakeCluster(R391)
    for fake in cluster.nodes.values():
        fake.config |= {"sasl.enabled.mechanisms": "OAUTHBEARER", url: "https://idp/jwks"}
        fake.jvm_arguments = ("java", allowed)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    (release_step,) = plan.release_steps
    node = ports.cluster.nodes[0]
    assert host_findings(Run(ports, plan), release_step, node, {}) == ()
    cluster.nodes[node.node_id].jvm_arguments = arguments
    (found,) = plan_upgrade(ports, R431, finalize=False).blockers
    assert (found.code, found.subject) == ("JVM-PROPERTY-MISSING", f"node {node.node_id}, release 4.3.1")
    assert allowed in found.remedy
    assert [one.code for one in host_findings(Run(ports, plan), release_step, node, {})] == ["JVM-PROPERTY-MISSING"]


@pytest.mark.parametrize("run_of", [RunOf.UPGRADE, RunOf.RESTART])
@pytest.mark.parametrize(
    ("node_id", "change", "code"),
    [
        (3, {VOTERS: "3@127.0.0.1:9003"}, "VOTERS-DIFFER"),
        (12, {VOTERS: "2@127.0.0.1:9002,3@127.0.0.1:9003"}, "VOTERS-DIFFER"),
        (12, {VOTERS: ALL_VOTERS.replace("9003", "9002")}, "CONTROLLER-ADDRESS-DIFFERS"),
        (12, {"node.id": "13"}, "NODE-DIFFERS"),
        (3, {"controller.listener.names": "OTHER"}, "CONTROLLER-LISTENERS-DIFFER"),
    ],
)
def test_a_file_that_disagrees_with_the_others_blocks_the_check_the_plan_and_every_stop(
    tmp_path: Path, run_of: RunOf, node_id: int, change: dict[str, str], code: str
) -> None:
    cluster = FakeCluster(R391)
    for node in cluster.spec.nodes:
        listeners = {"listeners": f"CONTROLLER://{node.controller_address}"} if node.is_controller else {}
        cluster.nodes[node.node_id].config |= {
            VOTERS: ALL_VOTERS,
            "controller.listener.names": "CONTROLLER",
            **listeners,
        }
    ports = fake_ports(cluster, tmp_path)
    request = Request(target=None if run_of is RunOf.RESTART else R431, scan=False)
    plan = plan_change(ports, request, run_of)
    assert plan.blockers == ()
    release_step = plan.release_steps[0]
    stops = [(release_step, ports.cluster.node(one.node_id)) for one in release_step.order]
    refuse_new_blockers(Run(ports, plan), stops[0])
    cluster.nodes[node_id].config |= change
    for stop in (stops[0], None):
        with pytest.raises(RefusedError, match=f"The approval is no longer valid.*{code}"):
            refuse_new_blockers(Run(ports, plan), stop)
    assert {one.code for one in plan_change(ports, request, run_of).blockers} == {code}
    report = check_release(ports, R391 if run_of is RunOf.RESTART else R431, checks_of([*CheckOf]), complete_with="")
    assert [entry.check.id for entry in report.entries if code in {one.code for one in entry.findings}] == [
        "between-nodes"
    ]


def test_before_a_stop_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_change(ports, Request(target=R381, scan=False), RunOf.DOWNGRADE)
    cluster.dynamic_configs = DynamicConfigs(topics={"orders": {"retention.ms": "1000"}})  # changed since the plan
    read, config = list[int](), FakeRuntime.config

    def reads(runtime: FakeRuntime, node: NodeSpec) -> Mapping[str, str]:
        read.append(node.node_id)
        return config(runtime, node)

    monkeypatch.setattr(FakeRuntime, "config", reads)
    refuse_new_blockers(Run(ports, plan), (plan.release_steps[0], ports.cluster.node(12)))
    assert sorted(read) == sorted(node.node_id for node in ports.cluster.nodes)


@pytest.mark.parametrize("run_of", [RunOf.UPGRADE, RunOf.DOWNGRADE, RunOf.RESTART])
def test_a_changed_line_is_in_every_plan_and_a_dangerous_one_is_not_brought_into_effect_unapproved(
    tmp_path: Path, run_of: RunOf
) -> None:
    cluster = FakeCluster(R391, finalized={"metadata.version": 20})
    ports = fake_ports(cluster, tmp_path)
    target = {RunOf.UPGRADE: R431, RunOf.DOWNGRADE: R381, RunOf.RESTART: None}[run_of]
    request = Request(target=target, scan=False)

    def change(node_id: int, **lines: str) -> None:
        node = cluster.nodes[node_id]
        node.in_use, node.config = {}, {name.replace("_", "."): line for name, line in lines.items()}

    def found(plan: Plan) -> list[tuple[str, str]]:
        return [one.identity for one in plan.findings if one.code.startswith("FILE-")]

    assert found(plan_change(ports, request, run_of)) == []
    change(12, log_retention_ms="60000", num_io_threads="16")
    plan = plan_change(ports, request, run_of)
    assert found(plan) == [
        ("FILE-CHANGES-DATA", "log.retention.ms=60000 of node 12"),
        ("FILE-NOT-READ", "setting num.io.threads"),
    ]
    release_step = plan.release_steps[0]
    stop = release_step, ports.cluster.node(12)
    assert unapproved_changes(Run(ports, plan), [stop[1]], observe(ports), {}).findings == ()
    for value in ("60001", "1"):
        change(12, log_retention_ms=value, num_io_threads="32")
        (one,) = unapproved_changes(Run(ports, plan), [stop[1]], observe(ports), {}).findings
        assert (one.code, one.severity) == ("FILE-CHANGES-DATA", Severity.BLOCKER)
    for line in ({"allow_everyone_if_no_acl_found": "true"}, {"ssl_client_auth": "requested"}):
        change(12, log_retention_ms="60000", **line)
        (one,) = unapproved_changes(Run(ports, plan), [stop[1]], observe(ports), {}).findings
        assert (one.code, one.severity) == ("FILE-CHANGES-ACCESS", Severity.BLOCKER)
    change(12, log_retention_ms="1")
    with pytest.raises(RefusedError, match=r"FILE-CHANGES-DATA log\.retention\.ms=1 of node 12"):
        refuse_new_blockers(Run(ports, plan), stop)
    report = check_release(ports, target or R391, checks_of([*CheckOf]), complete_with="")
    assert [one.check.id for one in report.entries if any(f.code == "FILE-CHANGES-DATA" for f in one.findings)] == [
        "pending-configuration"
    ]


@pytest.mark.parametrize("read_before", [True, False], ids=["the process has read it", "the plan has it"])
@pytest.mark.parametrize("run_of", [RunOf.UPGRADE, RunOf.RESTART])
def test_a_file_that_is_written_again_with_its_approved_content_needs_no_new_approval(
    tmp_path: Path, run_of: RunOf, read_before: bool
) -> None:
    """Software that manages files can write the same lines again, and Kafka hides what its process has read of them."""
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    fake, login = cluster.nodes[12], "listener.name.external.plain.sasl.jaas.config"
    lines = {"super.users": "User:admin", login: 'Plain required user_a="secret";'}
    fake.config = dict(lines)
    fake.in_use = dict.fromkeys(lines, HIDDEN) if read_before else {}

    def changes(at: float, **changed: str) -> list[tuple[str, str]]:
        fake.config = {**lines, **{name.replace("_", "."): line for name, line in changed.items()}}
        fake.start_files = (StartFile(path="/etc/kafka/x", kind=StartFileKind.CONFIGURATION, changed_at=at),)
        found = unapproved_changes(Run(ports, plan), [ports.cluster.node(12)], observe(ports), {})
        return [one.identity for one in found.findings]

    fake.start_files = (
        StartFile(path="/etc/kafka/x", kind=StartFileKind.CONFIGURATION, changed_at=0.5 if read_before else 1000.0),
    )
    plan = plan_change(ports, Request(target=None if run_of is RunOf.RESTART else R431, scan=False), run_of)
    assert changes(2000.0) == []
    later = ("FILE-CHANGES-ACCESS", f"{login}=as in the file of 1970-01-01T00:33:20Z of node 12")
    users = ("FILE-CHANGES-ACCESS", "super.users=User:admin;User:b of node 12")
    assert changes(2000.0, super_users="User:admin;User:b") == [later, users]


@pytest.mark.parametrize(
    ("ids", "code"), [({"directory_id": "id-2"}, "DIRECTORY-ID-TWICE"), ({"cluster_id": "other"}, "CLUSTER-ID-DIFFERS")]
)
def test_a_directory_that_was_copied_blocks_the_plan_and_the_stop(
    tmp_path: Path, ids: dict[str, str], code: str
) -> None:
    copied: dict[str, str] = {}

    class WithDirectories(FakeRuntime):
        def directory_formats(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
            own = copied if node.node_id == 1 else {}
            identity = DirectoryIdentity(**{"path": "/data", "directory_id": f"id-{node.node_id}", **own})
            return {"/data": DirectoryFormat(identity=identity)}

    cluster = FakeCluster(R391)
    ports = replace(fake_ports(cluster, tmp_path), runtime=WithDirectories(cluster))
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    (release_step,) = plan.release_steps
    stop = release_step, ports.cluster.node(1)
    refuse_new_blockers(Run(ports, plan), stop)
    copied |= ids
    with pytest.raises(RefusedError, match=code):
        refuse_new_blockers(Run(ports, plan), stop)
    assert {one.code for one in plan_upgrade(ports, R431, finalize=False).blockers} == {code}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"paths": (HostPath(path="/etc/kafka", mode=0o40755, user_id=101, owner="kafka"),)}, "HOST-PATH-UNSAFE"),
        ({"unknown": ("TimeoutStopSec of the unit",)}, "HOST-VALUE-UNKNOWN"),
        ({"denied": ("(root) NOPASSWD: /usr/bin/x",)}, "HOST-RIGHT-MISSING"),
    ],
)
def test_what_changes_on_a_host_after_the_plan_blocks_the_stop(
    tmp_path: Path, change: dict[str, object], code: str
) -> None:
    cluster = FakeCluster(R391)
    node = replace(cluster.spec.nodes[0], service=ServiceSpec(host="kafka-1"))
    cluster.spec = replace(cluster.spec, nodes=(node, *cluster.spec.nodes[1:]))
    host = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={},
        releases=frozenset({R431}),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
        paths=(HostPath(path="/etc/kafka", mode=0o40755, user_id=0, owner="root"),),
    )
    cluster.hosts[node.node_id] = host
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert plan.blockers == ()
    stop = plan.release_steps[0], node
    refuse_new_blockers(Run(ports, plan), stop)
    cluster.hosts[node.node_id] = replace(host, **change)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=f"The approval is no longer valid.*{code} node {node.node_id}"):
        refuse_new_blockers(Run(ports, plan), stop)


def test_a_node_that_would_register_with_another_name_than_the_cluster_has_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391)
    broker = cluster.spec.brokers[0].node_id
    cluster.hosts[broker] = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={},
        releases=frozenset({R431}),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
        own_name=OwnName("h-new", "h-new.corp", (9092,)),
    )
    ports = fake_ports(cluster, tmp_path)

    def found(address: str) -> list[str]:
        known = {broker: Address(address.partition(":")[0], int(address.partition(":")[2]))}
        registered = replace(ports.admin.registered(), broker_addresses=known)
        monkeypatch.setattr(FakeAdmin, "registered", lambda *_, **__: registered)
        return [one.code for one in check_hosts(ports, (R431,)).findings if one.code == "OWN-NAME-CHANGED"]

    assert found("h-old.corp:9092") == ["OWN-NAME-CHANGED"]
    assert found("h-new.corp:9092") == []
    assert found("h-old.corp:9093") == []  # of another listener, which has a host
