"""The nodes' configuration and Java against the releases of the path: what must change, what would be refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import ConfigChange
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.model.wording import few, nodes

SNAPSHOT_INTERVAL = "metadata.log.max.snapshot.interval.ms"
_SNAPSHOT_INTERVAL_DEFAULT_MS = 3_600_000


def config_changes(
    cluster: ClusterSpec,
    path: Sequence[Release],
    configs: Mapping[int, Mapping[str, str]],
    *,
    snapshot_interval_ms: int | None = None,
) -> tuple[ConfigChange, ...]:
    """What each release of `path` (origin first) has in its nodes' configuration that its neighbours have not.

    From the inventory's release_overrides, and at the last release a lowered snapshot interval where it is asked for
    (it comes with a restart that happens anyway). The origin's own lines are listed too, for the way back: the value
    the node had, or None to take the line out.
    """
    changes: list[ConfigChange] = []
    for node in cluster.nodes:
        lines = [dict(configs.get(node.node_id, {}))]
        reasons: dict[str, str] = {}
        for release in path[1:]:
            brought = dict(cluster.release_overrides.get(str(release), {}))
            reasons |= dict.fromkeys(brought, f"The inventory's release_overrides for {release}.")
            if snapshot_interval_ms is not None and release == path[-1] and _is_lower(snapshot_interval_ms, lines[-1]):
                brought[SNAPSHOT_INTERVAL] = str(snapshot_interval_ms)
                reasons[SNAPSHOT_INTERVAL] = (
                    "Lowered so that a snapshot follows finalizing soon; it stays until the configuration of a later "
                    "roll sets it back."
                )
            lines.append({**lines[-1], **brought})
        for index, release in enumerate(path):
            before, after = lines[max(index - 1, 0)], lines[min(index + 1, len(lines) - 1)]
            for key in sorted(reasons):
                value = lines[index].get(key)
                if value != before.get(key):
                    reason = reasons[key]
                elif value != after.get(key):
                    reason = f"The way back to {release}: what the node had before."
                else:
                    continue
                changes.append(ConfigChange(node_id=node.node_id, release=release, key=key, value=value, reason=reason))
    return tuple(changes)


def _is_lower(interval_ms: int, config: Mapping[str, str]) -> bool:
    """Never raised; 0 stands for no snapshots by time at all."""
    now = int(config.get(SNAPSHOT_INTERVAL, _SNAPSHOT_INTERVAL_DEFAULT_MS))
    return now == 0 or interval_ms < now


def effective_config(
    node_id: int, config: Mapping[str, str], changes: Iterable[ConfigChange], release: Release
) -> dict[str, str]:
    """A node's configuration as it will be on `release`: what Kafka's own classes should judge."""
    lines = dict(config)
    for change in changes:
        if change.node_id == node_id and change.release == release:
            if change.value is None:
                lines.pop(change.key, None)
            else:
                lines[change.key] = change.value
    return lines


def config_findings(
    catalogue: Catalogue,
    source: Release,
    target: Release,
    configs: Mapping[int, Mapping[str, str]],
    config_problems: Mapping[int, tuple[str, ...]],
) -> tuple[Finding, ...]:
    """What `target` refuses (by its own classes: `config_problems` by node) and names that it no longer knows."""
    findings = [
        Finding(
            code="CONFIG-REJECTED",
            severity=Severity.BLOCKER,
            subject=f"node {node_id}",
            sentence=f"Release {target} would not start with this node's configuration: {few(problems)}.",
            remedy=f"Correct the node's configuration, or add release_overrides for {target} to the inventory.",
        )
        for node_id, problems in sorted(config_problems.items())
        if problems
    ]
    dropped = catalogue.get(source).config_names - catalogue.get(target).config_names
    users: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, config in configs.items():
        for key in dropped.intersection(config):
            users[key].append(node_id)
    findings += [
        Finding(
            code="CONFIG-UNKNOWN-TO-TARGET",
            severity=Severity.WARNING,
            subject=f"configuration {key}",
            sentence=f"{key} is set on {nodes(ids)}; {source} knows it, {target} does not and ignores it.",
            remedy="See the release notes for what replaces it, and take the line out.",
        )
        for key, ids in sorted(users.items())
    ]
    return tuple(findings)


def java_findings(
    cluster: ClusterSpec, catalogue: Catalogue, releases: Iterable[Release], java: Mapping[int, int]
) -> tuple[Finding, ...]:
    """Nodes whose Java is too old for one of `releases`; `java` is the feature version (17) by node."""
    needed, release = max(((catalogue.get(r).java_minimum, r) for r in releases), default=(0, None))
    findings = []
    for node in cluster.nodes:
        has = java.get(node.node_id)
        if release is None or (has is not None and has >= needed):
            continue
        findings.append(
            Finding(
                code="JAVA-UNKNOWN" if has is None else "JAVA-TOO-OLD",
                severity=Severity.BLOCKER,
                subject=f"node {node.node_id}",
                sentence=f"Release {release} needs Java {needed}, and {node.name} has "
                f"{'one that nobody knows' if has is None else f'Java {has}'}.",
                remedy=f"Install Java {needed} or newer on its host.",
            )
        )
    return tuple(findings)
