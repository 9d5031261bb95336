"""Configuration and Java version of the nodes, compared with the requirements of the releases and of a roll."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.gates.log_directories import (
    COUNTED_SINCE,
    LOG_DIRECTORIES_UNSUPPORTED,
    LOG_DIRECTORY_FAILURES_UNSEEN,
    covered,
)
from kafka_rollout.model.config_values import same_value
from kafka_rollout.model.configs import (
    BYTE_ORDER_MARK,
    ExpectedConfigs,
    NodeConfigs,
    is_reference,
    known_number,
)
from kafka_rollout.model.host_state import BOOTSTRAP
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.log_directories import ASSIGNED_FROM, has_several
from kafka_rollout.model.plan import ConfigChange, Plan
from kafka_rollout.model.starts import AUTHORIZER, KEEP_AUTHORIZER, LOGIN_FILE, STANDARD_AUTHORIZER
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue, Release

SNAPSHOT_INTERVAL = "metadata.log.max.snapshot.interval.ms"
SNAPSHOT_INTERVAL_DEFAULT_MS = 3_600_000
CONTROLLED_SHUTDOWN = "controlled.shutdown.enable"
_REPORTED_SINCE = Release(3, 7, 0)  # the first release that supports level ASSIGNED_FROM
READS_DIRECTORY_IDS = Release(3, 4, 0)
"""The first release that starts with several directories after 3.7 or later wrote a directory.id into each
(BrokerMetadataCheckpoint.getBrokerMetadataAndOfflineDirs)."""


CONFIG_REJECTED = FindingCode(
    "CONFIG-REJECTED", BLOCKER, "The target's own classes reject the configuration or a directory of a node."
)
FIRST_SETTING_UNREAD = FindingCode(
    "FIRST-SETTING-UNREAD",
    WARNING,
    "A configuration file begins with a byte order mark, so Kafka does not read its first setting.",
    "Save the file without the byte order mark. The setting then counts from the next start on.",
)
BOOTSTRAP_CHECKPOINT_REJECTED = FindingCode(
    "BOOTSTRAP-CHECKPOINT-REJECTED",
    BLOCKER,
    "The target cannot read a node's bootstrap.checkpoint, which every start reads.",
    "Choose a target that reads the file. Or stop the node, keep a copy of the file, and replace it by the "
    "bootstrap.checkpoint that kafka-storage.sh of the target (from 4.4.0 on it writes none: of 4.3) writes into an "
    "empty directory: only an empty metadata log uses its levels.",
)
CONFIGURATION_CHECK = Check(
    "node-configuration",
    "Configuration of each node, by the target's own classes",
    "upgrade.md#configuration-of-a-node",
    (CONFIG_REJECTED, BOOTSTRAP_CHECKPOINT_REJECTED, FIRST_SETTING_UNREAD),
    needs=(Need.CONFIGS,),
    examines=Examined.CONFIGS,
)
_REMOVED_JAVA = (
    " If an update has removed the Java of the process, restart the node with the new one (`kafka-rollout restart`). "
    "`kafka-rollout inventory check` names the cause."
)
JAVA_UNKNOWN = FindingCode("JAVA-UNKNOWN", BLOCKER, "The Java version of a node is unknown.")
JAVA_TOO_OLD = FindingCode("JAVA-TOO-OLD", BLOCKER, "A release of the path requires a newer Java than a node has.")
JAVA_TOO_NEW = FindingCode(
    "JAVA-TOO-NEW",
    (BLOCKER, WARNING),
    "A node logs in to others with SASL, and a release of the path cannot do this with the Java of the node. A warning "
    "if only a rollback starts this release.",
)
JAVA_CHECK = Check(
    "java-version",
    "Java of each node",
    "upgrade.md#findings",
    (JAVA_UNKNOWN, JAVA_TOO_OLD, JAVA_TOO_NEW),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.INVENTORY),
    needs=(Need.JAVA, Need.FACTS),
    examines=Examined.JAVA,
)
CONTROLLED_SHUTDOWN_OFF = FindingCode(
    "CONTROLLED-SHUTDOWN-OFF",
    (BLOCKER, WARNING),
    "A broker stops without handing over its leaderships. A warning if a config provider has the value.",
)
SHUTDOWN_CHECK = Check(
    "controlled-shutdown",
    "Controlled shutdown of the brokers",
    "upgrade.md#findings",
    (CONTROLLED_SHUTDOWN_OFF,),
    needs=(Need.BROKER_CONFIGS,),
    examines=Examined.CONFIGS,
)
DIRECTORIES_CHECK = Check(
    "log-directories",
    "Several log directories of a broker, compared with metadata.version",
    "upgrade.md#what-the-gates-believe",
    (LOG_DIRECTORIES_UNSUPPORTED, LOG_DIRECTORY_FAILURES_UNSEEN),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART, CheckOf.FEATURES),
    needs=(Need.BROKER_CONFIGS,),
    examines=Examined.CONFIGS,
)


def config_changes(
    cluster: ClusterSpec, path: Sequence[Release], configs: NodeConfigs, *, raises_levels: bool = False
) -> tuple[ConfigChange, ...]:
    """Return the configuration changes for each release of `path` (source release first).

    Sources: release_overrides of the inventory, and at the last release a lower snapshot interval if this run or a
    later one raises levels: no restart follows then. A file that others manage keeps its interval. The lines of the
    source release are included for a rollback: the previous value of the node, or None to remove the line.
    """
    changes: list[ConfigChange] = []
    for node in cluster.nodes:
        lines = [dict(configs.get(node.node_id, {}))]
        reasons: dict[str, str] = {}
        is_changed = raises_levels and not (node.service is not None and node.service.managed_elsewhere)
        interval_ms = round(cluster.snapshot_interval_s * 1000) if is_changed else 0
        for release in path[1:]:
            brought = dict(cluster.release_overrides.get(str(release), {}))
            reasons |= dict.fromkeys(brought, f"release_overrides of the inventory for {release}.")
            now = known_number(lines[-1], SNAPSHOT_INTERVAL, SNAPSHOT_INTERVAL_DEFAULT_MS)  # 0: no snapshots by time
            lowers = interval_ms > 0 and (not now or interval_ms < now)
            if lowers and release == path[-1]:
                brought[SNAPSHOT_INTERVAL] = str(interval_ms)
                reasons[SNAPSHOT_INTERVAL] = (
                    "Finalizing waits for a snapshot of every node, and no restart before it can shorten the interval. "
                    "The value stays in the file until you remove it (snapshot_interval_s of the inventory)."
                )
            lines.append({**lines[-1], **brought})
        for index, release in enumerate(path):
            before, after = lines[max(index - 1, 0)], lines[min(index + 1, len(lines) - 1)]
            for key in sorted(reasons):
                value = lines[index].get(key)
                if not same_value(value, before.get(key)):
                    reason = reasons[key]
                elif not same_value(value, after.get(key)):
                    reason = f"Rollback to {release}: the previous value of the node."
                else:
                    continue
                changes.append(ConfigChange(node_id=node.node_id, release=release, key=key, value=value, reason=reason))
    return tuple(changes)


def snapshot_interval_ms(config: Mapping[str, str]) -> int:
    """Return the snapshot interval of a node; the default if a config provider has it."""
    found = known_number(config, SNAPSHOT_INTERVAL, SNAPSHOT_INTERVAL_DEFAULT_MS)
    return SNAPSHOT_INTERVAL_DEFAULT_MS if found is None else found


def effective_config(
    node_id: int, config: Mapping[str, str], changes: Iterable[ConfigChange], release: Release
) -> dict[str, str]:
    """Return the configuration of a node on `release`, for the validation by Kafka's own classes."""
    lines = dict(config)
    for change in changes:
        if change.node_id == node_id and change.release == release:
            if change.value is None:
                lines.pop(change.key, None)
            else:
                lines[change.key] = change.value
    return lines


