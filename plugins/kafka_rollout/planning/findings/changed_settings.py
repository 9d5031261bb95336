"""Settings that work differently on another release although no file changes: changed defaults, and removed settings.

The defaults are those of each release's own classes (`ReleaseFacts.config_defaults`). The effects are from the upgrade
notes of the releases and the KIPs named below; docs/releases.md is the page for operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.model.config_values import same_value
from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.configuration import removed_config_names
from kafka_rollout.releases.facts import Catalogue, Release

_UNLIMITED_MS = "9223372036854775807"
_BEFORE_THE_SETTING: Mapping[str, str] = {
    "log.message.timestamp.after.max.ms": _UNLIMITED_MS,  # KIP-937, since 3.6
    "log.message.timestamp.before.max.ms": _UNLIMITED_MS,
    "group.consumer.assignment.interval.ms": "0",  # KIP-1263, since 4.3
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
"""Setting → the value that describes releases without it, where that is not the default of newer releases."""

_WITHOUT_EFFECT = frozenset(
    {
        "inter.broker.protocol.version",  # KRaft: metadata.version decides
        "listener.security.protocol.map",  # the same map in another order
        "group.consumer.assignors",  # the same assignors: class names, then short names
        "group.consumer.migration.policy",  # groups can change their protocol (KIP-848), and none does it by itself
        "group.coordinator.new.enable",  # the coordinator logs of both coordinators are scanned
        "metric.reporters",  # `_metric_reporters` below
        "sasl.oauthbearer.expected.audience",  # null and an empty list are the same
        "process.roles",
        "node.id",
    }
)

_UPGRADE_EFFECTS: Mapping[str, tuple[bool, str]] = {
    "log.message.timestamp.after.max.ms": (
        True,
        "Brokers of this release reject records whose CreateTime is more than {new} ms in the future "
        "(InvalidTimestampException, KIP-1030), from the first restarted leader on. Topics with LogAppendTime or with "
        "their own message.timestamp.after.max.ms are not affected.",
    ),
    "metadata.max.retention.bytes": (False, "Nodes delete older segments of the metadata log."),
    "num.recovery.threads.per.data.dir": (
        False,
        "After an unclean stop, brokers recover logs faster, with more load for the disks (KIP-1030).",
    ),
}
"""Setting → whether an approver must read it, and the effect of the new default in an upgrade."""

_BROKERS_ONLY = ("log.message.", "group.", "share.", "remote.", "num.recovery.")
_TIERED_STORAGE = "remote.log.storage.system.enable"

_MASTER_KEY = "delegation.token.master.key"
_SECRET_KEY = "delegation.token.secret.key"  # noqa: S105 - the name of a setting
_DIFFERENCE = "log.message.timestamp.difference.max.ms"
_LIMITS = ("log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms")
_REPORTERS = "metric.reporters"
_AUTO_INCLUDE = "auto.include.jmx.reporter"
_JMX_REPORTER = "org.apache.kafka.common.metrics.JmxReporter"

_NOT_USED_IN_KRAFT = (
    "zookeeper.",
    "password.encoder.",
    "control.plane.listener.name",
    "inter.broker.protocol.version",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "reserved.broker.max.id",
    "broker.id.generation.enable",
    "leader.imbalance.per.broker.percentage",
)


CONFIG_DEFAULT_CHANGES = FindingCode(
    "CONFIG-DEFAULT-CHANGES",
    (WARNING, INFO),
    "The default of a setting differs between two releases of the path, and a node does not set it.",
)
CONFIG_REPLACED = FindingCode(
    "CONFIG-REPLACED",
    BLOCKER,
    "The target ignores a setting that something depends on, and its replacement is not set.",
)
CONFIG_UNKNOWN_TO_TARGET = FindingCode(
    "CONFIG-UNKNOWN-TO-TARGET",
    (WARNING, INFO),
    "The target does not support a setting of a node.",
    "Read the release notes for the replacement of this setting, then remove the line.",
)
CHANGED_SETTINGS_CHECK = Check(
    "changed-settings",
    "Changed defaults and removed settings",
    "releases.md#changed-defaults-of-broker-settings",
    (CONFIG_DEFAULT_CHANGES, CONFIG_REPLACED, CONFIG_UNKNOWN_TO_TARGET),
    needs=(Need.CONFIGS, Need.FACTS),
    examines=Examined.CONFIGS,
)


@dataclass(frozen=True, slots=True)
class _Change:
    """A default that differs between two releases of the path. None: null."""

    setting: str
    old: str | None
    new: str | None
    release: Release
    """The first with a new default."""


def changed_setting_findings(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    path: Sequence[Release],
    files: Mapping[Release, NodeConfigs],
    dynamic: NodeConfigs,
) -> tuple[Finding, ...]:
    """Return the findings about changed defaults and removed settings on a path (source release first).

    `files`: for each release of `path`, the configuration files of the nodes on it. `dynamic`: the dynamic settings of
    brokers, which have precedence. A removed setting in `dynamic` has a finding of its own (DYNAMIC-CONFIG-IGNORED).
    """
    if len(path) < 2:
        return ()
    configs = {
        release: {node_id: {**config, **dynamic.get(node_id, {})} for node_id, config in files[release].items()}
        for release in path
    }
    return (
        *_default_findings(cluster, catalogue, path, configs),
        *_removed_setting_findings(catalogue, path[0], path[-1], files[path[-1]], configs[path[-1]]),
        *_metric_reporters(catalogue, path[0], path[-1], configs[path[-1]]),
    )


def _default_findings(
    cluster: ClusterSpec, catalogue: Catalogue, path: Sequence[Release], configs: Mapping[Release, NodeConfigs]
) -> Iterable[Finding]:
    down = path[-1] < path[0]
    alike: defaultdict[_Change, list[int]] = defaultdict(list)
    for node in cluster.nodes:
        if node.node_id not in configs[path[0]]:
            continue  # not observable, which has its own finding
        for change in _changed_defaults(catalogue, path, {r: configs[r].get(node.node_id, {}) for r in path}):
            if node.is_broker or not change.setting.startswith(_BROKERS_ONLY):
                alike[change].append(node.node_id)
    others: dict[_Change, list[int]] = {}
    for change, ids in sorted(alike.items(), key=lambda item: item[0].setting):
        if down or change.setting not in _UPGRADE_EFFECTS:
            others[change] = ids
            continue
        important, effect = _UPGRADE_EFFECTS[change.setting]
        yield CONFIG_DEFAULT_CHANGES.found(
            f"configuration {change.setting}",
            f"The default changes from {change.old} (Kafka {path[0]}) to {change.new} (Kafka {path[-1]}), and "
            f"{nodes(ids)} {'does' if len(ids) == 1 else 'do'} not set it. {effect.format(new=change.new)}",
            f"To keep the old value, add {_pin(change)}.",
            severity=WARNING if important else INFO,
        )
    if others:
        first = next((change for change in others if change.old), None)
        yield CONFIG_DEFAULT_CHANGES.found(
            "configuration, other settings",
            f"Other defaults change between Kafka {path[0]} and {path[-1]}, and nodes do not set them: "
            + "; ".join(
                f"{change.setting} {_shown(change.old)} → {_shown(change.new)} ({nodes(ids)})"
                for change, ids in others.items()
            )
            + ".",
            f"To keep an old value, add it; for example, add {_pin(first)}." if first else "",
            severity=INFO,
        )


def _changed_defaults(
    catalogue: Catalogue, path: Sequence[Release], configs: Mapping[Release, Mapping[str, str]]
) -> Iterable[_Change]:
    """Yield the defaults that change for one node. `configs`: its settings on each release."""
    found: dict[str, _Change] = {}
    for old, new in pairwise(catalogue.get(release) for release in path):
        if any({"config_defaults", "config_names"} & facts.gaps.keys() for facts in (old, new)):
            continue  # the finding CATALOGUE-GAP says so
        for name in _comparable(old.config_names, new.config_names) - configs[new.release].keys():
            before = old.config_defaults.get(name) if name in old.config_names else _BEFORE_THE_SETTING[name]
            after = new.config_defaults.get(name)
            is_unused = name.startswith("remote.") and not _has_tiered_storage(configs[new.release])
            if not same_value(before, after) and not is_unused:
                first = found.get(name)
                found[name] = _Change(
                    name, first.old if first else before, after, first.release if first else new.release
                )
    return [change for change in found.values() if not same_value(change.old, change.new)]


def list_changed_defaults(catalogue: Catalogue) -> Iterable[tuple[Release, str, str, str, str]]:
    """Yield each changed default: its first release, setting, old and new value, and the effect of an upgrade."""
    tiered = {_TIERED_STORAGE: "true"}
    for path in pairwise(sorted(catalogue.releases)):
        changes = _changed_defaults(catalogue, path, dict.fromkeys(path, tiered))
        for change in sorted(changes, key=lambda change: change.setting):
            _, effect = _UPGRADE_EFFECTS.get(change.setting, (False, ""))
            yield change.release, change.setting, _shown(change.old), _shown(change.new), effect.format(new=change.new)


def _comparable(old: frozenset[str], new: frozenset[str]) -> frozenset[str]:
    """Return the settings of `new` whose value on the older release is known, without those that change nothing."""
    subjects = {tuple(name.split(".")[:2]) for name in old}  # a release without streams groups has no such setting
    added = {name for name in new & _BEFORE_THE_SETTING.keys() - old if tuple(name.split(".")[:2]) in subjects}
    return ((old & new) | added) - _WITHOUT_EFFECT


def _has_tiered_storage(config: Mapping[str, str]) -> bool:
    value = config.get(_TIERED_STORAGE, "false")
    return is_reference(value) or value.strip().lower() == "true"


def _pin(change: _Change) -> str:
    return f'`{change.setting}: "{change.old}"` to release_overrides of {change.release} in the inventory'


def _shown(value: str | None) -> str:
    return "null" if value is None else value or "empty"


def _removed_setting_findings(
    catalogue: Catalogue, source: Release, target: Release, files: NodeConfigs, configs: NodeConfigs
) -> Iterable[Finding]:
    users: defaultdict[str, list[int]] = defaultdict(list)
    for name in removed_config_names(catalogue, source, target):
        for node_id, config in files.items():
            if name in config:
                users[name].append(node_id)
    for name, ids in sorted(users.items()):
        ignored = f"{name} is set on {nodes(ids)}. Kafka {source} supports it; Kafka {target} ignores it"
        broken = [node_id for node_id in ids if name in _REPLACED and _REPLACED[name].is_lost(configs[node_id])]
        if broken:
            yield CONFIG_REPLACED.found(
                f"configuration {name}",
                f"{ignored}, and {nodes(broken)} {'has' if len(broken) == 1 else 'have'} no replacement for it: "
                f"{_REPLACED[name].effect}",
                _REPLACED[name].remedy.format(target=target),
            )
        elif name in _REPLACED or name.startswith(_NOT_USED_IN_KRAFT):
            why = "the replacement is set" if name in _REPLACED else "a cluster with KRaft does not use it"
            yield CONFIG_UNKNOWN_TO_TARGET.found(
                f"configuration {name}", f"{ignored}; {why}.", "Remove the line.", severity=INFO
            )
        else:
            yield CONFIG_UNKNOWN_TO_TARGET.found(f"configuration {name}", f"{ignored}.", severity=WARNING)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """A removed setting whose loss breaks something, and the settings that replace it (all of them)."""

    by: tuple[str, ...]
    harmless: str
    effect: str
    remedy: str
    setting: str

    def is_lost(self, config: Mapping[str, str]) -> bool:
        """Return whether a node with this configuration loses the effect of the setting."""
        replaced = all(config.get(name, "").strip() for name in self.by)
        return config[self.setting].strip() != self.harmless and not replaced


_REPLACED: Mapping[str, _Replaced] = {
    replaced.setting: replaced
    for replaced in (
        _Replaced(
            setting=_MASTER_KEY,
            by=(_SECRET_KEY,),
            harmless="",
            effect="delegation tokens would be disabled, so every client with a token would fail to authenticate.",
            remedy=f"Add {_SECRET_KEY} with the same value to the files of all brokers and controllers.",
        ),
        _Replaced(
            setting=_DIFFERENCE,
            by=_LIMITS,
            harmless=_UNLIMITED_MS,
            effect="brokers would accept records that are older than this limit, and records up to the limit of "
            f"{_LIMITS[1]} in the future.",
            remedy=f"Set {_LIMITS[0]} and {_LIMITS[1]} to the same value, in the files of the brokers or in "
            "release_overrides of {target} in the inventory (KIP-937).",
        ),
    )
}


def _metric_reporters(
    catalogue: Catalogue, source: Release, target: Release, configs: NodeConfigs
) -> Iterable[Finding]:
    """Yield the finding for nodes that lose JmxReporter: up to 3.9 Kafka adds it to metric.reporters by itself.

    Source: upgrade notes of 4.0.0 (auto.include.jmx.reporter).
    """
    old, new = (catalogue.get(release).config_defaults.get(_REPORTERS, "") for release in (source, target))
    if _JMX_REPORTER in old or _JMX_REPORTER not in new:
        return
    without = sorted(
        node_id
        for node_id, config in configs.items()
        if _JMX_REPORTER not in config.get(_REPORTERS, _JMX_REPORTER)
        and config.get(_AUTO_INCLUDE, "true").strip().lower() != "false"
    )
    if without:
        yield CONFIG_REPLACED.found(
            f"configuration {_REPORTERS}",
            f"{nodes(without).capitalize()} {'sets' if len(without) == 1 else 'set'} {_REPORTERS} without "
            f"{_JMX_REPORTER}. Kafka {source} adds it; Kafka {target} does not, so the metrics of clients, requests "
            "and the quorum would disappear from JMX.",
            f"Add {_JMX_REPORTER} to {_REPORTERS}, in the files of the nodes or in release_overrides of {target}; or "
            f"set {_AUTO_INCLUDE}=false now, if nothing reads these metrics.",
        )
