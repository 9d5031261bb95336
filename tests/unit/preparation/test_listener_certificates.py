"""Certificates that end: blockers and warnings of a plan, and again before a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import CheckState, Severity
from kafka_rollout.model.listeners import ListenerCertificate
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.certificates import CERTIFICATES_CHECK, MARGIN_S
from kafka_rollout.preparation.frozen_plan import refuse_new_blockers
from kafka_rollout.preparation.listener_certificates import check_certificates
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade

R391, R431 = Release(3, 9, 1), Release(4, 3, 1)
HOUR_S = 3600.0


def _certificate(ends_at: float | None, *, problem: str = "") -> ListenerCertificate:
    return ListenerCertificate(address="kafka:9093", subject="CN=kafka", ends_at=ends_at, problem=problem)


@pytest.mark.parametrize(
    ("left_s", "severity"),
    [(-1.0, Severity.BLOCKER), (HOUR_S, Severity.WARNING), (MARGIN_S + 30.0, Severity.WARNING), (2 * MARGIN_S, None)],
)
def test_the_end_of_a_certificate_is_compared_with_the_planned_end(
    tmp_path: Path, left_s: float, severity: Severity | None
) -> None:
    """The six nodes of the plan take six minutes, which count too."""
    cluster = FakeCluster(R391)
    ends_at = cluster.clock.now() + left_s
    cluster.certificates = {1: (_certificate(ends_at),), 11: (_certificate(ends_at),)}
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    found = [one for one in plan.findings if one.code in {code.code for code in CERTIFICATES_CHECK.codes}]
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    for one in found:
        assert one.subject == "nodes 1, 11, CN=kafka"
        assert one.remedy.startswith("Renew the certificate")


def test_a_certificate_that_ends_after_the_plan_blocks_the_stop(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    (step,) = plan.release_steps
    node = ports.cluster.node(step.order[0].node_id)
    refuse_new_blockers(Run(ports, plan), (step, node))
    cluster.certificates = {node.node_id: (_certificate(cluster.clock.now() - 1.0),)}
    with pytest.raises(RefusedError, match="CERTIFICATE-ENDED"):
        refuse_new_blockers(Run(ports, plan), (step, node))


def test_every_listener_with_tls_is_asked_and_silence_is_not_ok(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    config = {
        "listeners": "INTERNAL://0.0.0.0:9094,CLIENTS://10.0.0.1:9095,PLAIN://10.0.0.1:9096",
        "advertised.listeners": "CLIENTS://kafka.example.com:443",
        "listener.security.protocol.map": "INTERNAL:SSL,CLIENTS:SASL_SSL,PLAIN:PLAINTEXT",
    }
    node = ports.cluster.brokers[0]
    none = check_certificates(ports, {}, lasts_s=0.0)
    assert none.result({}).state is CheckState.NOT_APPLICABLE
    cluster.certificates = {node.node_id: (_certificate(None, problem="connection refused"),)}
    silent = check_certificates(ports, {node.node_id: config}, lasts_s=0.0)
    assert cluster.certificate_addresses[node.node_id] == ("127.0.0.1:9094", "kafka.example.com:443")
    assert silent.result({}).state is CheckState.NOT_OBSERVABLE
    assert "kafka:9093 of node 11 (connection refused)" in silent.result({}).reason
