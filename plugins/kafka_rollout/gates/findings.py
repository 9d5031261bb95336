"""Findings about what the gates check: counters of errors, counters that no agent exports, and tiered storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need, Severity
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.gates.counters import PARTITION_COUNT, expected_counters, has_agent
from kafka_rollout.gates.remote_storage import KAFKA_MANAGER, metadata_manager, uses_tiered_storage
from kafka_rollout.model.counters import COUNTERS, METADATA_ERROR_COUNTERS, OFFLINE_LOG_DIRECTORIES
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release

_NAMED = 12


METADATA_ERRORS = FindingCode(
    "METADATA-ERRORS",
    (WARNING, BLOCKER),
    "A node could not apply a part of the metadata since its start, and serves without it.",
)
LOG_DIRECTORY_OFFLINE = FindingCode("LOG-DIRECTORY-OFFLINE", BLOCKER, "A log directory of a broker has failed.")
COUNTERS_NOT_EXPORTED = FindingCode(
    "COUNTERS-NOT-EXPORTED", WARNING, "Metrics agents do not export counters that the gates check."
)
COUNTER_CHECK = Check(
    "error-counters",
    "Error counters of the nodes",
    "upgrade.md#what-the-gates-believe",
    (METADATA_ERRORS, LOG_DIRECTORY_OFFLINE, COUNTERS_NOT_EXPORTED),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(Need.METRICS,),
)
REMOTE_LOG_NOT_CHECKED = FindingCode(
    "REMOTE-LOG-NOT-CHECKED",
    WARNING,
    "Brokers use tiered storage, and no scan reads the metadata of remote segments.",
    "Let the run pause after the first broker. Consume a topic from an offset that is only in remote storage, "
    "then continue.",
)
REMOTE_STORAGE_CHECK = Check(
    "tiered-storage",
    "Tiered storage",
    "upgrade.md#findings",
    (REMOTE_LOG_NOT_CHECKED,),
    needs=(Need.BROKER_CONFIGS,),
    examines=Examined.BROKERS,
)


def find_unchecked_counters(
    cluster: ClusterSpec, state: ClusterState, tiered: Collection[int] = ()
) -> dict[str, tuple[int, ...]]:
    """Return counter → nodes with an agent that does not export it now. The gates do not wait for these.

    `tiered`: ids of the brokers with tiered storage, which have more counters.
    """
    missing: defaultdict[str, list[int]] = defaultdict(list)
    for node in cluster.nodes:
        if not has_agent(node):
            continue
        seen = state.nodes.get(node.node_id)
        metrics = seen.metrics if seen else None
        for name in expected_counters(node, tiered=node.node_id in tiered):
            if metrics is None or name not in metrics.counters:
                missing[name].append(node.node_id)
        if node.is_controller and (metrics is None or metrics.partition_count is None):
            missing[PARTITION_COUNT].append(node.node_id)
    return {name: tuple(ids) for name, ids in missing.items()}


def counter_findings(
    cluster: ClusterSpec,
    state: ClusterState,
    *,
    tiered: Collection[int] = (),
    errors: Severity = Severity.WARNING,
) -> Iterator[Finding]:
    """Yield the findings of one observation. `errors`: severity of metadata errors; a restart of the node ends them.

    `tiered`: as in find_unchecked_counters.
    """
    yield from _not_exported(cluster, state, tiered)
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        counters = seen.metrics.counters if seen and seen.metrics else {}
        counted = [f"{COUNTERS[n].kafka_name} {counters[n]}" for n in METADATA_ERROR_COUNTERS if counters.get(n)]
        if counted:
            yield METADATA_ERRORS.found(
                f"node {node.node_id}",
                f"{node.name} reports {', '.join(counted)}: since its start it could not apply a part of the "
                "cluster's metadata, and serves clients without it (ACLs, quotas or dynamic settings, for example).",
                f"Read the errors in the log of {node.name} and remove their cause. A restart applies all "
                "metadata again.",
                severity=errors,
            )
        if lost := counters.get(OFFLINE_LOG_DIRECTORIES):
            yield LOG_DIRECTORY_OFFLINE.found(
                f"node {node.node_id}",
                f"{node.name} reports OfflineLogDirectoryCount {lost}: the replicas there are not in sync.",
                f"Replace the disk, or remove the directory from log.dirs, and restart {node.name}. Then plan again.",
            )


def _not_exported(cluster: ClusterSpec, state: ClusterState, tiered: Collection[int]) -> Iterator[Finding]:
    """Report nodes whose agents respond without some counters; a node without metrics has METRICS-MISSING."""
    of_node: defaultdict[int, list[str]] = defaultdict(list)
    for name, ids in find_unchecked_counters(cluster, state, tiered).items():
        for node_id in ids:
            if (seen := state.nodes.get(node_id)) and seen.metrics is not None:
                of_node[node_id].append(name)
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for node_id, names in of_node.items():
        alike[tuple(names)].append(node_id)
    for lacking, nodes_ in alike.items():
        listed = few(sorted(nodes_), limit=_NAMED)
        rules = ", ".join(COUNTERS[name].exporter_rule(name) for name in lacking if name in COUNTERS)
        objects = ", ".join(dict.fromkeys(COUNTERS[name].mbean for name in lacking if name in COUNTERS))
        yield COUNTERS_NOT_EXPORTED.found(
            f"metrics agents of nodes {listed}",
            f"The metrics agents of nodes {listed} do not export {', '.join(_shown(lacking))}. The gates do not check "
            "these counters: a node that could not apply a part of its metadata passes them.",
            f"Add the rules of include/metrics/jmx_exporter.yaml to the exporter: objects {objects}; rules {rules}. "
            "Or approve the plan, and read the nodes' logs for errors after each start.",
        )


def _shown(names: tuple[str, ...]) -> Iterator[str]:
    shown: Mapping[str, str] = {PARTITION_COUNT: "GlobalPartitionCount"}
    yield from (shown[name] if name in shown else COUNTERS[name].kafka_name for name in names)


def remote_storage_findings(
    cluster: ClusterSpec, configs: Mapping[int, Mapping[str, str]], target: Release
) -> Iterator[Finding]:
    """Yield what no check of the run covers on brokers with tiered storage. `configs`: by node id."""
    by_manager: defaultdict[str, list[int]] = defaultdict(list)
    for broker in cluster.brokers:
        config = configs.get(broker.node_id, {})
        if uses_tiered_storage(config):
            by_manager[metadata_manager(config)].append(broker.node_id)
    for manager, ids in sorted(by_manager.items()):
        gates = (
            "The gates check that each broker has initialised its metadata manager."
            if manager == KAFKA_MANAGER
            else f"The gates do not check {manager}."
        )
        yield REMOTE_LOG_NOT_CHECKED.found(
            f"tiered storage of {nodes(ids)}",
            f"Tiered storage is enabled on {nodes(ids)}. The scan does not read the metadata of remote segments "
            f"(__remote_log_metadata), so it is unknown whether Kafka {target} can load it. {gates} They wait while "
            "copies or fetches fail, but a broker that has not tried any passes.",
        )
