"""A node's metrics from two independent agents: the Prometheus JMX exporter and Jolokia.

Both read the same MBeans, so each can replace the other. Only CurrentMetadataVersion is kept per agent, because the
verification needs both. The exporter's metric names are in include/metrics/jmx_exporter.yaml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kafka_rollout.domain.model.errors import RolloutError, TransientError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import ClientSoftware, DeprecatedRequest, NodeMetrics
from kafka_rollout.domain.model.topology import NodeSpec

TIMEOUT_S = 10.0  # long enough for an agent of a new process on a busy machine; nodes are queried in parallel

_APP_INFO = "kafka.server:type=app-info,*"
_RUNTIME = "java.lang:type=Runtime"
_METADATA_VERSION = "kafka.server:type=MetadataLoader,name=CurrentMetadataVersion"
_FINALIZED = "kafka.server:type=MetadataLoader,name=FinalizedLevel,*"
_SNAPSHOT_AGE = "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedAgeMs"
_SNAPSHOT_BYTES = "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedBytes"
_PARTITIONS = "kafka.controller:type=KafkaController,name=GlobalPartitionCount"
_CLIENTS = "kafka.server:type=socket-server-metrics,clientSoftwareName=*,clientSoftwareVersion=*,*"
_DEPRECATED = "kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec,*"
_READS = (
    (_APP_INFO, "Version"),
    (_RUNTIME, "SpecVersion"),
    (_METADATA_VERSION, "Value"),
    (_FINALIZED, "Value"),
    (_SNAPSHOT_AGE, "Value"),
    (_SNAPSHOT_BYTES, "Value"),
    (_PARTITIONS, "Value"),
    (_CLIENTS, "connections"),
    (_DEPRECATED, "Count"),
)
# Kafka counts each Fetch a second time under one of these names.
_COUNTED_TWICE = frozenset({"FetchConsumer", "FetchFollower"})


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The values of one agent."""

    release: Release | None = None
    java_version: int | None = None
    metadata_version: int | None = None
    finalized: dict[str, int] = field(default_factory=dict)
    snapshot_age_ms: int | None = None
    snapshot_bytes: int | None = None
    partition_count: int | None = None
    connections: Counter[tuple[str, str]] = field(default_factory=Counter)
    deprecated: Counter[tuple[str, int, str, str]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsReader:
    """The metrics port over HTTP. `timeout_s`: for each agent."""

    timeout_s: float = TIMEOUT_S

    def read(self, node: NodeSpec) -> NodeMetrics:
        answers: dict[str, _Seen] = {}
        problems: dict[str, str] = {}
        # No proxy of the environment: agents are queried at their inventory addresses.
        with httpx.Client(timeout=self.timeout_s, trust_env=False) as client:
            for agent, url, ask in (
                ("jolokia", node.jolokia_url, _ask_jolokia),
                ("prometheus", node.prometheus_url, _ask_prometheus),
            ):
                if url is None:
                    problems[agent] = "it is not in the inventory"
                    continue
                try:
                    answers[agent] = ask(client, url)
                except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
                    problems[agent] = _reason(error)
        if not answers:
            said = "; ".join(f"{agent}: {reason}" for agent, reason in problems.items())
            raise TransientError(
                f"No metrics agent of node {node.name} responds ({said}).",
                remedy="Check that its process runs and that the agents' URLs in the inventory are correct.",
            )
        first = answers.get("jolokia") or answers["prometheus"]
        jolokia, prometheus = answers.get("jolokia"), answers.get("prometheus")
        return NodeMetrics(
            release=first.release,
            java_version=first.java_version,
            current_metadata_version_prometheus=prometheus.metadata_version if prometheus else None,
            current_metadata_version_jolokia=jolokia.metadata_version if jolokia else None,
            finalized_levels=first.finalized,
            snapshot_age_ms=first.snapshot_age_ms,
            snapshot_bytes=first.snapshot_bytes,
            partition_count=first.partition_count,
            clients=tuple(
                ClientSoftware(name=name, version=version, connections=count)
                for (name, version), count in sorted(first.connections.items())
                if count > 0
            ),
            deprecated_requests=tuple(
                DeprecatedRequest(api=api, version=version, client_name=name, client_version=software, count=count)
                for (api, version, name, software), count in sorted(first.deprecated.items())
                if count > 0 and api not in _COUNTED_TWICE
            ),
            unanswered=tuple(sorted(problems)),
        )


def _ask_jolokia(client: httpx.Client, url: str) -> _Seen:
    requests = [{"type": "read", "mbean": mbean, "attribute": attribute} for mbean, attribute in _READS]
    answer = client.post(url.rstrip("/") + "/", json=requests)
    answer.raise_for_status()
    seen = _Seen()
    for (mbean, attribute), one in zip(_READS, answer.json(), strict=True):
        if one["status"] == 404:  # the release has no such MBean
            continue
        if one["status"] != 200:
            raise ValueError(f"{mbean} has response status {one['status']}")
        _take_jolokia(seen, mbean, attribute, one["value"])
    return seen


def _take_jolokia(seen: _Seen, mbean: str, attribute: str, value: Any) -> None:
    match mbean:
        case "java.lang:type=Runtime":
            seen.java_version = _java_version(value)
        case _ if mbean == _METADATA_VERSION:
            seen.metadata_version = int(value)
        case _ if mbean == _SNAPSHOT_AGE:
            seen.snapshot_age_ms = int(value)
        case _ if mbean == _SNAPSHOT_BYTES:
            seen.snapshot_bytes = int(value)
        case _ if mbean == _PARTITIONS:
            seen.partition_count = int(value)
        case _:  # a pattern: MBean → attribute → value
            for name, attributes in value.items():
                if attribute in attributes:
                    _take_jolokia_bean(seen, mbean, _properties(name), attributes[attribute])


def _take_jolokia_bean(seen: _Seen, pattern: str, properties: Mapping[str, str], value: Any) -> None:
    if pattern == _APP_INFO:
        seen.release = _release(str(value))
    elif pattern == _FINALIZED:
        seen.finalized[_feature(properties["featureName"])] = int(value)
    elif pattern == _CLIENTS:
        client = (properties["clientSoftwareName"], properties["clientSoftwareVersion"])
        seen.connections[client] += int(value)
    elif pattern == _DEPRECATED:
        seen.deprecated[_deprecated(properties, "clientSoftwareName", "clientSoftwareVersion")] += int(value)


def _ask_prometheus(client: httpx.Client, url: str) -> _Seen:
    answer = client.get(url)
    answer.raise_for_status()
    seen = _Seen()
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            _take_prometheus(seen, sample.name, sample.labels, sample.value)
    if seen.release is None:
        raise ValueError("it has no kafka_rollout_app, so it is not configured by include/metrics/jmx_exporter.yaml")
    return seen


def _take_prometheus(seen: _Seen, name: str, labels: Mapping[str, str], value: float) -> None:
    match name:
        case "kafka_rollout_app":
            seen.release = _release(labels["version"])
        case "kafka_rollout_java":
            seen.java_version = _java_version(labels["version"])
        case "kafka_rollout_current_metadata_version":
            seen.metadata_version = int(value)
        case "kafka_rollout_finalized_level":
            seen.finalized[_feature(labels["feature"])] = int(value)
        case "kafka_rollout_latest_snapshot_generated_agems":
            seen.snapshot_age_ms = int(value)
        case "kafka_rollout_latest_snapshot_generated_bytes":
            seen.snapshot_bytes = int(value)
        case "kafka_rollout_partitions":
            seen.partition_count = int(value)
        case "kafka_rollout_client_connections":
            seen.connections[labels["software"], labels["version"]] += int(value)
        case "kafka_rollout_deprecated_requests":
            seen.deprecated[_deprecated(labels, "software", "software_version")] += int(value)


def _deprecated(properties: Mapping[str, str], name: str, version: str) -> tuple[str, int, str, str]:
    return (properties["request"], int(properties["version"]), properties[name], properties[version])


def _properties(mbean: str) -> dict[str, str]:
    """Parse the key properties of an MBean name; quoted values can contain commas."""
    pairs: Iterable[tuple[str, str, str]] = re.findall(
        r'([^,=]+)=(?:"((?:\\.|[^"\\])*)"|([^,]*))', mbean.split(":", 1)[1]
    )
    return {key: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for key, quoted, plain in pairs}


def _feature(metric_name: str) -> str:
    """Kafka's metric calls `group.version` groupVersion."""
    return re.sub("[A-Z]", lambda letter: "." + letter[0].lower(), metric_name)


def _release(text: str) -> Release | None:
    try:
        return Release.parse(text.split("-", maxsplit=1)[0])  # vendors append a suffix, as in 3.9.1-ccs
    except RolloutError:
        return None


def _java_version(text: str) -> int:
    """`17` or, before Java 9, `1.8`."""
    return int(text.removeprefix("1."))


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no response in time"
    return (str(error) or type(error).__name__).splitlines()[0]
