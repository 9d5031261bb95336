"""Names of metrics in a Prometheus exporter: ours, those of common rules, and those of an operator's own rules.

Ours are in include/metrics/jmx_exporter.yaml, with a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from prometheus_client.samples import Sample
from pydantic import StringConstraints

MetricName = Literal[
    "app",
    "java",
    "current_metadata_version",
    "finalized_level",
    "latest_snapshot_generated_agems",
    "latest_snapshot_generated_bytes",
    "partitions",
    "client_connections",
    "requests",
    "deprecated_requests",
    "metadata_apply_errors",
    "metadata_load_errors",
    "metadata_errors",
    "offline_log_directories",
    "fenced_brokers",
    "active_brokers",
    "offline_partitions",
    "preferred_replica_imbalance",
    "remote_copy_errors",
    "remote_fetch_errors",
    "group_partitions_active",
    "group_partitions_loading",
    "group_partitions_failed",
    "share_partitions_active",
    "share_partitions_loading",
    "share_partitions_failed",
]
OWN_METRIC = r"^[A-Za-z_:][A-Za-z0-9_:]*(\{[a-z_]+=[A-Za-z_]\w*(, ?[a-z_]+=[A-Za-z_]\w*)*\})?$"
OwnMetric = Annotated[str, StringConstraints(pattern=OWN_METRIC)]
OwnNames = Mapping[str, tuple[str, Mapping[str, str]]]
"""Name of the operator → our name, and the operator's labels → ours."""


_PREFIX = "kafka_rollout_"
# Domain, type and name of an MBean, and the attribute of some, in lower case without separators → ours. Rules differ in
# separators, letters and the endings of _ENDINGS, and in where they put the other key properties (_properties).
_COMMON = {
    "jvminfo": "java",
    "jvmruntimeinfo": "java",
    "kafkaserverappinfo": "app",
    "kafkaserverappinfoversion": "app",
    "kafkaservermetadataloadercurrentmetadataversion": "current_metadata_version",
    "kafkaservermetadataloaderfinalizedlevel": "finalized_level",
    "kafkaserversnapshotemitterlatestsnapshotgeneratedagems": "latest_snapshot_generated_agems",
    "kafkaserversnapshotemitterlatestsnapshotgeneratedbytes": "latest_snapshot_generated_bytes",
    "kafkacontrollerkafkacontrollerglobalpartitioncount": "partitions",
    "kafkaserversocketservermetricsconnections": "client_connections",
    "kafkaserversocketservermetricsconnectionssoftware": "client_connections",
    "kafkanetworkrequestmetricsrequests": "requests",
    "kafkanetworkrequestmetricsrequestspersec": "requests",
    "kafkanetworkrequestmetricsdeprecatedrequests": "deprecated_requests",
    "kafkanetworkrequestmetricsdeprecatedrequestspersec": "deprecated_requests",
    "kafkaserverbrokermetadatametricsmetadataapplyerrorcount": "metadata_apply_errors",
    "kafkaserverbrokermetadatametricsmetadataloaderrorcount": "metadata_load_errors",
    "kafkacontrollerkafkacontrollermetadataerrorcount": "metadata_errors",
    "kafkaloglogmanagerofflinelogdirectorycount": "offline_log_directories",
    "kafkacontrollerkafkacontrollerfencedbrokercount": "fenced_brokers",
    "kafkacontrollerkafkacontrolleractivebrokercount": "active_brokers",
    "kafkacontrollerkafkacontrollerofflinepartitionscount": "offline_partitions",
    "kafkacontrollerkafkacontrollerpreferredreplicaimbalancecount": "preferred_replica_imbalance",
    # Only an exporter without rules has the rates; the rules export the counts of these meters.
    "kafkaserverbrokertopicmetricsoneminuterateremotecopyerrorspersec": "remote_copy_errors",
    "kafkaserverbrokertopicmetricsoneminuterateremotefetcherrorspersec": "remote_fetch_errors",
}
_ENDINGS = ("_total", "_count", "_value", "_info")
# Key properties that rules put into names and labels, in lower case without underscores → label of the exporter.
_LABELS = {
    "version": "version",
    "value": "value",
    "featurename": "feature",
    "clientsoftwarename": "software",
    "clientsoftwareversion": "software_version",
    "apiname": "request",
    "apiversion": "version",
    "id": "node_id",
    "brokerid": "node_id",
    "nodeid": "node_id",
}
_PROPERTY = re.compile(
    r"(?:^|_)(request|version|client_?software_?name|client_?software_?version|listener|network_?processor)_", re.I
)
# Labels without which a metric has no use: rules can leave them out.
_NEEDS = {
    "app": {"version"},
    "java": {"version"},
    "finalized_level": {"feature"},
    "client_connections": {"software"},
    "requests": {"request", "version"},
    "deprecated_requests": {"request", "version", "software", "software_version"},
}