def planned_configs(
    path: Sequence[Release], configs: NodeConfigs, changes: Iterable[ConfigChange]
) -> dict[Release, dict[int, dict[str, str]]]:
    """Return the configuration of each node on each release of `path`, which begins with the source release.

    `configs`: the current configuration by node. A change of one release stays on the releases after it.
    """
    ordered = tuple(changes)
    found = {path[0]: {node_id: dict(config) for node_id, config in configs.items()}}
    for before, release in pairwise(path):
        found[release] = {
            node_id: effective_config(node_id, config, ordered, release) for node_id, config in found[before].items()
        }
    return found


def byte_order_mark_findings(configs: NodeConfigs) -> Iterable[Finding]:
    """Yield a finding for each node whose file begins with U+FEFF. Java reads it as a part of the first key."""
    for node_id, config in sorted(configs.items()):
        for key in config:
            if key.startswith(BYTE_ORDER_MARK):
                name = key.removeprefix(BYTE_ORDER_MARK)
                yield FIRST_SETTING_UNREAD.found(
                    f"node {node_id}", f"Node {node_id} does not read {name}: its file begins with a byte order mark."
                )


def config_findings(target: Release, config_problems: Mapping[int, tuple[str, ...]]) -> tuple[Finding, ...]:
    """Return the findings for values that `target` rejects.

    `config_problems`: node id → errors of Kafka's own classes.
    """
    found = []
    for node_id, problems in sorted(config_problems.items()):
        of_file = tuple(problem for problem in problems if BOOTSTRAP in problem)
        if of_file:
            found.append(
                BOOTSTRAP_CHECKPOINT_REJECTED.found(
                    f"node {node_id}", f"Kafka {target} would not start on the files of this node: {few(of_file)}."
                )
            )
        if others := tuple(problem for problem in problems if problem not in of_file):
            found.append(
                CONFIG_REJECTED.found(
                    f"node {node_id}",
                    f"Kafka {target} would not start with the configuration of this node: {few(others).rstrip('.')}.",
                    _remedy(target, others),
                )
            )
    return tuple(found)


