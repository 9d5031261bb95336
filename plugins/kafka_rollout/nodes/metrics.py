"""A node's metrics from two independent agents: the Prometheus JMX exporter and Jolokia.

Both read the same MBeans, so each can replace the other. Only CurrentMetadataVersion is kept per agent, because the
verification needs both. The exporter's metric names are in include/metrics/jmx_exporter.yaml. An exporter with an
operator's own rules has some of the same values under other names (metric_names).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.system.http import http_client, text_of
from kafka_rollout.base.wording import few
from kafka_rollout.model.counters import COUNTERS
from kafka_rollout.model.state import UNKNOWN_CLIENT, ClientSoftware, NodeMetrics, RequestCount
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.nodes.metric_names import LineFilter, OwnNames, our_labels, our_metric, own_names
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout.releases.reported import identify_release

TIMEOUT_S = 10.0  # long enough for an agent of a new process on a busy machine; nodes are queried in parallel

_WHOLE_RESPONSE_S = 60.0
_MOST_AGE_S = 60.0
_MOST_MIB = 64  # of a response; an exporter with rules for each partition of a large broker sends some MiB

_READS = {  # the exporter's metric → MBean and attribute
    "app": ("kafka.server:type=app-info,*", "Version"),
    "java": ("java.lang:type=Runtime", "SpecVersion"),
    "current_metadata_version": ("kafka.server:type=MetadataLoader,name=CurrentMetadataVersion", "Value"),
    "finalized_level": ("kafka.server:type=MetadataLoader,name=FinalizedLevel,*", "Value"),
    "latest_snapshot_generated_agems": (
        "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedAgeMs",
        "Value",
    ),
    "latest_snapshot_generated_bytes": (
        "kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedBytes",
        "Value",
    ),
    "partitions": ("kafka.controller:type=KafkaController,name=GlobalPartitionCount", "Value"),
    "client_connections": (
        "kafka.server:type=socket-server-metrics,clientSoftwareName=*,clientSoftwareVersion=*,*",
        "connections",
    ),
    "requests": ("kafka.network:type=RequestMetrics,name=RequestsPerSec,*", "Count"),
    "deprecated_requests": ("kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec,*", "Count"),
    **{name: (counter.mbean, counter.attribute) for name, counter in COUNTERS.items()},
}
# What a response that is not that of an agent raises; OverflowError, for example, is raised for a level of +Inf.
_UNUSABLE = (
    httpx.HTTPError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
# What a value raises that cannot be that of its metric.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
_MOST = float(1 << 63)  # a JMX attribute is a long
_TEXTS = frozenset({"app", "java"})
_SHOWN, _SHOWN_ERROR = 60, 200
# The metric and its labels, at the begin of a line of an exporter.
_SERIES = re.compile(r'[^\s{]+(\{(?:[^"}]|"(?:\\.|[^"\\])*")*\})?')
# Kafka counts each Fetch a second time under one of these names.
_COUNTED_TWICE = frozenset({"FetchConsumer", "FetchFollower"})


def _release(text: str) -> Release | None:
    """Return an Apache release; None for any other text."""
    try:
        return Release.parse(text)
    except RolloutError:
        return None


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The values of one agent."""

    version: str | None = None
    java_version: int | None = None
    metadata_version: int | None = None
    finalized: dict[str, int] = field(default_factory=dict)
    snapshot_age_ms: int | None = None
    snapshot_bytes: int | None = None
    partition_count: int | None = None
    connections: Counter[tuple[str, str]] = field(default_factory=Counter)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    deprecated: Counter[tuple[str, int, str, str]] = field(default_factory=Counter)
    counters: dict[str, float] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Name in _READS → why its value is unknown."""
    node_ids: set[str] = field(default_factory=set)
    """Of the processes whose MBean app-info was read (KafkaRaftServer registers it with the node id)."""
    instances: set[str] = field(default_factory=set)
    """Label `instance`, which Prometheus adds to what it has read from an agent."""
    ages_s: set[float] = field(default_factory=set)
    """Of the values that have a timestamp: those of Prometheus (/federate), a Pushgateway or a collector."""
    single: dict[str, Any] = field(default_factory=dict)
    """Name in _READS → the first value of it that was read, of the metrics that a process has once."""

    def read(self, name: str, labels: Mapping[str, str], value: Any) -> None:
        """Take over a value. One that cannot be read, or of a second process, makes this metric alone unknown."""
        try:
            number = float(value) if isinstance(value, str) and name not in _TEXTS else value
            if isinstance(number, int | float) and not abs(number) < _MOST:  # NaN too
                raise ValueError(f"its value is {str(value)[:_SHOWN]}")
            self.take(name, labels, value)
            if name in _ONCE or name in COUNTERS:
                read = self.counters[name] if name in COUNTERS else getattr(self, _FIELDS[name])
                if self.single.setdefault(name, read) != read:
                    raise ValueError(f"it has several values, {self.single[name]} and {read}")
        except _UNREADABLE as error:
            self.unreadable.setdefault(name, str(error) or type(error).__name__)

    def forget_unreadable(self) -> _Seen:
        empty = _Seen()
        for name in self.unreadable:
            if name in COUNTERS:
                self.counters.pop(name, None)
            elif name in _FIELDS:
                setattr(self, _FIELDS[name], getattr(empty, _FIELDS[name]))
        return self

    def take(self, name: str, labels: Mapping[str, str], value: Any) -> None:
        """Take over a metric of _READS. Jolokia returns versions as the value, the exporter as a label."""
        match name:
            case "app":
                self.node_ids |= {one for one in [labels.get("node_id", "")] if one.isdecimal()}
                self.version = labels.get("version", str(value))
            case "java":
                self.java_version = _java_version(labels.get("version", str(value)))
            case "current_metadata_version":
                self.metadata_version = int(value)
            case "finalized_level":
                self.finalized[_feature(labels["feature"])] = int(value)
            case "latest_snapshot_generated_agems":
                self.snapshot_age_ms = int(value)
            case "latest_snapshot_generated_bytes":
                self.snapshot_bytes = int(value)
            case "partitions":
                self.partition_count = int(value)
            case "client_connections":
                self.connections[labels["software"], labels.get("software_version") or labels["version"]] += int(value)
            case "requests" if "version" in labels:
                self.requests[labels["request"], int(labels["version"])] += _requests(value)
            case "deprecated_requests":
                client = labels["software"], labels["software_version"]
                self.deprecated[labels["request"], int(labels["version"]), *client] += _requests(value)
            case _ if name in COUNTERS:
                self.counters[name] = float(value) if COUNTERS[name].attribute == "OneMinuteRate" else int(value)


_FIELDS = {
    "app": "version",
    "java": "java_version",
    "current_metadata_version": "metadata_version",
    "finalized_level": "finalized",
    "latest_snapshot_generated_agems": "snapshot_age_ms",
    "latest_snapshot_generated_bytes": "snapshot_bytes",
    "partitions": "partition_count",
    "client_connections": "connections",
    "requests": "requests",
    "deprecated_requests": "deprecated",
}
_ONCE = _FIELDS.keys() - {"finalized_level", "client_connections", "requests", "deprecated_requests"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsReader:
    """The metrics port over HTTP."""

    timeout_s: float = TIMEOUT_S
    """For each agent."""
    identify: Callable[[str], Release | None] = _release
    """Reported version → its release."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Our name of a metric → the name of the operator's exporter, as in ClusterSpec.metrics."""
    through: Callable[[str], httpx.BaseTransport] | None = None
    """Host of a node → how its loopback addresses are reached; None: they are addresses of this machine."""
    now: Callable[[], float] = time.time

    def read(self, node: NodeSpec) -> NodeMetrics:
        if node.jolokia_url is None and node.prometheus_url is None:
            return NodeMetrics()
        answers: dict[str, _Seen] = {}
        problems: dict[str, str] = {}
        through = None if node.service is None or self.through is None else self.through(node.service.host)
        for agent, url, query in (
            ("jolokia", node.jolokia_url, _query_jolokia),
            ("prometheus", node.prometheus_url, partial(_query_prometheus, own=own_names(self.names), now=self.now)),
        ):
            if url is None:
                continue
            try:
                with http_client(url, timeout_s=self.timeout_s, through=through) as client:
                    seen = query(client, url)
                _refuse_others(node, url, seen)
                answers[agent] = seen
            except _UNUSABLE as error:
                problems[agent] = _reason(error)
        if not answers:
            reasons = "; ".join(f"{agent}: {reason}" for agent, reason in problems.items())
            raise TransientError(
                f"No metrics agent of node {node.name} responds ({reasons}).",
                remedy="Check that its process runs and that the agents' URLs in the inventory are correct.",
            )
        jolokia, prometheus = answers.get("jolokia"), answers.get("prometheus")
        first = _first_readable(list(answers.values()))
        return NodeMetrics(
            release=None if first.version is None else self.identify(first.version),
            version=first.version or "",
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
            requests=_counts((*request, UNKNOWN_CLIENT, UNKNOWN_CLIENT, n) for request, n in first.requests.items()),
            deprecated_requests=_counts((*request, n) for request, n in first.deprecated.items()),
            # An exporter with older rules lacks some that Jolokia has.
            counters={**(prometheus.counters if prometheus else {}), **first.counters},
            unanswered=dict(sorted(problems.items())),
            unreadable=tuple(
                f"{agent}: {name}: {why.splitlines()[0].rstrip('.')}"
                for agent, seen in sorted(answers.items())
                for name, why in seen.unreadable.items()
            ),
        )


