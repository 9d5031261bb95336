"""Findings about values that the tool cannot observe. They block no question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from kafka_rollout.base.findings import (
    CHECK_FAILED,
    INFO,
    NOT_OBSERVABLE,
    WARNING,
    Check,
    Examined,
    Finding,
    FindingCode,
    Need,
)
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.configs import ConfigKind, DynamicConfigs, NodeConfigs, unresolved_settings
from kafka_rollout.model.state import ClusterState, find_unlisted_controllers
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout.releases.reported import ReportedRelease, identify_by_levels

_REMEDY = "No action needed, unless the answer depends on it."


RELEASE_BY_LEVELS = FindingCode(
    "RELEASE-BY-LEVELS",
    (WARNING, INFO),
    "No metrics agent reports the release. The levels that the node supports show its minor line.",
)
OBSERVABLE_CHECK = Check(
    "observable-values",
    "Values that the tool can observe",
    "inventory.md#read-only-clusters",
    (NOT_OBSERVABLE, RELEASE_BY_LEVELS),
    needs=(Need.NODES,),
)
FILES_CHECK = Check(
    "readable-configurations",
    "Configurations and Java versions that the tool can read",
    "inventory.md#config-providers",
    (NOT_OBSERVABLE, CHECK_FAILED),
    needs=(),
    examines=Examined.CONFIGS,
)


def not_observable_findings(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> Iterator[Finding]:
    """Yield the findings of one observation; none for a cluster with a runtime."""
    if cluster.manages_nodes:
        return
    yield not_observable(
        "hosts", f"Cluster {cluster.name} has runtime {cluster.runtime}: processes, files and logs of its nodes"
    )
    if hidden := find_unlisted_controllers(cluster, state):
        yield not_observable(
            f"controllers {few(sorted(hidden))}",
            f"Controllers {few(sorted(hidden), limit=12)} are voters or registered, and the inventory has no address "
            "for them: their release, levels and configuration",
            "Add them to the inventory if this machine can reach their listener.",
        )
    for sentence in state.not_observable:
        yield NOT_OBSERVABLE.found(
            sentence, f"Not observable: {sentence}", "Grant the right if the answer matters.", severity=INFO
        )
    yield from _releases(cluster, catalogue, state)


def not_observable(subject: str, what: str, remedy: str = _REMEDY) -> Finding:
    """Return the finding. `what`: subject of the sentence "… are not observable." """
    return NOT_OBSERVABLE.found(subject, f"{what} are not observable.", remedy, severity=INFO)


def unobserved_nodes(cluster: ClusterSpec, observed: Collection[int], what: str) -> tuple[Finding, ...]:
    """Return the finding for nodes without a value; empty if all have one. `what`: in the plural."""
    missing = [node.node_id for node in cluster.nodes if node.node_id not in observed]
    if not missing or cluster.manages_nodes:
        return ()
    return (not_observable(f"{what} of {nodes(missing)}", f"The {what} of {nodes(missing)}"),)


def unresolved_config_findings(configs: NodeConfigs) -> tuple[Finding, ...]:
    """Return the findings about settings whose values come from a config provider. `configs`: by node id.

    Kafka's own classes validate the rest of the configuration, with the defaults of these settings.
    """
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for node_id, config in configs.items():
        if names := unresolved_settings(config):
            alike[names].append(node_id)
    return tuple(_unresolved(f"the configuration of {nodes(ids)}", names) for names, ids in sorted(alike.items()))


def unresolved_dynamic_findings(dynamic: DynamicConfigs) -> tuple[Finding, ...]:
    """Return the findings about dynamic settings of brokers whose values come from a config provider."""
    return tuple(
        _unresolved(f"the dynamic configuration of {f'broker {name}' if name else 'all brokers'}", names)
        for kind in (ConfigKind.ALL_BROKERS, ConfigKind.BROKER)
        for name, settings in sorted(dynamic.of(kind).items())
        if (names := unresolved_settings(settings))
    )


def _unresolved(where: str, names: Collection[str]) -> Finding:
    listed = few(names, limit=12)
    used = [name for name in names if name in _USED]
    consequences = "".join(f" {_USED[name]}" for name in used)
    return NOT_OBSERVABLE.found(
        f"{where}: {listed}",
        f"In {where}, config providers supply {listed}. Only the nodes resolve these values, so they are not "
        f"observable. The rest of the configuration was validated.{consequences}",
        "Compare the values of these settings with the release notes of the target release.",
        severity=WARNING if used else INFO,
    )


_DIRECTORIES_UNKNOWN = "The formats of its directories are not checked, and its metadata log cannot be read."
_USED: Mapping[str, str] = {
    "log.dirs": _DIRECTORIES_UNKNOWN,
    "log.dir": _DIRECTORIES_UNKNOWN,
    "metadata.log.dir": _DIRECTORIES_UNKNOWN,
    "controller.quorum.voters": "The voters in the file are not checked.",
    "metadata.log.max.snapshot.interval.ms": "The snapshot gate expects the default interval.",
}
"""Settings that the tool reads itself → the consequence of an unknown value."""


def _releases(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> Iterator[Finding]:
    """Report nodes whose release follows from the levels that they support, and nodes whose release is unknown."""
    unknown: list[int] = []
    by_levels: defaultdict[ReportedRelease, list[int]] = defaultdict(list)
    for node_id, seen in sorted(state.nodes.items()):
        if seen.features is None or (seen.metrics is not None and seen.metrics.release is not None):
            continue
        found = identify_by_levels(seen.features.supported, catalogue, cluster.apache_releases)
        (unknown if found.release is None else by_levels[found]).append(node_id)
    if unknown:
        yield not_observable(
            f"releases of {nodes(unknown)}",
            f"The releases of {nodes(unknown)}",
            "Add prometheus_url or jolokia_url to the inventory if the nodes have a metrics agent.",
        )
    for found, ids in by_levels.items():
        who = f"{nodes(ids).capitalize()} {'supports' if len(ids) == 1 else 'support'} {found.text}"
        if found.overridden:
            yield RELEASE_BY_LEVELS.found(
                found.text, f"{who}: the inventory maps it to Kafka {found.release}.", severity=INFO
            )
            continue
        differing = (
            f" The patch releases of {found.apache} differ in: {few(found.differing)}." if found.differing else ""
        )
        yield RELEASE_BY_LEVELS.found(
            found.text,
            f"{who}, as Kafka {found.apache} does, and no metrics agent reports the patch release. The release is "
            f"evaluated as Kafka {found.release}.{differing}",
            "If the patch release is known, set apache_releases in the inventory: "
            f'{{"{found.text}": "{found.neighbours[-1]}"}}, for example.',
            severity=WARNING if differing else INFO,
        )