def our_metric(sample: Sample, own: OwnNames) -> tuple[str | None, Mapping[str, str]]:
    """Return our name of a metric and its labels by our names; None for every other metric."""
    name, labels = _named(sample, own)
    return (name, labels) if name is not None and labels.keys() >= _NEEDS.get(name, set()) else (None, {})


def _named(sample: Sample, own: OwnNames) -> tuple[str | None, Mapping[str, str]]:
    if sample.name in own:
        name, labels = own[sample.name]
        return name, {labels.get(key, key): value for key, value in sample.labels.items()}
    if sample.name.startswith(_PREFIX):
        return sample.name.removeprefix(_PREFIX), our_labels(sample.labels)
    if "topic" in sample.labels:  # no metric of ours is of one topic
        return None, {}
    base, in_name = _split_name(sample.name)
    for found in _keys(base, sample.labels.get("name", "")):
        if found in _COMMON:
            labels = our_labels({**in_name, **_properties(sample.labels)})
            if found == "kafkaserverappinfoversion" and "value" in labels:  # the value of the attribute Version
                labels.setdefault("version", labels["value"])
            return _COMMON[found], labels
    return None, {}


def _keys(name: str, of_mbean: str) -> Iterator[str]:
    """Yield what a name can mean: as it is, without each ending, and with the name of the MBean from a label."""
    texts = [name.lower()]
    for text in texts:
        texts += [text.removesuffix(ending) for ending in _ENDINGS if text.endswith(ending)]
    for text in texts:
        yield _squash(text)
        if of_mbean:
            yield _squash(text + of_mbean)


def _squash(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "")


def _split_name(name: str) -> tuple[str, dict[str, str]]:
    """Split `…_requestspersec_request_fetch_version_3` into the metric and its key properties.

    Of a client's name and version, such rules keep no separators: they are shown with the usual ones. The attribute
    `connections` is behind the properties.
    """
    base, *parts = _PROPERTY.split(name)
    found = dict(zip(map(_squash, parts[::2]), parts[1::2], strict=True))
    if not found or "metrics" not in base.lower():  # kafka_server_metadataloader_… has no properties in its name
        return name, {}
    if found.get("networkprocessor", "").endswith("_connections"):
        base += "_connections"
    if "clientsoftwarename" in found:
        found["clientsoftwarename"] = found["clientsoftwarename"].replace("_", "-")
    if "clientsoftwareversion" in found:
        found["clientsoftwareversion"] = found["clientsoftwareversion"].replace("_", ".")
    return base, found


def _properties(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the key properties in labels, wherever rules with greedy patterns put them.

    `request_Fetch_version_3_clientSoftwareName="a"` has three, and so has `request="Fetch, version=3, client…=a"`.
    """
    found: dict[str, str] = {}
    for key, value in labels.items():
        base, *parts = _PROPERTY.split(f"{key}_")
        if len(parts) > 2 and not base:
            found |= dict(zip(parts[::2], [*parts[1:-1:2], value], strict=True))
        elif ", " in value and "=" in value:
            first, *others = value.split(", ")
            found |= {key: first, **dict(one.split("=", 1) for one in others if "=" in one)}
        else:
            found[key] = value
    return found


class LineFilter:
    """Finds the lines of a response whose metric can be one of ours, without parsing them.

    A broker with thousands of partitions sends tens of MB, and a gate reads them every few seconds.
    """

    def __init__(self, own: OwnNames) -> None:
        self._own = own
        self._known: dict[str, bool] = {}

    def keep(self, line: str) -> bool:
        end = len(line)
        for separator in "{ ":
            if 0 <= (at := line.find(separator)) < end:
                end = at
        name = line[:end]
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._can_be_ours(name)
        return known and 'topic="' not in line

    def _can_be_ours(self, name: str) -> bool:
        if not name or name.startswith("#"):
            return False
        if name in self._own or name.startswith(_PREFIX):
            return True
        base, _ = _split_name(name)
        keys = tuple(_keys(base, ""))
        return any(ours.startswith(keys[-1]) for ours in _COMMON) or any(key in _COMMON for key in keys)


def our_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {_LABELS.get(_squash(key), key): value for key, value in labels.items()}


def own_names(names: Mapping[str, str]) -> OwnNames:
    """Parse `kafka_build_info{version=release}`: the label `release` of the operator is our label `version`."""
    own = {}
    for ours, text in names.items():
        name, _, labels = text.rstrip("}").partition("{")
        pairs = (pair.split("=", 1) for pair in labels.split(",") if pair)
        own[name] = (ours, {theirs.strip(): label.strip() for label, theirs in pairs})
    return own