def _refuse_others(node: NodeSpec, url: str, seen: _Seen) -> None:
    """Raise ValueError for values of other processes, or of another time."""
    place = httpx.URL(url).copy_with(query=None, fragment=None)
    advice = "the URL must be that of the node's own agent"
    if seen.node_ids and str(node.node_id) not in seen.node_ids:
        raise ValueError(f"{place} is the agent of node {', '.join(sorted(seen.node_ids))}, not of node {node.node_id}")
    for several in (seen.node_ids, seen.instances):
        if len(several) > 1:
            raise ValueError(f"{place} has values of several processes ({few(sorted(several))}): {advice}")
    if (oldest := max(seen.ages_s, key=abs, default=0.0)) and abs(oldest) > _MOST_AGE_S:
        when = f"of {abs(oldest):.0f} s {'ago' if oldest > 0 else 'later'}"
        raise ValueError(f"{place} has values with a time {when}, such as of /federate or a Pushgateway: {advice}")


def _reason(error: Exception) -> str:
    """Return why an agent cannot be used, without its URL, whose query can have a credential."""
    if isinstance(error, httpx.TimeoutException):
        return "no response in time"
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return (str(error) or type(error).__name__).splitlines()[0]


def read_running_releases(cluster: ClusterSpec, catalogue: Catalogue) -> frozenset[Release]:
    """Return the releases that the nodes report now; a node that does not respond is left out."""
    reader = NodeMetricsReader(
        identify=lambda version: identify_release(version, catalogue, cluster.apache_releases).release,
        names=cluster.metrics,
    )

    def read(node: NodeSpec) -> Release | None:
        try:
            return reader.read(node).release
        except TransientError:
            return None

    with ThreadPoolExecutor(max_workers=8) as pool:
        return frozenset(release for release in pool.map(read, cluster.nodes) if release is not None)


