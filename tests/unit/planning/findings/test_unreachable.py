"""Settings with which a gate cannot pass are named before the first stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.configs import DynamicConfigs, QuotaEntity
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.findings.configuration import SNAPSHOT_INTERVAL, planned_configs
from kafka_rollout.planning.findings.unreachable import (
    SNAPSHOT_WAIT,
    ip_quota_findings,
    names_in_quotas,
    quota_findings,
    snapshot_findings,
    throttle_findings,
)
from kafka_rollout.planning.plans import make_plan
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.run.events import ApprovalOf
from tests.unit.builders import R391, R431, SEPARATE, observation, state

RATE, REPLICAS = "follower.replication.throttled.rate", "follower.replication.throttled.replicas"
IDS = [node.node_id for node in SEPARATE.nodes]


def test_a_throttle_that_was_left_behind_is_named_with_rate_topics_and_command() -> None:
    dynamic = DynamicConfigs(brokers={4: {RATE: "10"}, 5: {RATE: "10"}}, topics={"orders": {REPLICAS: "*"}})
    (found,) = throttle_findings(SEPARATE, dynamic)
    assert (found.code, found.severity) == ("REPLICATION-THROTTLED", Severity.WARNING)
    assert "1 topic (orders)" in found.sentence
    assert "follower of broker 4: 10 bytes/s, follower of broker 5: 10 bytes/s" in found.sentence
    assert f"--entity-type brokers --entity-name 4 --delete-config {RATE} (and brokers 5); " in found.remedy
    assert f"--entity-type topics --entity-name orders --delete-config {REPLICAS}." in found.remedy
    (found,) = throttle_findings(SEPARATE, DynamicConfigs(all_brokers={RATE: "7"}, topics={"a": {REPLICAS: "0:4"}}))
    assert "follower of all brokers: 7 bytes/s" in found.sentence
    assert "--entity-default --delete-config" in found.remedy


@pytest.mark.parametrize(
    "dynamic",
    [
        DynamicConfigs(brokers={4: {RATE: "10"}}),
        DynamicConfigs(topics={"orders": {REPLICAS: "*"}}),
        DynamicConfigs(brokers={4: {"leader.replication.throttled.rate": "10"}}, topics={"orders": {REPLICAS: "*"}}),
        DynamicConfigs(brokers={4: {RATE: str((1 << 63) - 1)}}, topics={"orders": {REPLICAS: "*"}}),
    ],
    ids=["rate alone", "replicas alone", "rate of the other half", "unlimited"],
)
def test_half_a_throttle_limits_nothing(dynamic: DynamicConfigs) -> None:
    assert list(throttle_findings(SEPARATE, dynamic)) == []


def test_a_host_name_in_a_quota_of_connections_is_named_with_the_nodes_that_cannot_resolve_it() -> None:
    entities = ("10.0.0.1", "::1", "[fe80::1]", None, "app.example", "b.example")
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("ip", one),): {"connection_creation_rate": 5.0} for one in entities
    }
    dynamic = DynamicConfigs(quotas={**quotas, (("user", "alice"),): {"request_percentage": 1.0}})
    assert names_in_quotas(dynamic) == ("app.example", "b.example")
    assert list(ip_quota_findings(SEPARATE, {4: (), 5: ()})) == []
    (found,) = ip_quota_findings(SEPARATE, {1: ("app.example",), 4: (), 5: ("app.example",)})
    assert (found.code, found.subject, found.severity) == ("IP-QUOTA-UNRESOLVED", "ip app.example", Severity.BLOCKER)
    assert "a host name that nodes 1, 5 cannot resolve" in found.sentence
    assert "--entity-type ips --entity-name app.example --delete-config connection_creation_rate`" in found.remedy


def test_a_quota_of_request_time_on_a_super_user_is_named() -> None:
    configs = {4: {"super.users": "User:admin;User:CN=broker"}}
    limited = DynamicConfigs(quotas={(("user", "admin"),): {"request_percentage": 1.0}})
    (found,) = quota_findings(SEPARATE, configs, limited)
    assert (found.code, found.subject) == ("BROKER-USER-LIMITED", "user admin")
    bytes_only = DynamicConfigs(quotas={(("user", "admin"),): {"consumer_byte_rate": 1.0}})
    assert list(quota_findings(SEPARATE, configs, bytes_only)) == [], "replication is not limited by it"
    others = DynamicConfigs(quotas={(("user", "alice"),): {"request_percentage": 1.0}})
    assert list(quota_findings(SEPARATE, configs, others)) == []


@pytest.mark.parametrize(
    ("entity", "subject", "command"),
    [
        ((("user", None),), "user admin", "--entity-type users --entity-default --delete-config"),
        ((("user", "admin"), ("client-id", None)), "user admin", "--entity-name admin --entity-type clients"),
        ((("user", None), ("client-id", "4")), "user admin", "--entity-type clients --entity-name 4"),
        ((("client-id", None),), "user admin", "--entity-type clients --entity-default --delete-config"),
        ((("client-id", "4"),), "user admin", "--entity-type clients --entity-name 4 --delete-config"),
    ],
)
def test_a_quota_that_reaches_a_super_user_by_a_default_or_a_client_id_is_named(
    entity: QuotaEntity, subject: str, command: str
) -> None:
    configs = {4: {"super.users": "User:admin"}}
    limited = DynamicConfigs(quotas={entity: {"request_percentage": 1.0}})
    (found,) = quota_findings(SEPARATE, configs, limited)
    assert (found.code, found.subject) == ("BROKER-USER-LIMITED", subject)
    assert command in found.remedy


def test_the_quota_that_kafka_prefers_is_the_one_that_limits() -> None:
    """ClientQuotaCallback's order: a user without a limit of its own is limited by the default."""
    configs = {4: {"super.users": "User:admin"}}
    unlimited = {(("user", "admin"),): {"request_percentage": 1e9}, (("user", None),): {"request_percentage": 1.0}}
    (found,) = quota_findings(SEPARATE, configs, DynamicConfigs(quotas=unlimited))
    assert "1000000000" in found.sentence


