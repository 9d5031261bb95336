"""The nodes that support a level, from each node's own response, unlisted nodes included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.features.registrations import keeps_registrations, renews_registrations
from kafka_rollout.model.state import (
    ClusterState,
    NodeState,
    find_unlisted_brokers,
    find_unlisted_controllers,
)
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release, ReleaseFacts, VersionRange

_NONE = "not at all"  # no range

CONTROLLER_UNREGISTRATION_LEVEL = 33
"""metadata.version 4.4-IV2: the first level at which a controller's registration can be removed (KIP-1312)."""

FIRST_KRAFT_UPGRADE = Release(4, 1, 0)
"""The first release whose controllers make a static quorum dynamic (KIP-853)."""


FEATURE_SUPPORT_UNKNOWN = FindingCode(
    "FEATURE-SUPPORT-UNKNOWN",
    (BLOCKER, WARNING),
    "It is unknown whether a node supports a level.",
    "Start these nodes, or remove them from the inventory and unregister them.",
)
FEATURE_UNSUPPORTED = FindingCode(
    "FEATURE-UNSUPPORTED",
    BLOCKER,
    "A node does not support a level.",
    "Upgrade these nodes to a release that supports it, or choose another level.",
)
NEXT_START_UNSUPPORTED = FindingCode(
    "NEXT-START-UNSUPPORTED",
    (BLOCKER, WARNING),
    "The release that the next start of a node runs does not support a level: the link or the package is not that of "
    "the running process. A warning if it is unknown.",
)
FEATURE_HELD_BACK = FindingCode(
    "FEATURE-HELD-BACK", INFO, "Only some nodes support a higher level of a feature.", "Upgrade these nodes first."
)
REGISTRATION_MAY_LACK_RANGES = FindingCode(
    "REGISTRATION-MAY-LACK-RANGES",
    (INFO, WARNING),
    "Brokers that registered with a controller before 3.9 lack ranges with minimum 0 in their registration.",
)


def supported_ranges(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, feature: str
) -> dict[int, VersionRange | str | None]:
    """Return id → range of each node of the inventory; None if it has none; a text: why the range is unknown."""
    return {node.node_id: _range_of(catalogue, state.nodes.get(node.node_id), feature) for node in cluster.nodes}


def _range_of(catalogue: Catalogue, seen: NodeState | None, feature: str) -> VersionRange | str | None:
    if seen is None:
        return "it was not queried"
    if seen.features is None:
        return seen.problem or "it did not respond"
    if seen.features.supported:
        return seen.features.supported.get(feature)
    # Controllers of older releases respond to ApiVersions without features, so the facts of their release are used.
    if seen.release is None or seen.release not in catalogue:
        return "it reports no features, and its release is unknown"
    facts = catalogue.get(seen.release).features.get(feature)
    return facts.supported if facts else None


def support_findings(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, feature: str, level: int
) -> Iterable[Finding]:
    """Return findings for nodes of the inventory that do not support the level, or whose support is unknown."""
    unknown: list[str] = []
    reasons: dict[str, list[int]] = {}
    for node_id, supported in supported_ranges(cluster, catalogue, state, feature).items():
        if isinstance(supported, str):
            unknown.append(f"node {node_id} ({supported.rstrip('.')})")
        elif supported is None or level not in supported:
            reasons.setdefault(str(supported or _NONE), []).append(node_id)
    if unknown:
        yield FEATURE_SUPPORT_UNKNOWN.found(
            f"feature {feature}",
            f"{' and '.join(unknown)} did not report whether {feature} {level} is supported.",
            severity=BLOCKER,
        )
    if reasons:
        sentence = f"Not every node supports {feature} {level}: {_supports(reasons)}."
        yield FEATURE_UNSUPPORTED.found(f"feature {feature}", sentence)


def _supports(reasons: Mapping[str, list[int]]) -> str:
    """`reasons`: a range as text, or _NONE → node ids."""
    parts = []
    for text, ids in reasons.items():
        does, plain = ("does", "supports") if len(ids) == 1 else ("do", "support")
        parts.append(f"{nodes(ids)} {does} not support it" if text == _NONE else f"{nodes(ids)} {plain} {text}")
    return "; ".join(parts)