def _first_readable(agents: Sequence[_Seen]) -> _Seen:
    """Return the values of the first agent, and those of the second one that the first could not read."""
    first, *others = agents
    found = replace(first)
    for name in _FIELDS.keys() & first.unreadable.keys():
        for other in others:
            setattr(found, _FIELDS[name], getattr(other, _FIELDS[name]))
    return found


def _counts(counted: Iterable[tuple[str, int, str, str, int]]) -> tuple[RequestCount, ...]:
    return tuple(
        RequestCount(api=api, version=version, client_name=name, client_version=software, count=count)
        for api, version, name, software, count in sorted(counted)
        if count > 0 and api not in _COUNTED_TWICE
    )


def _query_jolokia(client: httpx.Client, url: str) -> _Seen:
    requests = [{"type": "read", "mbean": mbean, "attribute": attribute} for mbean, attribute in _READS.values()]
    answer = _text_of(client, client.build_request("POST", url.rstrip("/") + "/", json=requests))
    seen = _Seen()
    read = parse_json(answer)
    if isinstance(read, dict):  # one error instead of the answers, such as of a policy
        raise ValueError(f"it answers with status {read.get('status')}: {str(read.get('error'))[:_SHOWN_ERROR]}")
    if len(read) != len(_READS) or not all(isinstance(one, dict) and "status" in one for one in read):
        raise ValueError("it does not answer each of the requests, as Jolokia does")
    statuses = {one["status"] for one, (mbean, _) in zip(read, _READS.values(), strict=True) if _is_kafkas(mbean)}
    if statuses <= {403}:
        raise ValueError("its policy (jolokia-access.xml) does not permit to read MBeans of Kafka: status 403")
    if statuses <= {404}:
        raise ValueError("it has no MBean of Kafka, so it is the agent of another process or of one that just started")
    for (name, (mbean, attribute)), one in zip(_READS.items(), read, strict=True):
        if one["status"] == 404:  # the release has no such MBean
            continue
        if one["status"] != 200:
            seen.unreadable[name] = f"{mbean} has response status {one['status']}"
            continue
        # A pattern returns MBean → attribute → value.
        value = one.get("value")
        if value is None:
            seen.unreadable[name] = f"{mbean} has no value"
            continue
        beans = value if "*" in mbean else {mbean: {attribute: value}}
        for bean, attributes in beans.items():
            if attribute in attributes:
                seen.read(name, our_labels(_properties(bean)), attributes[attribute])
    return seen.forget_unreadable()


