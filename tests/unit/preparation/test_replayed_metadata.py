"""What the releases of a path make of the metadata, in the plan of an upgrade and of a downgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import CheckState
from kafka_rollout.metadata_log.losses import ACCESS, Loss, LossReport
from kafka_rollout.model.acls import AUTHORIZER, STANDARD_AUTHORIZER, AccessChange, AclDifferences, Action
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.downgrade_scans import LOSSES_CHECK, METADATA_LOGS_CHECK
from kafka_rollout.preparation.lost_metadata import report_losses
from kafka_rollout.report.check_registry import check_release
from kafka_rollout.report.check_report import Result
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_downgrade, plan_upgrade

LOSS = Loss("operation", "User:bob on tx", "User:bob on tx loses its operation: TWO_PHASE_COMMIT.")


def result(plan: Plan) -> tuple[CheckState, str]:
    (one,) = (one for one in plan.checks if one.id == "metadata-logs")
    return one.state, one.reason


def test_an_upgrade_is_refused_if_the_target_cannot_start_with_the_metadata(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    plan = plan_upgrade(fake_ports(cluster, tmp_path / "1"), R431, finalize=False)
    assert "METADATA-LOG-NOT-REPLAYABLE" not in {one.code for one in plan.findings}
    assert cluster.leader is not None
    cluster.unreadable = {(cluster.leader, R431)}
    plan = plan_upgrade(fake_ports(cluster, tmp_path / "2"), R431, finalize=False)
    (found,) = (one for one in plan.blockers if one.code == "METADATA-LOG-NOT-REPLAYABLE")
    assert (found.subject, "4.3.1 would stop at offset 7" in found.sentence) == ("4.3.1", True)


def test_an_upgrade_without_a_readable_log_does_not_know(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.unseen = {node.node_id for node in cluster.spec.controllers}
    state, reason = result(plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False))
    assert (state, "cannot read files on any controller" in reason) == (CheckState.NOT_OBSERVABLE, True)


@pytest.mark.parametrize(("unsafe", "severity"), [(False, "blocker"), (True, "warning")])
def test_an_online_downgrade_names_what_the_older_release_does_not_keep(
    tmp_path: Path, unsafe: bool, severity: str
) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [LOSS]
    ports = fake_ports(cluster, tmp_path)
    plan, report = report_losses(Run(ports, plan_downgrade(ports, R391, unsafe=unsafe)))
    assert report is not None
    assert (report.from_level, report.to_level, report.readers) == (21, 21, ("3.9.1",))
    (found,) = (one for one in plan.findings if one.code == "METADATA-LOST")
    assert (found.severity, found.sentence) == (severity, LOSS.sentence)


def test_decisions_that_the_plan_names_are_not_named_twice(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.acls = {read_acl("User:alice", host="10.0.0.0/8")}
    change = AccessChange(principal="User:alice", more=True, actions={Action(3, 2, "orders"): ("10.0.0.0",)}, causes=())
    cluster.losses = [Loss(ACCESS, "User:alice", "User:alice gains READ on topic orders.")]
    ports = fake_ports(cluster, tmp_path / "1")
    plan, _ = report_losses(Run(ports, plan_downgrade(ports, R391)))
    assert [one.code for one in plan.findings if one.code in {"METADATA-LOST", "ACL-MEANS-MORE"}] == ["METADATA-LOST"]
    for node in cluster.nodes.values():
        node.config[AUTHORIZER] = STANDARD_AUTHORIZER
    cluster.acl_differences[R391] = AclDifferences(changes=(change,))
    ports = fake_ports(cluster, tmp_path / "2")
    plan, _ = report_losses(Run(ports, plan_downgrade(ports, R391)))
    assert [one.code for one in plan.findings if one.code in {"METADATA-LOST", "ACL-MEANS-MORE"}] == ["ACL-MEANS-MORE"]


def test_an_upgrade_names_what_its_rollback_would_not_keep(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.losses = [LOSS]
    plan = plan_upgrade(fake_ports(cluster, tmp_path), R431, finalize=False)
    (found,) = (one for one in plan.findings if one.code == "ROLLBACK-LOSES-METADATA" and one.severity == "warning")
    assert found.sentence == f"After a rollback to 3.9.1: {LOSS.sentence}"
    (later,) = (one for one in plan.findings if one.code == "ROLLBACK-LOSES-METADATA" and one.severity == "info")
    assert "Kafka 4.3.1 supports group configurations, and 3.9.1 does not keep them." in later.sentence


def test_a_rollback_that_cannot_be_compared_is_unknown(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)

    def losses(*args: object, **options: object) -> LossReport:
        raise RefusedError("The image cannot be read.", remedy="Read it.")

    ports.metadata_logs.losses = losses  # type: ignore[method-assign]
    state, reason = result(plan_upgrade(ports, R431, finalize=False))
    assert state is not CheckState.PASSED
    assert "What a rollback to 3.9.1 would lose is unknown: The image cannot be read." in reason


def test_a_check_of_a_downgrade_reads_the_metadata_logs_where_it_can(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.losses = [LOSS]
    chosen = (METADATA_LOGS_CHECK, LOSSES_CHECK)
    logs, losses = check_release(fake_ports(cluster, tmp_path / "1"), R391, chosen, complete_with="").entries
    assert (logs.result, losses.result) == (Result.OK, Result.BLOCKER)
    assert [one.sentence for one in losses.findings] == [LOSS.sentence]
    cluster.unseen = {node.node_id for node in cluster.spec.nodes}
    logs, losses = check_release(fake_ports(cluster, tmp_path / "2"), R391, chosen, complete_with="").entries
    assert (logs.result, losses.result) == (Result.UNKNOWN, Result.UNKNOWN)
    assert "cannot read files on" in logs.reasons[0]