def _remedy(target: Release, problems: Sequence[str]) -> str:
    """Return what to do. It never asks for a start without an authorizer."""
    remedy = f"Correct the configuration of the node, or add release_overrides for {target} to the inventory."
    if all(problem.startswith(("listener ", LOGIN_FILE)) for problem in problems):
        remedy = "Renew or restore the keystore, truststore or login module, before anything restarts the node."
    if any(AUTHORIZER in problem for problem in problems):
        return f"{remedy} {KEEP_AUTHORIZER} With KRaft it is {STANDARD_AUTHORIZER}."
    return remedy


def removed_config_names(catalogue: Catalogue, source: Release, target: Release) -> frozenset[str]:
    """Return the broker settings of `source` that `target` does not have; none if a release's settings are unknown."""
    if any("config_names" in catalogue.get(release).gaps for release in (source, target)):
        return frozenset()
    return catalogue.get(source).config_names - catalogue.get(target).config_names


def java_findings(
    cluster: ClusterSpec, catalogue: Catalogue, releases: Iterable[Release], java: Mapping[int, int]
) -> tuple[Finding, ...]:
    """Return a finding for each node whose Java is too old for one of `releases`.

    `java`: node id → feature version (17). A release whose minimum is unknown has its own finding (CATALOGUE-GAP).
    """
    minimums = ((catalogue.get(r).java_minimum, r) for r in releases)
    needed, release = max(((minimum, r) for minimum, r in minimums if minimum is not None), default=(0, None))
    findings = []
    for node in cluster.nodes:
        has = java.get(node.node_id)
        if release is None or (has is not None and has >= needed):
            continue
        if has is None and not cluster.manages_nodes:
            continue  # not observable, which has its own finding
        found = f"The Java version on {node.name} is unknown." if has is None else f"{node.name} has Java {has}."
        findings.append(
            (JAVA_UNKNOWN if has is None else JAVA_TOO_OLD).found(
                f"node {node.node_id}",
                f"Kafka {release} requires Java {needed}. {found}",
                f"Install Java {needed} or newer on this host." + (_REMOVED_JAVA if has is None else ""),
            )
        )
    return tuple(findings)


