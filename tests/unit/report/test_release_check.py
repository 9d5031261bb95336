"""The check of a release runs the checks of a plan without a run, and stores nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.lock import fence_cluster_ports
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.model.rights import LIST_PARTITIONS, READING, MissingRight
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.findings.runs_in_progress import RunInProgress
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import CHECKED_KINDS, check_release, checks_of, direction_to
from kafka_rollout.report.check_report import CheckEntry, ClusterCheckReport, Result
from kafka_rollout.run.memory import MemoryRunStore, NoLock
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.kafka_classes import FakeClasses, asked_alone
from tests.fakes.ports import FakeAdmin, hidden_bench
from tests.records import run_ids
from tests.unit import builders

ALL = checks_of(CHECKED_KINDS)


@pytest.fixture
def ports(cluster: FakeCluster, tmp_path: Path) -> ClusterPorts:
    cluster.small_scan = ScanResult(cluster="c", scanned_at=0.0, logs=(), classes=(), verdicts=())
    stored = hidden_bench(cluster, tmp_path, metrics=True)
    return fence_cluster_ports(replace(stored, run=MemoryRunStore(), lock=NoLock()))


def _check(ports: ClusterPorts, target: Release = R431, **options: object) -> ClusterCheckReport:
    return check_release(ports, target, options.pop("chosen", ALL), complete_with="Add metrics.", **options)


def _entry(report: ClusterCheckReport, check: str) -> CheckEntry:
    return next(entry for entry in report.entries if entry.check.id == check)


def test_a_well_cluster_has_no_blocker_and_each_check_names_what_it_examined(
    ports: ClusterPorts, tmp_path: Path
) -> None:
    report = _check(ports)
    assert (report.change, report.path, report.has_blockers) == ("upgrade", ("3.9.1", "4.3.1"), False)
    assert _entry(report, "partition-availability").examined.endswith("partitions")
    assert _entry(report, "coordinator-logs").result is Result.OK
    assert run_ids(tmp_path, ports.cluster.name) == ()


def test_every_check_of_an_upgrade_and_of_the_command_runs(ports: ClusterPorts) -> None:
    from kafka_rollout.base.findings import CheckOf

    # Of levels that are lowered, of a run that stops nodes, and of runs that raise levels.
    apart = {
        "feature-users",
        "feature-levels-requested",
        "maintenance-windows",
        "outside-conditions",
        "earlier-runs",
    }
    wanted = {check.id for check in checks_of([CheckOf.UPGRADE, CheckOf.CHECK])} - apart
    assert {entry.check.id for entry in _check(ports).entries} == wanted


def test_an_older_target_is_a_downgrade_and_the_same_one_a_restart(cluster: FakeCluster, ports: ClusterPorts) -> None:
    down = _check(ports, Release(3, 4, 1))
    assert down.change == "downgrade"
    assert _entry(down, "metadata-logs").result is Result.UNKNOWN
    same = _check(ports, R391)
    assert (same.change, same.way) == ("restart", "restart on 3.9.1")


@pytest.mark.parametrize("target", [R391, R431])
def test_a_release_whose_defects_nobody_read_is_a_finding_of_a_restart_too(
    ports: ClusterPorts, target: Release
) -> None:
    unread = replace(ports, catalogue=replace(ports.catalogue, reviews=()))
    entry = _entry(_check(unread, target), "known-defects")
    codes = {(one.code, one.subject) for one in entry.findings}
    assert ("RELEASE-NOT-REVIEWED", f"release {target}") in codes


def test_a_run_in_progress_is_named_and_a_store_without_an_answer_is_unknown(ports: ClusterPorts) -> None:
    run = RunInProgress(name="12", by="anna", since="T", doing="rolling, 3.9.1 → 4.3.1", command="status -c c")
    entry = _entry(_check(ports, run_in_progress=lambda: run), "runs-in-progress")
    (found,) = entry.findings
    assert (entry.result, found.code, found.subject) == (Result.WARNING, "RUN-IN-PROGRESS", "run 12")
    assert "started by anna, is in progress since T: rolling, 3.9.1 → 4.3.1." in found.sentence
    assert "`status -c c`" in found.remedy
    assert _entry(_check(ports, run_in_progress=lambda: None), "runs-in-progress").result is Result.OK

    def unreadable() -> None:
        raise TransientError("The database does not answer.")

    for read in (None, unreadable):
        assert _entry(_check(ports, run_in_progress=read), "runs-in-progress").result is Result.UNKNOWN


@pytest.mark.parametrize(
    ("running", "target", "run_of"),
    [
        ({R391}, R431, RunOf.UPGRADE),
        ({R391, R431}, R431, RunOf.UPGRADE),
        ({R431}, R391, RunOf.DOWNGRADE),
        ({R391, R431}, R391, RunOf.DOWNGRADE),
        ({R431}, R431, RunOf.RESTART),
        (set(), R431, RunOf.UPGRADE),
    ],
)
def test_the_direction_follows_from_what_runs(running: set[Release], target: Release, run_of: RunOf) -> None:
    nodes = {number: builders.node_state(number, release) for number, release in enumerate(sorted(running), 1)}
    assert direction_to(target, replace(builders.state(), nodes=nodes)) is run_of


@pytest.mark.parametrize("target", [R431, Release(3, 4, 1)])
def test_the_questions_of_a_check_to_kafka_s_classes_share_processes(ports: ClusterPorts, target: Release) -> None:
    _check(ports, target)
    assert asked_alone(ports) == []


def test_a_long_coordinator_log_is_unknown_and_other_checks_are_made(cluster: FakeCluster, ports: ClusterPorts) -> None:
    cluster.small_scan = None
    entry = _entry(_check(ports), "coordinator-logs")
    assert (entry.result, entry.findings) == (Result.UNKNOWN, ())
    assert "more than 200,000 records" in entry.reasons[0]


def test_without_the_target_s_classes_the_configuration_is_unknown(
    ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise TransientError("The jars cannot be downloaded.")

    monkeypatch.setattr(FakeClasses, "start_problems", unavailable)
    entry = _entry(_check(ports), "node-configuration")
    assert entry.result is Result.UNKNOWN
    assert "The jars cannot be downloaded." in entry.reasons[0]


def test_a_missing_right_is_a_warning_with_its_command(cluster: FakeCluster, ports: ClusterPorts) -> None:
    cluster.missing_rights = [MissingRight(right=READING[0], principal="User:reader")]
    report = _check(ports)
    entry = _entry(report, "user-rights")
    assert entry.result is Result.WARNING
    assert "kafka-acls.sh" in entry.groups[0].remedy
    assert "Grant the rights that user-rights names." in report.sentence


def test_a_missing_right_makes_only_the_checks_unknown_that_need_it(cluster: FakeCluster, ports: ClusterPorts) -> None:
    (right,) = (one for one in READING if str(one) == "DESCRIBE on TRANSACTIONAL_ID *")
    cluster.missing_rights = [MissingRight(right=right, principal="User:reader")]
    report = _check(ports)
    for unknown in ("groups-and-transactions", "group-types", "query-responses"):
        assert _entry(report, unknown).reasons, unknown
    for known in ("metadata-quorum", "partition-availability", "node-registration"):
        assert _entry(report, known).result is Result.OK, known


def test_without_the_settings_of_topics_their_partitions_are_still_checked(
    cluster: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, alone = next(iter(cluster.topics.items()))
    cluster.topics[name] = replace(alone, replicas=(alone.leader,), isr=(alone.leader,))
    (right,) = (one for one in READING if str(one) == "DESCRIBE_CONFIGS on TOPIC *")
    cluster.missing_rights = [MissingRight(right=right, principal="User:reader")]
    read = FakeAdmin.partitions

    def refused(admin: FakeAdmin, *, min_isr_age_s: float | None = 0.0, **options: Any) -> object:
        if min_isr_age_s is not None:
            raise RefusedError("It does not allow the configuration of topics.")
        return read(admin, min_isr_age_s=None, **options)

    monkeypatch.setattr(FakeAdmin, "partitions", refused)
    entry = _entry(_check(ports), "partition-availability")
    assert [(one.code, one.severity) for one in entry.findings] == [("RF-ONE-TOPIC", "blocker")]
    assert entry.is_unknown_in_part
    assert any("min.insync.replicas" in reason for reason in entry.reasons)
    assert "min.insync.replicas unknown" in entry.findings[0].sentence


def test_a_topic_that_an_acl_hides_makes_the_partitions_unknown(cluster: FakeCluster, ports: ClusterPorts) -> None:
    hidden = replace(LIST_PARTITIONS, name="payroll")
    cluster.missing_rights = [MissingRight(right=hidden, principal="User:reader", denied_to=("User:reader",))]
    report = _check(ports)
    (found,) = _entry(report, "user-rights").findings
    assert found.sentence.startswith("An ACL denies User:reader the right DESCRIBE on TOPIC payroll")
    assert _entry(report, "partition-availability").result is Result.UNKNOWN
    assert report.exit_code == 5


@pytest.mark.parametrize("silent", [(11,), (12, 13)])
def test_a_node_that_does_not_respond_is_a_blocker_and_ends_no_other_check(
    cluster: FakeCluster, ports: ClusterPorts, silent: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.silent |= set(silent)

    def config(admin: FakeAdmin, node: NodeSpec) -> dict[str, str]:
        if node.node_id in silent:
            raise TransientError(f"Node {node.node_id} cannot be reached: no answer within 10.0 s.")
        return dict(cluster.nodes[node.node_id].config)

    monkeypatch.setattr(FakeAdmin, "node_config", config)
    report = _check(ports)
    found = [one for one in _entry(report, "node-registration").findings if one.code == "NODE-DOWN"]
    assert [one.subject for one in found] == [f"node {node_id}" for node_id in silent]
    assert (len(report.entries) > 30, report.exit_code) == (True, 3)


def test_one_check_alone_and_progress(ports: ClusterPorts) -> None:
    lines: list[str] = []
    chosen = [check for check in ALL if check.id == "metadata-quorum"]
    report = _check(ports, chosen=chosen, on_progress=lines.append)
    assert [entry.check.id for entry in report.entries] == ["metadata-quorum"]
    assert report.left_out > 20
    assert lines[0] == "reading the state of 3 nodes"


def test_a_change_through_the_ports_of_a_check_is_refused(ports: ClusterPorts) -> None:
    with pytest.raises(RefusedError, match="it changes nothing"):
        ports.admin.update_features({"metadata.version": 25}, validate_only=False)
