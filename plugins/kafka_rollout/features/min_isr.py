"""Effects of eligible.leader.replicas.version 1 on min.insync.replicas.

For a request that raises this feature, the active controller also changes the dynamic configuration
(ConfigurationControlManager.maybeGenerateElrSafetyRecords, the same in 4.0.1, 4.1.2, 4.3.1 and 4.4.0). If the cluster
has no cluster-wide default of min.insync.replicas, it writes one with the value of its own server.properties, or 1. A
dynamic default overrides the files of all brokers. It also deletes the dynamic value of each single node. A
validate-only request, a request without this feature and a change of metadata.version do none of this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Severity
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.model.configs import SettingValues
from kafka_rollout.model.plan import DefaultChange, FeatureChange
from kafka_rollout.releases.facts import ELR_VERSION as ELR

MIN_ISR = "min.insync.replicas"
OPTION = "--pin-min-insync-replicas"
_DEFAULT = "1"  # of Kafka, for a file without the setting
_SHOWN = 20


ELR_CHANGES_MIN_ISR = FindingCode(
    "ELR-CHANGES-MIN-ISR",
    (BLOCKER, WARNING, INFO),
    "Raising eligible.leader.replicas.version changes min.insync.replicas.",
)
NOT_RAISED = f"{ELR} is not raised."
MIN_ISR_CHECK = Check(
    "min-insync-replicas",
    "min.insync.replicas, if eligible.leader.replicas.version is raised",
    "upgrade.md#findings",
    (ELR_CHANGES_MIN_ISR,),
    of=(CheckOf.UPGRADE, CheckOf.FEATURES),
    needs=(),
    examines=Examined.TOPICS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinIsr:
    """min.insync.replicas as it is in a cluster."""

    values: SettingValues
    files: Mapping[int, Collection[str]] = field(default_factory=dict)
    """Values that each controller would write as the default, by node id: those of its file and of its process."""
    topics: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Topics without their own value → brokers with a replica."""
    unknown: tuple[str, ...] = ()
    """Sentences about values that could not be read."""
    unread: tuple[str, ...] = ()
    """About those of controllers, which count only if one of them writes the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinIsrEffects:
    """What changes with the level. `changes` has nothing where a finding blocks the level."""

    findings: tuple[Finding, ...] = ()
    changes: tuple[DefaultChange, ...] = ()

    def of_later_run(self) -> MinIsrEffects:
        """Return the effects for a run that does not raise the level itself: it warns of them."""
        return MinIsrEffects(
            findings=tuple(
                replace(f, severity=Severity.WARNING) if f.severity is Severity.BLOCKER else f for f in self.findings
            )
        )


def raises_elr(changes: Iterable[FeatureChange]) -> bool:
    """Return whether one of the changes is sent with a level of ELR above 0."""
    return any(change.feature == ELR and change.target > 0 and change.target != change.current for change in changes)


def value_of_file(config: Mapping[str, str]) -> str:
    """Return the value that a controller with this configuration file would write."""
    return config.get(MIN_ISR, _DEFAULT).strip()


def find_min_isr_effects(found: MinIsr, *, pin: bool, bootstrap_servers: str) -> MinIsrEffects:
    """Return findings and changes. `pin`: the run first sets the cluster-wide default to the value of all brokers."""
    values = found.values
    effective = set(values.brokers.values())
    pinned = next(iter(effective)) if pin and len(effective) == 1 and not found.unknown else None
    needs_files = values.default is None and pinned is None
    unknown = (*found.unknown, *(found.unread if needs_files else ()))
    if not unknown and needs_files and not found.files:
        unknown = (f"No controller was queried, so the {MIN_ISR} that one would write is unknown.",)
    if unknown:
        was_asked = bool(found.unknown or found.unread)
        return MinIsrEffects(findings=(_unknown(unknown, was_asked=was_asked),))
    if pinned is not None:
        written = {pinned}
    elif values.default is not None:
        written = {values.default}
    else:
        written = {value for file in found.files.values() for value in file}
    changed = {node_id: value for node_id, value in values.brokers.items() if written != {value}}
    topics = sorted(topic for topic, brokers in found.topics.items() if changed.keys() & set(brokers))
    findings: tuple[Finding, ...] = ()
    if changed:
        remedy = _remedy(values, bootstrap_servers, pin=pin)
        findings = (_changed(found, written, changed, topics, remedy),)
        if findings[0].severity is Severity.BLOCKER or len(written) > 1:
            return MinIsrEffects(findings=findings)
    changes = _changes(values, *written, by_run=pinned is not None)
    return MinIsrEffects(findings=findings or tuple(_expected(changes)), changes=changes)


def _changes(values: SettingValues, after: str, *, by_run: bool) -> tuple[DefaultChange, ...]:
    default = DefaultChange(key=MIN_ISR, before=values.default, after=after, by_run=by_run)
    return (
        *((default,) if values.default != after else ()),
        *(
            DefaultChange(key=MIN_ISR, node_id=node_id, before=value, after=None, by_run=False)
            for node_id, value in sorted(values.own.items())
        ),
    )


def _unknown(reasons: Iterable[str], *, was_asked: bool) -> Finding:
    right = "Make the nodes answer DescribeConfigs (right DESCRIBE_CONFIGS on CLUSTER), then plan again."
    missing = "Add the controllers with their addresses to the inventory, then plan again."
    return ELR_CHANGES_MIN_ISR.found(
        f"feature {ELR}",
        f"Raising {ELR} makes the active controller set {MIN_ISR} for the whole cluster. The values of the nodes are "
        f"unknown: {' '.join(dict.fromkeys(reasons))}",
        f"{right if was_asked else missing} If only values of controllers are unknown, let the run set the default "
        f"first: {OPTION} (form: Pin {MIN_ISR}).",
        severity=BLOCKER,
    )


def pin_refused(reason: str, remedy: str) -> Finding:
    """Return the blocker for a default that the controller does not let this user set."""
    return ELR_CHANGES_MIN_ISR.found(
        f"feature {ELR}", f"The default of {MIN_ISR} cannot be set: {reason}", remedy, severity=BLOCKER
    )


def _changed(
    found: MinIsr, written: Collection[str], changed: Mapping[int, str], topics: Sequence[str], remedy: str
) -> Finding:
    """Return a blocker, or a warning if only topics that are created later get another value."""
    values = found.values
    after = " or ".join(sorted(written))
    if values.default is not None:
        cause = f"Raising {ELR} deletes the {MIN_ISR} of single brokers, and the cluster-wide default {after} remains"
    else:
        cause = (
            f"Raising {ELR} makes the active controller write its own {MIN_ISR} as the cluster-wide default: {after} "
            f"({_files(found.files)})"
        )
    now = "; ".join(
        f"{value} on {nodes([node_id for node_id, one in changed.items() if one == value])}"
        for value in sorted(set(changed.values()))
    )
    effect = (
        f"{count(len(topics), 'topic')} without an own value would get it: {few(topics, limit=_SHOWN)}"
        if topics
        else "Topics that are created later without an own value would get it"
    )
    sentence = f"{cause}. The effective value is {now}. {effect}.{_overrides(values.own)}"
    return ELR_CHANGES_MIN_ISR.found(f"feature {ELR}", sentence, remedy, severity=BLOCKER if topics else WARNING)


def _remedy(values: SettingValues, bootstrap_servers: str, *, pin: bool) -> str:
    tool = f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter"
    agreed = set(values.brokers.values())
    if len(agreed) == 1:
        (value,) = agreed
        return (
            f"Set the default to the present value before the level is raised: {tool} --entity-type brokers "
            f"--entity-default --add-config {MIN_ISR}={value}. Or let the run set it: {OPTION} (form: Pin {MIN_ISR})."
        )
    refused = f"{OPTION} cannot set one value, because the brokers have different values. " if pin else ""
    return (
        f"{refused}Give each of these topics its own value: {tool} --entity-type topics --entity-name TOPIC "
        f"--add-config {MIN_ISR}=N. Then plan again."
    )


def _expected(changes: Collection[DefaultChange]) -> Iterable[Finding]:
    default = next((change for change in changes if change.node_id is None), None)
    deleted = {change.node_id: str(change.before) for change in changes if change.node_id is not None}
    if not changes:
        return
    parts = []
    if default is not None and default.by_run:
        parts.append(f"Before the run raises {ELR}, it sets the cluster-wide default of {MIN_ISR} to {default.after}")
    elif default is not None:
        parts.append(f"With {ELR}, the active controller writes the cluster-wide default {MIN_ISR} = {default.after}")
    if default is not None:
        parts.append("This is the present value of all brokers, so no topic changes")
    text = f"{'. '.join(parts)}." if parts else ""
    more = (
        f"From then on {MIN_ISR} in the files of the brokers has no effect, and Kafka refuses a value of a single "
        "broker: change the default instead (kafka-configs.sh --entity-type brokers --entity-default). It stays if the "
        "feature is lowered later. While the feature is at 1, Kafka refuses to delete it."
    )
    sentence = f"{text}{_overrides(deleted)} {more if default is not None else ''}".strip()
    yield ELR_CHANGES_MIN_ISR.found(f"feature {ELR}", sentence, severity=INFO)


def _overrides(own: Mapping[int | None, str] | Mapping[int, str]) -> str:
    if not own:
        return ""
    listed = ", ".join(f"node {node_id} ({value})" for node_id, value in sorted(own.items(), key=str))
    return f" The active controller deletes the dynamic {MIN_ISR} of {listed}."


def _files(files: Mapping[int, Collection[str]]) -> str:
    values = sorted({value for file in files.values() for value in file})
    return "; ".join(f"{value} on {nodes([i for i, file in files.items() if value in file])}" for value in values)