def format_levels(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{feature} {level}" for feature, level in sorted(levels.items()))


def find_lacking(facts: ReleaseFacts, levels: Mapping[str, int]) -> Mapping[str, int]:
    """Return the levels that a release does not support."""
    known = {name: feature.supported for name, feature in facts.features.items()}
    return {name: level for name, level in levels.items() if name not in known or level not in known[name]}


def next_start_findings(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int]
) -> Iterable[Finding]:
    """Return findings for nodes whose next start runs another release than the process, which lacks a level.

    Software that manages hosts can change the link or the package back while the process runs.
    """
    wanted = {feature: level for feature, level in targets.items() if level > 0}
    lacking: dict[tuple[Release | None, str], list[int]] = {}
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        if not wanted or not cluster.manages_nodes or seen is None or seen.process.pid is None:
            continue
        installed = seen.process.installed
        if installed is None or (installed != seen.release and installed not in catalogue):
            lacking.setdefault((installed, ""), []).append(node.node_id)
        elif installed != seen.release and (lacked := find_lacking(catalogue.get(installed), wanted)):
            lacking.setdefault((installed, format_levels(lacked)), []).append(node.node_id)
    for (installed, lacked_levels), ids in lacking.items():
        yield NEXT_START_UNSUPPORTED.found(
            f"{nodes(ids)}, {lacked_levels or 'release unknown'}",
            f"The next start of {nodes(ids)} is on Kafka {installed}, which does not support {lacked_levels}. Then the "
            "process could not start again."
            if lacked_levels
            else f"The next start of {nodes(ids)} is on {installed or 'no known release'}, so the levels that it "
            "supports are unknown.",
            "Switch the link, or install the package, of the release that runs. Correct the software that manages "
            "the link or the package, so that it does not change it back.",
            severity=BLOCKER if lacked_levels else WARNING,
        )


def highest_known(catalogue: Catalogue, state: ClusterState, feature: str) -> int | None:
    """Return the highest level that any node or any release of the catalogue supports; None: the feature is unknown."""
    reported = [node.features.supported.get(feature) for node in state.nodes.values() if node.features]
    facts = [catalogue.get(release).features.get(feature) for release in catalogue]
    levels = [found.max for found in reported if found] + [known.supported.max for known in facts if known]
    return max(levels, default=None)