def java_maximum_findings(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    configs: Mapping[Release, NodeConfigs],
    java: Mapping[int, int],
    *,
    rollback_to: Release | None = None,
) -> tuple[Finding, ...]:
    """Return a finding for each node whose Java is too new for SASL on a release (KIP-1006).

    Such a node starts, and fails to log in to other brokers and to the controllers. `configs`: for each release on
    which nodes start, the configuration of each node. `rollback_to`: one of them, which only a rollback starts.
    """
    findings = []
    for release, of_nodes in configs.items():
        most = catalogue.get(release).java_maximum_with_sasl
        for node in cluster.nodes:
            has = java.get(node.node_id)
            if most is None or has is None or has <= most:
                continue
            logs_in = _logs_in_with_sasl(of_nodes.get(node.node_id))
            if logs_in is False:
                continue
            is_sure = logs_in or cluster.manages_nodes
            uses = "logs in to other nodes with SASL" if logs_in else "has listeners that are unknown"
            findings.append(
                JAVA_TOO_NEW.found(
                    f"node {node.node_id}, release {release}",
                    f"{node.name} has Java {has} and {uses}. With SASL Kafka {release} needs Java {most} or older: "
                    "its login fails with 'getSubject is not supported', so the node reaches no other one"
                    f"{'. A rollback needs this release' if release == rollback_to else ''}.",
                    f"Let the node use Java 17 or 21, or choose {_first_without(catalogue)} or later.",
                    severity=BLOCKER if is_sure and release != rollback_to else WARNING,
                )
            )
    return tuple(findings)


def _logs_in_with_sasl(config: Mapping[str, str] | None) -> bool | None:
    """Return whether a node with this configuration logs in to others with SASL; None if it is unknown."""
    if config is None:
        return None
    found = find_listeners(config)
    return True if found.logs_in_with_sasl else None if found.unknown else False


def _first_without(catalogue: Catalogue) -> Release:
    """Return the first release without a maximum of Java after all that have one."""
    limited = [release for release in catalogue if catalogue.get(release).java_maximum_with_sasl is not None]
    return min((release for release in catalogue if not limited or release > max(limited)), default=max(catalogue))


def controlled_shutdown_findings(cluster: ClusterSpec, configs: NodeConfigs) -> Iterable[Finding]:
    """Yield the finding for brokers that stop without handing over their leaderships (BrokerServer.shutdown)."""
    values = {
        node.node_id: configs.get(node.node_id, {}).get(CONTROLLED_SHUTDOWN, "true").strip().lower()
        for node in cluster.brokers
    }
    if off := [node_id for node_id, value in values.items() if value == "false"]:
        yield CONTROLLED_SHUTDOWN_OFF.found(
            nodes(sorted(off)),
            f"{CONTROLLED_SHUTDOWN} is false in the configuration of {nodes(sorted(off))}. After each stop, the "
            "partitions that the broker leads have no leader until broker.session.timeout.ms (9 s by default) is over.",
            f"Remove {CONTROLLED_SHUTDOWN} from the file and restart each broker once at a time when its clients can "
            "wait, because the running process still stops in this way. Then plan again.",
            severity=BLOCKER,
        )
    if unknown := [node_id for node_id, value in values.items() if is_reference(value)]:
        yield CONTROLLED_SHUTDOWN_OFF.found(
            nodes(sorted(unknown)),
            f"A config provider has the value of {CONTROLLED_SHUTDOWN} on {nodes(sorted(unknown))}. If it is false, "
            "the partitions that a broker leads have no leader for broker.session.timeout.ms after each stop.",
            f"Check that the value is true, or remove {CONTROLLED_SHUTDOWN} from the file.",
            severity=WARNING,
        )