def test_a_default_quota_limits_the_user_of_the_brokers_whoever_it_is() -> None:
    limited = DynamicConfigs(quotas={(("user", None),): {"request_percentage": 1.0}})
    (found,) = quota_findings(SEPARATE, {4: {}}, limited)
    assert found.subject == "user of the brokers"
    named = DynamicConfigs(quotas={(("user", "alice"),): {"request_percentage": 1.0}})
    assert list(quota_findings(SEPARATE, {4: {}}, named)) == []


def _plan(run_of: RunOf, request: Request, configs: dict[int, dict[str, str]]) -> Plan:
    return make_plan(observation(state(), configs=configs), request, run_of)


def _snapshots(run_of: RunOf = RunOf.UPGRADE, *, finalizes: bool = True, **lines: str) -> list[tuple[str, Severity]]:
    """`lines`: of controller 1 and broker 4."""
    own = {name.replace("_", "."): value for name, value in lines.items()}
    configs = {node_id: {"log.dirs": "/data", **(own if node_id in (1, 4) else {})} for node_id in IDS}
    request = Request(target=R431 if run_of is RunOf.UPGRADE else R391)
    plan = _plan(run_of, request, configs)
    planned: Any = dict.fromkeys(plan.path, configs)
    found = snapshot_findings(SEPARATE, plan, planned, finalizes=finalizes)
    return [(one.subject, one.severity) for one in found if one.code != SNAPSHOT_WAIT.text]


def test_a_snapshot_that_is_never_written_is_named_before_the_first_stop() -> None:
    interval, idle = "metadata.log.max.snapshot.interval.ms", "metadata.max.idle.interval.ms"
    assert _snapshots() == []
    never = {"metadata_log_max_snapshot_interval_ms": "0"}
    assert _snapshots(**never) == [(f"{interval} of nodes 1, 4", Severity.BLOCKER)]
    assert _snapshots(**never, finalizes=False) == [(f"{interval} of nodes 1, 4", Severity.WARNING)]
    quiet = {"metadata_max_idle_interval_ms": "0"}
    assert _snapshots(**quiet) == [(f"{idle} of node 1", Severity.WARNING)], "a broker writes no records"
    assert _snapshots(**quiet, finalizes=False) == [(f"{idle} of node 1", Severity.INFO)]


def _waits(run_of: RunOf, **request: Any) -> list[Finding]:
    """What the plan says about its wait; broker 4 writes a snapshot every ten minutes, the others every hour."""
    configs = {node_id: {"log.dirs": "/data"} for node_id in IDS}
    configs[4] = {**configs[4], SNAPSHOT_INTERVAL: "600000"}
    seen = observation(state(), cluster=replace(SEPARATE, snapshot_interval_s=300.0), configs=configs)
    plan = make_plan(seen, Request(**request), run_of)
    planned = planned_configs(plan.path, configs, plan.config_changes)
    return [one for one in snapshot_findings(SEPARATE, plan, planned, finalizes=True) if one.code == SNAPSHOT_WAIT.text]


def test_an_upgrade_says_how_long_finalizing_lasts_and_why_and_that_it_can_be_ended() -> None:
    (found,) = _waits(RunOf.UPGRADE, target=R431)
    assert "takes up to 5 min 00 s after the levels have changed" in found.sentence, "the roll shortens the interval"
    assert f"{SNAPSHOT_INTERVAL} is 300000 on nodes 1, 2, 3, 4, 5, 6" in found.sentence
    assert "holds no lock while it waits" in found.remedy
    assert "Stop here" in found.remedy


def test_the_approval_to_finalize_says_how_long_it_lasts() -> None:
    seen = observation(state(), configs={node_id: {"log.dirs": "/data"} for node_id in IDS})
    plan = make_plan(seen, Request(target=R431), RunOf.UPGRADE)
    planned = planned_configs(plan.path, seen.configs, plan.config_changes)
    plan = replace(plan, findings=tuple(snapshot_findings(SEPARATE, plan, planned, finalizes=True)))
    body = approval_body(plan, what=ApprovalOf.FINALIZE)
    assert "Finalizing takes up to 1 h 00 min after the levels have changed" in body
    assert body.index("How long it lasts") < body.index("Findings")
