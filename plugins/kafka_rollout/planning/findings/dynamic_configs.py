"""Findings about dynamic configuration that the target release does not load as it is.

OBSERVED contains what a broker of the release did after such a configuration was planted on an older one
(tests/integration/metadata_log/test_dynamic_configs_on_brokers.py). Any other problem is a blocker, because its effect
is unknown.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.findings import (
    BLOCKER,
    NOT_OBSERVABLE,
    WARNING,
    Check,
    Examined,
    Finding,
    FindingCode,
    Severity,
)
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.base.outside_text import NAME_LIMIT, escape_invisible
from kafka_rollout.base.wording import count, few
from kafka_rollout.formats.cleaning import DELETE_RETENTION, LONGEST_STOP_MS, POLICY, CleaningConfig
from kafka_rollout.gates.counters import IGNORED_CONFIG
from kafka_rollout.gates.remote_storage import SINCE, SYSTEM_ENABLE
from kafka_rollout.model.configs import (
    HIDDEN,
    RESOURCE_TYPES,
    ConfigCheck,
    ConfigKind,
    ConfigProblem,
    DynamicConfigs,
    NodeConfigs,
    QuotaEntity,
    entity_name,
)
from kafka_rollout.planning.findings.configuration import removed_config_names
from kafka_rollout.releases.facts import Catalogue, Release

NAMED = 20
"""Resources with the same problem that get a finding each. The others get one finding together."""

_ENTITIES = {
    ConfigKind.TOPIC: "topics",
    ConfigKind.BROKER: "brokers",
    ConfigKind.CLIENT_METRICS: "client-metrics",
    ConfigKind.GROUP: "groups",
}
_QUOTA_ENTITIES = {"user": "users", "client-id": "clients", "ip": "ips"}

_DROPS = (
    Severity.WARNING,
    "Its nodes drop such settings, so their metadata snapshots lack them. Back on a release that has the settings, "
    "nodes with such a snapshot have lost them, and other nodes can still have them",
)
_REJECTS_CHANGES = (
    "The release ignores such settings, but until one command removes all of them, it rejects every other change of the"
)
_STOPS_BY_SNAPSHOT = "A broker stops when it starts, as soon as a metadata snapshot contains these settings"
OBSERVED: Mapping[tuple[ConfigKind, ConfigCheck], tuple[Severity, str]] = {
    # LogManager.fetchTopicConfigOverrides throws, and BrokerMetadataPublisher ends the process.
    (ConfigKind.TOPIC, ConfigCheck.VALUE): (
        Severity.BLOCKER,
        "Every broker of this release stops when it starts (Error starting LogManager)",
    ),
    # LogManager.updateTopicConfig throws (validateRemoteStorageOnlyIfSystemEnabled), and DynamicConfigPublisher catches
    # it (a non-fatal fault). The logs are loaded and take records, and begin with their first local segment
    # (LogLoader.load): the RemoteLogManager of a later start deletes what is before it.
    (ConfigKind.TOPIC, ConfigCheck.UPDATE): (
        Severity.WARNING,
        "The release starts, logs an error and serves the topic without tiered storage, but rejects every later change "
        "of its configuration",
    ),
    (ConfigKind.TOPIC, ConfigCheck.REMOTE): (
        Severity.BLOCKER,
        "A broker starts without tiered storage: records that are only in remote storage cannot be read while it is "
        "the leader, and are deleted there when brokers with tiered storage lead again",
    ),
    # LogConfig ignores names that it does not define. LogConfig.validateNames rejects them, in the controller.
    (ConfigKind.TOPIC, ConfigCheck.NAME): (Severity.WARNING, f"{_REJECTS_CHANGES} topic's configuration"),
    # LogManager.apply throws what LogConfig.validateBrokerLogConfigValues throws, once a metadata snapshot contains the
    # setting (DynamicBrokerConfig.readDynamicBrokerConfigsFromSnapshot).
    (ConfigKind.ALL_BROKERS, ConfigCheck.STARTUP): (Severity.BLOCKER, _STOPS_BY_SNAPSHOT),
    (ConfigKind.BROKER, ConfigCheck.STARTUP): (Severity.BLOCKER, _STOPS_BY_SNAPSHOT),
    # DynamicBrokerConfig.fromPersistentProps logs an error and drops the setting.
    (ConfigKind.ALL_BROKERS, ConfigCheck.VALUE): (Severity.WARNING, "The release ignores the value"),
    (ConfigKind.BROKER, ConfigCheck.VALUE): (Severity.WARNING, "The release ignores the value"),
    # KafkaConfig ignores names that it does not define.
    (ConfigKind.ALL_BROKERS, ConfigCheck.NAME): (Severity.WARNING, "The release ignores the setting"),
    (ConfigKind.BROKER, ConfigCheck.NAME): (Severity.WARNING, "The release ignores the setting"),
    # DynamicConfigPublisher catches what ClientMetricsManager.updateSubscription throws (a non-fatal fault).
    (ConfigKind.CLIENT_METRICS, ConfigCheck.VALUE): (Severity.WARNING, "The release ignores the subscription"),
    # GroupConfig ignores names that it does not define. GroupConfig.validateNames rejects them, in the controller.
    (ConfigKind.GROUP, ConfigCheck.NAME): (Severity.WARNING, f"{_REJECTS_CHANGES} group's configuration"),
    # ConfigurationDelta.replay skips what DefaultSupportedConfigChecker does not support (KAFKA-19851).
    (ConfigKind.TOPIC, ConfigCheck.DROPPED): _DROPS,
    (ConfigKind.CLIENT_METRICS, ConfigCheck.DROPPED): _DROPS,
    (ConfigKind.GROUP, ConfigCheck.DROPPED): _DROPS,
}
"""Kind and check → severity, and what the release does."""
_REMOTE = "remote.storage.enable"
_LIMIT = "message.timestamp.difference.max.ms"
_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_UNKNOWN = (Severity.BLOCKER, "The effect on a node of this release is unknown, so it counts as a blocker")


DYNAMIC_CONFIG_UNREAD = FindingCode(
    "DYNAMIC-CONFIG-UNREAD", BLOCKER, "The brokers did not report the dynamic configuration."
)
DYNAMIC_CONFIG_UNCHECKED = FindingCode(
    "DYNAMIC-CONFIG-UNCHECKED",
    BLOCKER,
    "The target has no class that could check some of the settings.",
    "Choose another target release, or remove this configuration before the roll and restore it afterwards.",
)
DYNAMIC_CONFIG_REJECTED = FindingCode(
    "DYNAMIC-CONFIG-REJECTED",
    BLOCKER,
    "With a setting in the metadata, nodes of a release would not start, or the effect is unknown.",
)
DYNAMIC_CONFIG_DROPPED = FindingCode(
    "DYNAMIC-CONFIG-DROPPED",
    WARNING,
    "A release of the path drops a setting from the metadata. It is lost after a rollback, too.",
)
DYNAMIC_CONFIG_UNKNOWN = FindingCode(
    "DYNAMIC-CONFIG-UNKNOWN", WARNING, "A release of the path does not have a setting in the metadata."
)
TIERED_STORAGE_LOST = FindingCode(
    "TIERED-STORAGE-LOST",
    BLOCKER,
    "Topics have tiered storage, and a broker would start without it.",
)
DELETE_RETENTION_SHORT = FindingCode(
    "DELETE-RETENTION-SHORT",
    (WARNING, BLOCKER),
    "Compacted topics keep deletions for a shorter time than a node can be down. A blocker before a stop, if it is new "
    "for a coordinator log.",
)
# Only what is IGNORED can be counted as a metadata error of a node (gates/counters.py).
_WARNINGS = {ConfigCheck.DROPPED: DYNAMIC_CONFIG_DROPPED, ConfigCheck.NAME: DYNAMIC_CONFIG_UNKNOWN}
DYNAMIC_CONFIGURATION_CHECK = Check(
    "dynamic-configuration",
    "Configuration in the metadata, by the classes of each release of the path",
    "upgrade.md#configuration-in-the-metadata",
    (
        DYNAMIC_CONFIG_UNREAD,
        DYNAMIC_CONFIG_UNCHECKED,
        DYNAMIC_CONFIG_REJECTED,
        DYNAMIC_CONFIG_DROPPED,
        DYNAMIC_CONFIG_UNKNOWN,
        TIERED_STORAGE_LOST,
        DELETE_RETENTION_SHORT,
        IGNORED_CONFIG,
        NOT_OBSERVABLE,
    ),
    needs=(),
    examines=Examined.DYNAMIC,
)


def dynamic_config_findings(
    catalogue: Catalogue,
    release: Release,
    problems: Iterable[ConfigProblem],
    dynamic: DynamicConfigs,
    bootstrap: str,
    *,
    source: Release,
) -> tuple[Finding, ...]:
    """Return the findings of one release on the path. `bootstrap`: addresses for Kafka's commands. `source`: of the
    plan.
    """
    resources = catalogue.get(release).config_resources
    alike: defaultdict[tuple[object, ...], list[ConfigProblem]] = defaultdict(list)
    for found in problems:
        is_remote = found.check is ConfigCheck.UPDATE and source >= SINCE
        problem = replace(found, check=ConfigCheck.REMOTE) if is_remote else found
        # A release without this type of resource has its own finding (SETTINGS-NOT-KEPT).
        if problem.check is ConfigCheck.MISSING and RESOURCE_TYPES.get(problem.kind, "TOPIC") not in resources:
            continue
        lost = _loses_limit(problem, dynamic)
        alike[problem.kind, problem.check, problem.settings, problem.reason, lost].append(problem)
    return tuple(finding for same in alike.values() for finding in _findings(release, same, dynamic, bootstrap))


def _loses_limit(problem: ConfigProblem, dynamic: DynamicConfigs) -> bool:
    """Return whether the removed limit of timestamps has no replacement in the same resource (KIP-937).

    A topic's value is hidden if the source does not have the limit either.
    """
    prefix = {ConfigKind.TOPIC: "", ConfigKind.BROKER: "log.", ConfigKind.ALL_BROKERS: "log."}.get(problem.kind)
    if prefix is None or problem.check not in (ConfigCheck.NAME, ConfigCheck.DROPPED):
        return False
    own = dynamic.of(problem.kind).get(problem.name, {})
    removed = f"{prefix}{_LIMIT}"
    without_effect = (None, HIDDEN) if problem.kind is ConfigKind.TOPIC else (None,)
    return dict(problem.settings).get(removed) not in without_effect and not all(
        f"{prefix}{name}" in own for name in _LIMITS
    )


_GIVE_UP = (
    "To give up what is only in remote storage, delete these topics, or, on 3.9 or later, set "
    "remote.storage.enable=false and remote.log.delete.on.disable=true for them."
)


def tiered_storage_findings(path: Sequence[Release], release: Release, dynamic: DynamicConfigs) -> tuple[Finding, ...]:
    """Return the blocker for topics whose remote records a release of the path does not know.

    A release before 3.6 has the settings, and no RemoteLogManager. Its logs begin with the first local segment, and
    followers take this as the start of their logs. The RemoteLogManager of a later start deletes what is before it.
    `path`: with the source. A rollback comes back to it.
    """
    tiered = sorted(name for name, own in dynamic.topics.items() if own.get(_REMOTE, "").strip().lower() == "true")
    if release >= SINCE or max(path) < SINCE or not tiered:
        return ()
    return (
        TIERED_STORAGE_LOST.found(
            f"{release}, tiered storage",
            f"{count(len(tiered), 'topic')} {'has' if len(tiered) == 1 else 'have'} tiered storage "
            f"({few(map(_shown, tiered))}), which Kafka {release} does not serve: records that are only in remote "
            "storage cannot be read, and are deleted there when brokers of a later release lead again.",
            f"Choose a target release of {SINCE} or later. {_GIVE_UP}",
        ),
    )


_OF_BROKERS = {POLICY: "log.cleanup.policy", DELETE_RETENTION: "log.cleaner.delete.retention.ms"}


def is_long_stop(behind_s: float) -> bool:
    """Return whether DELETE-RETENTION-SHORT of the plan does not name all topics whose deletions a stop can outlast.

    `behind_s`: seconds from the stop until the node has read again what it missed.
    """
    return 1000 * behind_s > LONGEST_STOP_MS


def retention_of(dynamic: DynamicConfigs, brokers: NodeConfigs, topics: Iterable[str]) -> dict[str, int]:
    """Return delete.retention.ms of each compacted topic, the shortest of its possible leaders.

    `brokers`: the files, as far as they are known. `topics`: names; those with settings of their own count too.
    """
    defaults = [
        {name: of_broker[key] for name, key in _OF_BROKERS.items() if key in of_broker}
        for node_id, file in brokers.items()
        for of_broker in [{**file, **dynamic.all_brokers, **dynamic.brokers.get(node_id, {})}]
    ]
    found: dict[str, int] = {}
    for topic in {*dynamic.topics, *topics}:
        for default in defaults or [{}]:
            settings = {POLICY: "delete", **default, **dynamic.topics.get(topic, {})}
            known = {POLICY: settings[POLICY]}
            if settings.get(DELETE_RETENTION, "").isdecimal():
                known[DELETE_RETENTION] = settings[DELETE_RETENTION]
            config = CleaningConfig.from_settings(known)
            if config.compacted:
                found[topic] = min(config.delete_retention_ms, found.get(topic, config.delete_retention_ms))
    return found


def retention_findings(
    dynamic: DynamicConfigs, brokers: NodeConfigs, topics: Iterable[str], *, stops: bool = False
) -> tuple[Finding, ...]:
    """Return the finding for topics of which a node that was down brings deleted keys back.

    `brokers`, `topics`: as for `retention_of`. `stops`: only coordinator logs, as a blocker: the settings for faster
    cleaning, which must be restored.
    """
    kept = retention_of(dynamic, brokers, topics)
    short = sorted(
        name for name, ms in kept.items() if ms < LONGEST_STOP_MS and (not stops or name in COORDINATOR_TOPICS)
    )
    if not short:
        return ()
    shown = few(f"{_shown(name)}: {kept[name]}" for name in short)
    return (
        DELETE_RETENTION_SHORT.found(
            "compacted topics",
            f"{DELETE_RETENTION} of {count(len(short), 'compacted topic')} is less than {LONGEST_STOP_MS} ({shown}). "
            "The log cleaner of a leader then removes a deletion that a stopped node has not read. This node keeps the "
            "older value of the key, and shows it when it leads.",
            f"Set {DELETE_RETENTION} of these topics to at least {LONGEST_STOP_MS} (kafka-configs.sh --alter "
            f"--entity-type topics --entity-name TOPIC --add-config {DELETE_RETENTION}={LONGEST_STOP_MS}), or keep "
            "each node down for a shorter time. If a node was down for longer, move its folders of those of these "
            "partitions away that another broker leads, before its start: it copies them from the leader.",
            severity=BLOCKER if stops else WARNING,
            covers=short,
        ),
    )


def find_removed_settings(
    catalogue: Catalogue, source: Release, release: Release, dynamic: DynamicConfigs
) -> tuple[ConfigProblem, ...]:
    """Return dynamic settings of brokers that `source` supports and `release` does not.

    Kafka accepts any name for the plugins of a broker, so its own classes report none as unknown.
    """
    removed = removed_config_names(catalogue, source, release)
    return tuple(
        ConfigProblem(
            kind=kind,
            name=name,
            settings=((setting, value),),
            check=ConfigCheck.NAME,
            reason=f"The release does not have the setting {setting}",
        )
        for kind in (ConfigKind.ALL_BROKERS, ConfigKind.BROKER)
        for name, settings in dynamic.of(kind).items()
        for setting, value in sorted(settings.items())
        if setting in removed
    )


def find_dropped(problems: Iterable[ConfigProblem]) -> dict[str, list[str]]:
    """Return resource (`topic orders`, as in ClusterInventory) → settings that a release drops."""
    dropped: defaultdict[str, set[str]] = defaultdict(set)
    for problem in problems:
        if problem.check is ConfigCheck.DROPPED:
            dropped[f"{problem.kind} {problem.name}"].update(dict(problem.settings))
    return {resource: sorted(names) for resource, names in dropped.items()}


def unread_config_finding(sentence: str, remedy: str) -> Finding:
    """Return the blocker for configuration that the brokers did not report. The arguments are those of the error."""
    return DYNAMIC_CONFIG_UNREAD.found(
        "dynamic configuration",
        f"The dynamic configuration of topics, brokers, groups and quotas could not be read: {sentence}",
        remedy or "Fix the cause, then plan again.",
    )


def _findings(
    release: Release, problems: Sequence[ConfigProblem], dynamic: DynamicConfigs, bootstrap: str
) -> Iterable[Finding]:
    first = problems[0]
    if first.check is ConfigCheck.MISSING:
        yield DYNAMIC_CONFIG_UNCHECKED.found(
            f"{release}, {_plural(first.kind)}",
            f"The configuration of {_plural(first.kind)} was not checked with the classes of Kafka {release}: "
            f"{_sentence(first.reason)}",
        )
        return
    lost = _loses_limit(first, dynamic)
    severity, effect = OBSERVED.get((first.kind, first.check), _UNKNOWN)
    if lost:
        severity, effect = Severity.BLOCKER, f"Without {_LIMIT}, its brokers would accept records that are older"
    code = DYNAMIC_CONFIG_REJECTED if severity is Severity.BLOCKER else _WARNINGS.get(first.check, IGNORED_CONFIG)
    if first.check is ConfigCheck.REMOTE:
        code = TIERED_STORAGE_LOST
    for problem in problems[:NAMED]:
        subject = _subject(problem)
        yield code.found(
            f"{release}, {subject}, {', '.join(_shown(name) for name, _ in problem.settings)}",
            f"{subject[:1].upper()}{subject[1:]} has {_settings(problem)}. Kafka {release}: "
            f"{_sentence(problem.reason)} {effect}.",
            _remedy(problem, dynamic, bootstrap),
            severity=severity,
        )
    if rest := problems[NAMED:]:
        yield code.found(
            f"{release}, further {_plural(first.kind)}, {_settings(first)}",
            f"{count(len(rest), f'further {first.kind}')} with {_settings(first)}, for example "
            f"{_shown(rest[0].name)}. Kafka {release}: {_sentence(first.reason)} {effect}.",
            f"Repeat the command for each of them. {_remedy(rest[0], dynamic, bootstrap)}",
            severity=severity,
        )


def _settings(problem: ConfigProblem) -> str:
    return ", ".join(f"{_shown(name)}={_shown(value)}" for name, value in problem.settings)


def _remedy(problem: ConfigProblem, dynamic: DynamicConfigs, bootstrap: str) -> str:
    names = ",".join(name for name, _ in problem.settings)
    command = f"kafka-configs.sh --bootstrap-server {bootstrap} --alter {_entity(problem, dynamic)}"
    delete = f"{command} --delete-config {_quoted(names)}"
    the_settings = "the settings" if len(problem.settings) > 1 else "the setting"
    if _loses_limit(problem, dynamic):
        prefix = "" if problem.kind is ConfigKind.TOPIC else "log."
        return (
            f"Set {' and '.join(f'{prefix}{name}' for name in _LIMITS)} with `{command} --add-config …`, or "
            f"remove {the_settings} with `{delete}`."
        )
    if problem.kind in RESOURCE_TYPES and all(value == HIDDEN for _, value in problem.settings):
        return f"The release that runs does not have {the_settings} either. Remove {the_settings} with `{delete}`."
    if problem.check is ConfigCheck.REMOTE:
        return f"Set {SYSTEM_ENABLE}=true in the file of every broker, and in no release_overrides false. {_GIVE_UP}"
    if problem.check is ConfigCheck.DROPPED:
        return (
            f"Note the values, then remove the settings with `{delete}` before the roll. Set them again after "
            "a return to a release that has them."
        )
    if problem.check is ConfigCheck.NAME:
        return f"Remove {the_settings} with `{delete}`."
    return f"Remove the value with `{delete}`, or set an allowed one with --add-config."


def _entity(problem: ConfigProblem, dynamic: DynamicConfigs) -> str:
    """Return the options of kafka-configs.sh that name the resource."""
    if problem.kind is ConfigKind.ALL_BROKERS:
        return "--entity-type brokers --entity-default"
    if problem.kind is ConfigKind.QUOTA:
        entity: QuotaEntity = next(found for found in dynamic.quotas if entity_name(found) == problem.name)
        return " ".join(
            f"--entity-type {_QUOTA_ENTITIES.get(kind, kind)} "
            + ("--entity-default" if name is None else f"--entity-name {_quoted(name)}")
            for kind, name in entity
        )
    return f"--entity-type {_ENTITIES[problem.kind]} --entity-name {_quoted(problem.name)}"


def _subject(problem: ConfigProblem) -> str:
    if problem.kind is ConfigKind.ALL_BROKERS:
        return "the default of all brokers"
    return f"{problem.kind} {_shown(problem.name)}"


def _plural(kind: ConfigKind) -> str:
    return str(kind) if kind is ConfigKind.ALL_BROKERS else f"{kind}s"


def _shown(text: str) -> str:
    return escape_invisible(text, limit=NAME_LIMIT)


def _quoted(text: str) -> str:
    return shlex.quote(escape_invisible(text))


def _sentence(reason: str) -> str:
    """Return Kafka's message as a sentence on one line."""
    return escape_invisible(reason.strip()).rstrip(".") + "."