def directory_findings(
    cluster: ClusterSpec,
    configs: Mapping[Release, NodeConfigs],
    path: Sequence[Release],
    level: int,
    planned: int,
    *,
    unsafe: bool,
    unread: Collection[int] = (),
) -> Iterable[Finding]:
    """Yield the finding for brokers with several log directories at a metadata.version that does not support them.

    `configs`: for each release of `path` (source first), the configuration of each node. `level`: finalized now.
    `planned`: at the end of the run. `unread`: brokers whose files cannot be read, and that can have several. They
    count, and so do those whose directories a config provider has: the gates accept only what such a broker logs.
    """
    several = {
        node.node_id: found
        for node in cluster.brokers
        if (found := None if node.node_id in unread else _several(node.node_id, configs.values())) is not False
    }
    if not several or not 0 < min(level, planned) < ASSIGNED_FROM:
        return
    who, covers = nodes(several), [covered(node_id) for node_id in several]
    have = f"{who[:1].upper()}{who[1:]} {'has' if len(several) == 1 else 'have'} several log directories"
    if unknown := sorted(node_id for node_id, found in several.items() if found is None):
        have += f" (those of {nodes(unknown)} are unknown)"
    if planned < ASSIGNED_FROM <= level:
        yield LOG_DIRECTORIES_UNSUPPORTED.found(
            who,
            f"{have}, which metadata.version {planned} does not support. The controllers no longer learn that a single "
            f"directory failed, so its partitions keep a leader that cannot serve them.{_counted(max(path))}",
            severity=WARNING if unsafe or True not in several.values() else BLOCKER,
            covers=covers,
        )
    elif max(path) >= _REPORTED_SINCE:
        soon = f"Finalize metadata.version {ASSIGNED_FROM} or higher"
        if planned >= ASSIGNED_FROM:
            soon = f"Let this run finalize metadata.version {planned}"
        refuses = path[0] < READS_DIRECTORY_IDS and path[-1] >= _REPORTED_SINCE
        rollback = f" Before a rollback to {path[0]}, remove directory.id from each meta.properties." if refuses else ""
        yield LOG_DIRECTORY_FAILURES_UNSEEN.found(
            who,
            f"{have}, which metadata.version {level} does not support. Until {ASSIGNED_FROM} is finalized, the "
            "controllers do not learn that a single directory failed, so its partitions keep a leader that cannot "
            f"serve them.{_counted(max(path))}",
            f"{soon} soon after all brokers run {_REPORTED_SINCE} or later. Until then, watch "
            f"OfflineLogDirectoryCount, and stop a broker that reports a failed directory.{rollback}",
            covers=covers,
        )


def _several(node_id: int, configs: Iterable[NodeConfigs]) -> bool | None:
    """Return whether the node has several directories on one of the releases; None if it is unknown."""
    found = [has_several(config[node_id]) for config in configs if node_id in config]
    return True if True in found else None if None in found else False


def _counted(release: Release) -> str:
    if release < COUNTED_SINCE:
        return ""
    return (
        f" From {COUNTED_SINCE} on, each start of such a broker counts one error in metadata-apply-error-count for it. "
        "The gates accept this error alone, and only if the log of the process shows it."
    )


def find_expected_configs(plan: Plan, catalogue: Catalogue) -> ExpectedConfigs:
    """Return the planned changes of settings. A plan without a release step expects no change of a default.

    A fact that the catalogue lacks explains nothing: the difference then needs an approver.
    """
    dynamic: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    for change in plan.default_changes:
        dynamic[change.resource][change.key] = change.after
    if not plan.release_steps:
        return ExpectedConfigs(dynamic=dynamic)
    source, target = catalogue.get(plan.source), catalogue.get(plan.target)
    files: defaultdict[int, dict[str, str | None]] = defaultdict(dict)
    for step in plan.release_steps:  # a line of the release in between stays, unless the target changes it again
        for line in plan.config_changes:
            if line.release == step.to_release:
                files[line.node_id][line.key] = line.value
    defaults_known = not any("config_defaults" in facts.gaps for facts in (source, target))
    old, new = source.config_defaults, target.config_defaults
    both = source.config_names & target.config_names
    return ExpectedConfigs(
        defaults={
            name: (old.get(name), new.get(name))
            for name in sorted(both)
            if defaults_known and not same_value(old.get(name), new.get(name))
        },
        removed=removed_config_names(catalogue, plan.source, plan.target),
        new=removed_config_names(catalogue, plan.target, plan.source),
        files=files,
        dynamic=dynamic,
    )
