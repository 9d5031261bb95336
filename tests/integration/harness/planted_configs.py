"""Dynamic configuration that a test plants on one release, what a plan says about it, and a start on another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest, IncrementalAlterConfigsRequest

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.base.findings import Finding
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.requests import ResourceType
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.planning.findings.dynamic_configs import dynamic_config_findings, find_removed_settings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.waiting import wait_until
from tools.any_requests import AnyRequests
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster

_WAIT_S = 180.0  # a busy machine


@dataclass(frozen=True, slots=True)
class Started:
    """The result of a start. `log`: what the node wrote to server.log since then."""

    runs: bool
    log: str


def set_configs(cluster: LocalCluster, kind: ResourceType, name: str, values: Mapping[str, str | None]) -> None:
    """Set values, or remove them (None), and wait until every broker knows it.

    Raises AssertionError with the broker's sentence if it refuses.
    """
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=int(kind),
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=key, config_operation=int(value is None), value=value)
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    answer = _ask(cluster, request)
    assert [one.error_code for one in answer.responses] == [0], answer.responses[0].error_message
    wait_until_all_know(cluster.spec)


def set_quota(cluster: LocalCluster, user: str, key: str, value: float) -> None:
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="user", entity_name=user)],
                ops=[entry.OpData(key=key, value=value, remove=False)],
            )
        ],
        validate_only=False,
    )
    assert [one.error_code for one in _ask(cluster, request).entries] == [0]
    wait_until_all_know(cluster.spec)


def _ask(cluster: LocalCluster, request: Any) -> Any:
    connections = AnyRequests(cluster.spec, ClientSecurity(), timeout_s=_WAIT_S)
    try:
        return connections.first_answer(connections.brokers, request, lambda response, _: response)
    finally:
        connections.close()


def predict(cluster: LocalCluster, source: Release, target: Release, cache: ReleaseCache) -> tuple[Finding, ...]:
    """What a plan finds, by the classes of the target, in the configuration that the running brokers report."""
    with KafkaAdmin(cluster.spec, timeout_s=_WAIT_S) as admin:
        dynamic = admin.dynamic_configs()
    catalogue = load_catalogue(PROJECT_ROOT / "include")
    files = {node.node_id: cluster.runtime.config(node) for node in cluster.spec.brokers}
    problems = (
        *JvmKafkaClasses(cache).dynamic_config_problems(target, files, dynamic),
        *find_removed_settings(catalogue, source, target, dynamic),
    )
    return dynamic_config_findings(catalogue, target, problems, dynamic, cluster.spec.bootstrap_servers, source=source)


def restart_on(cluster: LocalCluster, release: Release, *, within_s: float = 180.0) -> Started:
    """Stop the only node and start it on a release.

    Returns when it is in service, when its process has ended, or after `within_s`, which counts as not running.
    """
    (node,) = cluster.spec.nodes
    log = Path(str(node.directory)) / "logs" / "server.log"
    cluster.stop(deadline_s=_WAIT_S)
    before = log.stat().st_size
    cluster.runtime.install(node, release)
    cluster.runtime.start(node)
    try:
        cluster.wait_until_ready(within_s=within_s)
        wait_until(lambda: _serves(cluster), _WAIT_S)
        runs = True
    except (FatalError, TransientError):
        runs = False
    return Started(runs=runs, log=log.read_bytes()[before:].decode(errors="replace"))


def _serves(cluster: LocalCluster) -> bool:
    with KafkaAdmin(cluster.spec, timeout_s=_WAIT_S) as admin:
        return all(partition.leader >= 0 for partition in admin.partitions())
