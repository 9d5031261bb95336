"""Names of metrics in a Prometheus exporter: ours, those of common rules, and those of an operator's own rules.

Ours are in include/metrics/jmx_exporter.yaml, with a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
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
# Names of common rules in lower case → ours: the examples of the exporter for Kafka (kafka-2_0_0.yml and
# kafka-kraft-3_0_0.yml), Strimzi (kafka-metrics.yaml), Confluent (jmx-monitoring-stacks, kafka_broker.yml), and an
# exporter without rules. The release is not among them: no common rule exports the text of app-info.
_COMMON = {
    "jvm_info": "java",
    "jvm_runtime_info": "java",
    "kafka_server_metadataloader_currentmetadataversion": "current_metadata_version",
    "kafka_server_metadataloader_finalizedlevel": "finalized_level",
    "kafka_server_snapshotemitter_latestsnapshotgeneratedagems": "latest_snapshot_generated_agems",
    "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes": "latest_snapshot_generated_bytes",
    "kafka_controller_kafkacontroller_globalpartitioncount": "partitions",
    "kafka_server_socket_server_metrics_connections": "client_connections",
    "kafka_server_socket_server_metrics_connections_software": "client_connections",
    "kafka_server_socketservermetrics_connections": "client_connections",
    "kafka_network_requestmetrics_requests_total": "requests",
    "kafka_network_requestmetrics_count_requestspersec": "requests",
    "kafka_network_requestmetrics_count_deprecatedrequestspersec": "deprecated_requests",
    "kafka_server_brokermetadatametrics_metadata_apply_error_count": "metadata_apply_errors",
    "kafka_server_brokermetadatametrics_metadata_load_error_count": "metadata_load_errors",
    "kafka_server_broker_metadata_metrics_metadata_apply_error_count": "metadata_apply_errors",
    "kafka_server_broker_metadata_metrics_metadata_load_error_count": "metadata_load_errors",
    "kafka_controller_kafkacontroller_metadataerrorcount": "metadata_errors",
    "kafka_log_logmanager_offlinelogdirectorycount": "offline_log_directories",
    "kafka_controller_kafkacontroller_fencedbrokercount": "fenced_brokers",
    "kafka_controller_kafkacontroller_activebrokercount": "active_brokers",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "offline_partitions",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": "preferred_replica_imbalance",
    # Only an exporter without rules has the rates; the rules export the counts of these meters.
    "kafka_server_brokertopicmetrics_oneminuterate_remotecopyerrorspersec": "remote_copy_errors",
    "kafka_server_brokertopicmetrics_oneminuterate_remotefetcherrorspersec": "remote_fetch_errors",
}
# Key property of an MBean, in lower case and without underscores → label of the exporter.
_LABELS = {"featurename": "feature", "clientsoftwarename": "software", "clientsoftwareversion": "software_version"}
# Labels without which a metric has no use: rules can leave them out.
_NEEDS = {
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
        return sample.name.removeprefix(_PREFIX), sample.labels
    if "topic" in sample.labels:  # no metric of ours is of one topic
        return None, {}
    name = sample.name.lower().removesuffix("_value")
    found = _COMMON.get(name) or _COMMON.get(f"{name}_{sample.labels.get('name', '').lower()}")
    return found, our_labels(sample.labels)


def our_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {_LABELS.get(key.lower().replace("_", ""), key): value for key, value in labels.items()}


def own_names(names: Mapping[str, str]) -> OwnNames:
    """Parse `kafka_build_info{version=release}`: the label `release` of the operator is our label `version`."""
    own = {}
    for ours, text in names.items():
        name, _, labels = text.rstrip("}").partition("{")
        pairs = (pair.split("=", 1) for pair in labels.split(",") if pair)
        own[name] = (ours, {theirs.strip(): label.strip() for label, theirs in pairs})
    return own