def held_back_feature_findings(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> Iterable[Finding]:
    """Return findings for features that could be raised further if all nodes supported the level."""
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    for name in sorted(names - {KRAFT_VERSION}):
        ranges = supported_ranges(cluster, catalogue, state, name)
        highest = max((found.max for found in ranges.values() if isinstance(found, VersionRange)), default=0)
        behind: dict[str, list[int]] = {}
        for node_id, found in ranges.items():
            if found is None or (isinstance(found, VersionRange) and found.max < highest):
                behind.setdefault(str(found or _NONE), []).append(node_id)
        if behind and highest > state.finalized.reported.get(name, 0):
            sentence = f"{name} could be raised to {highest}, but {_supports(behind)}."
            yield FEATURE_HELD_BACK.found(f"feature {name}", sentence)


def unlisted_node_findings(cluster: ClusterSpec, state: ClusterState, targets: Mapping[str, int]) -> Iterable[Finding]:
    """Return findings for nodes that are registered but missing in the inventory. `targets`: levels to finalize.

    Controllers that clients cannot reach are no blocker for a cluster without a runtime: the active controller checks
    the levels of the controllers that have registered (KIP-919).
    """
    for kind, unlisted in (
        ("broker", find_unlisted_brokers(cluster, state)),
        ("controller", find_unlisted_controllers(cluster, state)),
    ):
        hidden = kind == "controller" and not cluster.manages_nodes
        for node_id in sorted(unlisted):
            lacking = unlisted_controller_lacks(state, node_id, targets) if kind == "controller" else None
            if lacking is not None:
                if lacking:
                    yield FEATURE_UNSUPPORTED.found(
                        f"{kind} {node_id}",
                        f"Controller {node_id} is registered but not listed in the inventory. Its registration does "
                        f"not support {', '.join(lacking)}. The active controller counts it.",
                        removed_controller_remedy(cluster, state, node_id),
                    )
                continue
            yield FEATURE_SUPPORT_UNKNOWN.found(
                f"{kind} {node_id}",
                f"{kind.capitalize()} {node_id} is registered but not listed in the inventory, so its "
                "supported levels are unknown. The controller counts it.",
                removed_controller_remedy(cluster, state, node_id)
                if kind == "controller"
                else removed_broker_remedy(cluster, node_id),
                severity=WARNING if hidden else BLOCKER,
            )


def removed_broker_remedy(cluster: ClusterSpec, node_id: int) -> str:
    """Return how an unlisted broker's registration is removed without a loss.

    Kafka removes the broker from each ISR and ELR then (ReplicationControlManager.handleBrokerUnregistered).
    """
    return (
        "If it is a broker of this cluster, add it to the inventory. If it does not exist any more, first reassign its "
        "replicas (kafka-reassign-partitions.sh). Then remove its registration (kafka-cluster.sh unregister "
        f"--bootstrap-server {cluster.bootstrap_servers} --id {node_id}): this takes the broker out of every ISR, so "
        "records that only its host has are lost."
    )


def removed_controller_remedy(cluster: ClusterSpec, state: ClusterState, node_id: int, on: str = "") -> str:
    """Return how an unlisted controller's registration stops to block levels. `on`: the release of the target levels.

    No command removes a registration below level 33. A later registration of the same id replaces it.
    """
    listed = "If it runs, add it to the inventory. If not,"
    if state.finalized.reported.get(METADATA_VERSION, 0) >= CONTROLLER_UNREGISTRATION_LEVEL:
        return (
            f"{listed} remove its registration (kafka-cluster.sh unregister-controller --bootstrap-server "
            f"{cluster.bootstrap_servers} --id {node_id})."
        )
    return (
        f"{listed} start a controller with node.id {node_id} on {on or 'a release that supports the levels'}, so that "
        "it registers again, then stop it (docs/upgrade.md, Unlisted controllers)."
    )


def unlisted_controller_lacks(state: ClusterState, node_id: int, targets: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the levels of `targets` that a controller does not support as it registered; None if that is unknown.

    The active controller compares each level that it finalizes with the registrations (FeatureControlManager). A
    feature that a registration lacks counts as 0.
    """
    ranges = state.registered_levels.get(node_id)
    if ranges is None:
        return None
    return tuple(
        f"{feature} {level}"
        for feature, level in sorted(targets.items())
        if feature != KRAFT_VERSION and level not in ranges.get(feature, VersionRange(0, 0))
    )


def dropped_registration(
    catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int], feature: str, level: int
) -> Iterable[Finding]:
    """Return findings for brokers whose registration with an older controller may lack every range with minimum 0.

    Where raising metadata.version renews no registration, the controller's validate-only request finds them.
    """
    if feature == METADATA_VERSION or level == 0 or state.finalized.reported.get(feature, 0) > 0 or not state.releases:
        return
    newest = max(state.releases)
    if newest not in catalogue:
        return
    known = catalogue.get(newest).features
    latest = known[METADATA_VERSION].latest_production if METADATA_VERSION in known else 0
    old_level = state.finalized.reported.get(METADATA_VERSION, 0)
    if old_level >= latest or feature not in known or known[feature].supported.min > 0:
        return
    if keeps_registrations(old_level):
        return
    is_raised = renews_registrations(old_level, targets.get(METADATA_VERSION, old_level))
    yield REGISTRATION_MAY_LACK_RANGES.found(
        f"feature {feature}",
        f"metadata.version is still {old_level}. Brokers that registered with an older controller lack "
        f"{feature}, whose minimum is 0, in their registration, so the controller would reject it.",
        (
            "No action needed. metadata.version is raised first in a separate request, which makes the "
            "brokers re-register."
        )
        if is_raised
        else "Finalize metadata.version first, so that the brokers re-register.",
        severity=INFO if is_raised else WARNING,
    )


def find_static_controllers(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> str:
    """Return the controllers that cannot make a static quorum dynamic, as a sentence; empty if every one can.

    Those before 4.1.0 only write the level (FeatureControlManager.updateFeature). A controller of 4.1.0 or later
    supports the metadata.version of 4.1.0.
    """
    later = [release for release in catalogue if release >= FIRST_KRAFT_UPGRADE]
    level = min((catalogue.get(one).features[METADATA_VERSION].supported.max for one in later), default=None)
    ranges = supported_ranges(cluster, catalogue, state, METADATA_VERSION)
    older = []
    for node in cluster.controllers:
        found = ranges[node.node_id]
        if level is None or not isinstance(found, VersionRange) or found.max < level:
            unknown = f" ({found.rstrip('.')})" if isinstance(found, str) else ""
            older.append(f"controller {node.node_id}{unknown}")
    if not older:
        return ""
    return f"It is not known of every controller that it runs {FIRST_KRAFT_UPGRADE} or later: {few(older)}."


def find_lossy_downgrade_gap(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> str:
    """Return the nodes that do not implement KIP-1155, as a sentence; empty if every node implements it.

    A node implements it if it supports the metadata.version of KIP-1155 ("merely supporting the new metadata version is
    enough"). A node that does not respond, or that is not listed in the inventory, counts as a node without KIP-1155.
    """
    level = catalogue.lossy_downgrade_level
    if level is None:
        return "No release of the catalogue implements it."
    lacking: dict[str, list[int]] = {}
    for node_id, supported in supported_ranges(cluster, catalogue, state, METADATA_VERSION).items():
        if not isinstance(supported, VersionRange):
            lacking.setdefault("did not report its levels", []).append(node_id)
        elif level > supported.max:
            lacking.setdefault(f"supports {supported}", []).append(node_id)
    unlisted = sorted({*find_unlisted_brokers(cluster, state), *find_unlisted_controllers(cluster, state)})
    listed = [f"node {node_id} {text}" for text, ids in lacking.items() for node_id in ids]
    listed += [f"node {node_id} is not listed in the inventory" for node_id in unlisted]
    return f"Not every node supports its metadata.version {level}: {few(listed, limit=12)}." if listed else ""