def _is_kafkas(mbean: str) -> bool:
    return mbean.startswith("kafka.")


def _query_prometheus(client: httpx.Client, url: str, own: OwnNames, now: Callable[[], float]) -> _Seen:
    seen = _Seen()
    known = False
    lines = _text_of(client, client.build_request("GET", url)).split("\n")
    ours = list(filter(LineFilter(own).keep, lines))
    try:
        families = list(text_string_to_metric_families("\n".join([*ours, ""])))
    except ValueError:  # of any line
        families = [family for line in ours for family in text_string_to_metric_families(_readable(line))]
    for family in families:
        for sample in family.samples:
            name, labels = our_metric(sample, own)
            if name is not None:
                seen.read(name, labels, sample.value)
                seen.instances |= {one for one in [sample.labels.get("instance", "")] if one}
                if sample.timestamp is not None:
                    seen.ages_s.add(now() - float(sample.timestamp))
                known = True
    if not known:
        raise ValueError("it exports no metric of Kafka by a known name, see include/metrics/jmx_exporter.yaml")
    return seen.forget_unreadable()


def _readable(line: str) -> str:
    """Return a line of an exporter; with NaN instead of a value that is no number."""
    series = _SERIES.match(line)
    if series is None:
        return f"{line}\n"
    value = line[series.end() :].split()
    try:
        float(value[0])
        return f"{line}\n"
    except (IndexError, ValueError):
        return f"{series[0]} NaN\n"


def _text_of(client: httpx.Client, request: httpx.Request) -> str:
    answer, text = text_of(client, request, most_mib=_MOST_MIB, within_s=_WHOLE_RESPONSE_S)
    answer.raise_for_status()
    return text


def _properties(mbean: str) -> dict[str, str]:
    """Parse the key properties of an MBean name; quoted values can contain commas."""
    pairs: Iterable[tuple[str, str, str]] = re.findall(
        r'([^,=]+)=(?:"((?:\\.|[^"\\])*)"|([^,]*))', mbean.split(":", 1)[1]
    )
    return {key: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for key, quoted, plain in pairs}


def _requests(value: Any) -> int:
    """Return the number of requests; of a rate, which some rules export under the same name, at least 1.

    A broker has the meter from the first request on (RequestMetrics), and its rate is 0.0 after half a day without one.
    """
    return max(int(value), 1)


def _feature(metric_name: str) -> str:
    """Kafka's metric calls `group.version` groupVersion."""
    return re.sub("[A-Z]", lambda letter: "." + letter[0].lower(), metric_name)


def _java_version(text: str) -> int:
    """`17`, `17.0.19+10`, `25-ea` or, before Java 9, `1.8`."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    if match is None:
        raise ValueError(f"it is {text}")
    return int(match[1])
