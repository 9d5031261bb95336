"""Known defects of the releases of a plan: whether each appears on this cluster, and what the list does not cover.

An entry whose condition is unknown is shown as unknown. It never counts as one that does not apply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from itertools import pairwise

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, Examined, Finding, FindingCode, Need, Severity
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.configs import DynamicConfigs, NodeConfigs, is_reference
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, Role
from kafka_rollout.releases.conditions import (
    AdvisoryCondition,
    AnyCondition,
    DynamicCondition,
    GroupsCondition,
    JavaCondition,
    LevelCondition,
    MechanismCondition,
    MigratedCondition,
    ProtocolCondition,
    RoleCondition,
    SettingCondition,
    TopicsCondition,
    TopicSetting,
    TransactionsCondition,
    UnobservableCondition,
)
from kafka_rollout.releases.facts import (
    Advisory,
    AffectedReleases,
    Catalogue,
    Release,
    ReleaseFacts,
    Review,
    ReviewSource,
    Strikes,
)

RELEASE_ADVISORY = FindingCode(
    "RELEASE-ADVISORY",
    (WARNING, BLOCKER, INFO),
    "A release of the path has a known defect, and this cluster meets its condition.",
)
ADVISORY_UNKNOWN = FindingCode(
    "ADVISORY-UNKNOWN",
    (WARNING, BLOCKER, INFO),
    "A release of the path has a known defect, and it is unknown whether this cluster meets its condition.",
)
RELEASE_NOT_REVIEWED = FindingCode(
    "RELEASE-NOT-REVIEWED",
    (WARNING, INFO),
    "Nobody read all sources of known defects for a release of the path.",
    "Read these sources for the release: its upgrade notes, kafka.apache.org/cve-list, and in Kafka's issues "
    "the fixed blocker and critical ones of later releases that affect it.",
)
TARGET_OLDER_THAN_SOURCE = FindingCode(
    "TARGET-OLDER-THAN-SOURCE",
    (WARNING, INFO),
    "The target was built before the source release, so it can lack fixes that the source has.",
)
ADVISORIES_CHECK = Check(
    "known-defects",
    "Known defects of the releases of the path",
    "releases.md#known-defects",
    (RELEASE_ADVISORY, ADVISORY_UNKNOWN, RELEASE_NOT_REVIEWED, TARGET_OLDER_THAN_SOURCE),
    needs=(),
    examines=Examined.RELEASES,
)
_JAVA_CLIENT = "apache-kafka-java"
_HANDLER = "sasl.server.callback.handler.class"
_OF_KAFKA = ("org.apache.kafka.", "kafka.")


class Applicability(StrEnum):
    """Whether a condition is met, and whether a defect applies."""

    YES = "applies"
    NO = "does not apply"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answered:
    answer: Applicability
    reasons: tuple[str, ...] = ()
    """Why it is unknown."""
    seen: tuple[str, ...] = ()
    """What meets it, apart from nodes."""
    nodes: tuple[int, ...] = ()
    """Ids of the nodes that meet it; empty: the whole cluster."""
    by_code: bool = False
    """Unknown because code that is not Kafka's decides, so no reading makes it known."""


_YES, _NO = Answered(Applicability.YES), Answered(Applicability.NO)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisoryFacts:
    """What is known about a cluster, for the conditions of known defects."""

    cluster: ClusterSpec
    finalized: Mapping[str, int]
    state: ClusterState | None = None
    configs: Mapping[Release, NodeConfigs] = field(default_factory=dict)
    """For each release of the path, the configuration of each node on it."""
    java: Mapping[int, int] = field(default_factory=dict)
    """Node id → feature version."""
    dynamic: DynamicConfigs | None = None
    """None: unknown."""
    registrations: MetadataRegistrations | None = None
    """In the metadata log; None: it was not read."""
    unknown: Mapping[Need, str] = field(default_factory=dict)
    """As in `unknown_responses`; a missing need was observed completely."""


@dataclass(frozen=True, slots=True)
class AdvisoryVerdict:
    """A defect on this cluster."""

    advisory: Advisory
    releases: tuple[Release, ...]
    """The affected ones of the path."""
    is_ahead: bool
    """The plan restarts nodes while the defect does harm."""
    answered: Answered


def judge_advisories(
    catalogue: Catalogue, path: Sequence[Release], facts: AdvisoryFacts
) -> tuple[AdvisoryVerdict, ...]:
    """Return each known defect of a release of `path` (source release first), as it is on this cluster."""
    return tuple(filter(None, (_judge(one, catalogue, path, facts) for one in catalogue.advisories)))


def _judge(
    advisory: Advisory, catalogue: Catalogue, path: Sequence[Release], facts: AdvisoryFacts
) -> AdvisoryVerdict | None:
    ahead = [release for release in path[1:] if advisory.affects(release)]
    affected = list(dict.fromkeys((*[path[0]] * advisory.affects(path[0]), *ahead)))
    # Nodes of the source restart too, and a rollback brings them back.
    is_ahead = bool(ahead or (affected and len(path) > 1 and advisory.strikes is Strikes.ROLLING))
    seen = _clients_seen(advisory, facts) if advisory.concerns == "clients" else None
    if seen:
        return AdvisoryVerdict(advisory, tuple(affected), is_ahead, Answered(Applicability.YES, seen=seen))
    if advisory.strikes is Strikes.STARTING:
        affected = ahead
    if advisory.coming_from:
        affected = [one for one in affected if _comes_from(advisory, path, one)]
    if not affected:
        return None
    if advisory.concerns == "clients":
        reason = "the releases of clients that do not report them, or are not connected now"
        return AdvisoryVerdict(advisory, tuple(affected), is_ahead, Answered(Applicability.UNKNOWN, (reason,)))
    answers = [
        _all(_answer(condition, release, catalogue.releases.get(release), facts) for condition in advisory.when)
        for release in affected
    ]
    return AdvisoryVerdict(advisory, tuple(affected), is_ahead, _any(answers))


def _comes_from(advisory: Advisory, path: Sequence[Release], release: Release) -> bool:
    return any(one.contains(before) for before in path[: path.index(release)] for one in advisory.coming_from)


def _clients_seen(advisory: Advisory, facts: AdvisoryFacts) -> tuple[str, ...]:
    """Return the versions of affected Java clients that are connected now."""
    seen: dict[str, int] = {}
    for node in facts.state.nodes.values() if facts.state else ():
        for client in node.metrics.clients if node.metrics else ():
            if client.name == _JAVA_CLIENT and (release := _release(client.version)) and advisory.affects(release):
                seen[client.version] = seen.get(client.version, 0) + client.connections
    return tuple(f"{number} connections of Java clients {version}" for version, number in sorted(seen.items()))


def _release(text: str) -> Release | None:
    numbers = text.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() and len(number) <= 3 for number in numbers):
        return None
    return Release.parse(text)


def _answer(condition: AdvisoryCondition, release: Release, of: ReleaseFacts | None, facts: AdvisoryFacts) -> Answered:
    match condition:
        case AnyCondition():
            return _any(_answer(one, release, of, facts) for one in condition.of)
        case UnobservableCondition():
            return Answered(Applicability.UNKNOWN, (condition.what,))
        case LevelCondition():
            if condition.feature not in facts.finalized and not facts.finalized:
                return Answered(Applicability.UNKNOWN, (f"the finalized level of {condition.feature}",))
            return _in_range(facts.finalized.get(condition.feature, 0), condition)
        case GroupsCondition():
            found = facts.state is not None and any(one.type in condition.any_of for one in facts.state.groups)
            return _seen(found, facts, Need.GROUPS, f"groups of type {few(condition.any_of)}")
        case TransactionsCondition():
            return _seen(bool(facts.state and facts.state.transactions), facts, Need.GROUPS, "transactional ids")
        case MigratedCondition():
            migrated = facts.registrations.was_migrated if facts.registrations else None
            unknown = Answered(Applicability.UNKNOWN, ("whether the cluster was migrated from ZooKeeper",))
            return unknown if migrated is None else _YES if migrated else _NO
        case RoleCondition():
            wanted = frozenset(Role(role) for role in condition.roles.split(","))
            ids = tuple(node.node_id for node in facts.cluster.nodes if node.roles == wanted)
            return Answered(Applicability.YES, nodes=ids) if ids else _NO
        case JavaCondition():
            return _of_nodes(
                facts,
                lambda node_id: None if node_id not in facts.java else _in_range(facts.java[node_id], condition),
                "the Java version",
            )
        case TopicsCondition():
            return _of_topics(condition, facts.configs.get(release, {}), of, facts)
        case DynamicCondition():
            return _of_dynamic(condition, facts)
        case SettingCondition() | MechanismCondition() | ProtocolCondition():
            configs = facts.configs.get(release, {})
            return _of_nodes(
                facts,
                lambda node_id: None if node_id not in configs else _by_config(condition, configs[node_id], of),
                "the configuration",
            )


def _in_range(value: int, condition: LevelCondition | JavaCondition) -> Answered:
    return _YES if condition.has(value) else _NO


def _seen(found: bool, facts: AdvisoryFacts, need: Need, what: str) -> Answered:
    """Return whether something exists. That it does not is known only if everything was observed."""
    if found:
        return _YES
    is_complete = facts.state is not None and need not in facts.unknown
    return _NO if is_complete else Answered(Applicability.UNKNOWN, (what,))


def _of_nodes(facts: AdvisoryFacts, ask: Callable[[int], Answered | None], what: str) -> Answered:
    """Ask for each node; None: its value is unknown. One node that meets the condition is enough."""
    met, unknown = [], []
    reasons: dict[str, None] = {}
    by_code = True
    for node in facts.cluster.nodes:
        answered = ask(node.node_id)
        if answered is None:
            unknown.append(node.node_id)
        elif answered.answer is Applicability.YES:
            met.append(node.node_id)
        elif answered.answer is Applicability.UNKNOWN:
            by_code &= answered.by_code
            reasons |= dict.fromkeys(f"{reason} of {node.name}" for reason in answered.reasons)
    if met:
        return Answered(Applicability.YES, nodes=tuple(met))
    if unknown:
        reasons[f"{what} of {nodes(unknown)}"] = None
    return Answered(Applicability.UNKNOWN, tuple(reasons), by_code=by_code and not unknown) if reasons else _NO


def _of_topics(
    condition: TopicsCondition, configs: NodeConfigs, of: ReleaseFacts | None, facts: AdvisoryFacts
) -> Answered:
    """Ask for each topic. One topic that has all values is enough."""
    dynamic = facts.dynamic
    if dynamic is None:
        return Answered(Applicability.UNKNOWN, ("the settings of topics",))
    names = {*dynamic.topics, *(one.topic for one in (facts.state.partitions if facts.state else ()))}
    of_brokers = [_of_brokers(setting, dynamic, configs, of, facts.cluster) for setting in condition.settings]
    met, unknown = [], []
    for topic in sorted(names.intersection(condition.names) if condition.names else names):
        own = dynamic.topics.get(topic, {})
        answered = _all(
            (_YES if one.has(own[one.name]) else _NO) if one.name in own else inherited
            for one, inherited in zip(condition.settings, of_brokers, strict=True)
        )
        if answered.answer is Applicability.YES:
            met.append(topic)
        elif answered.answer is Applicability.UNKNOWN:
            unknown.append(answered)
    if met:
        return Answered(Applicability.YES, seen=(f"{count(len(met), 'topic')} ({few(met, limit=20)})",))
    if Need.TOPICS in facts.unknown:
        unknown.append(Answered(Applicability.UNKNOWN, ("topics that the nodes did not show",)))
    return _any(unknown)


def _of_dynamic(condition: DynamicCondition, facts: AdvisoryFacts) -> Answered:
    dynamic = facts.dynamic
    if dynamic is None:
        return Answered(Applicability.UNKNOWN, ("the dynamic settings of brokers",))
    names = set(condition.names)
    everywhere = names & dynamic.all_brokers.keys()
    own = {node.node_id: names & dynamic.brokers.get(node.node_id, {}).keys() for node in facts.cluster.brokers}
    found = sorted(everywhere.union(*own.values()))
    if not found:
        return _NO
    ids = () if everywhere else tuple(node_id for node_id, its in own.items() if its)
    return Answered(Applicability.YES, seen=(few(found),), nodes=ids)


def _of_brokers(
    setting: TopicSetting,
    dynamic: DynamicConfigs,
    configs: NodeConfigs,
    of: ReleaseFacts | None,
    cluster: ClusterSpec,
) -> Answered:
    """Answer for topics without an own value. Each broker can be a leader, so one with this value is enough."""
    name = setting.of_brokers
    values: dict[int, str | None] = {}
    for node in cluster.brokers if name else ():
        found = {**configs.get(node.node_id, {}), **dynamic.all_brokers, **dynamic.brokers.get(node.node_id, {})}
        if name in found:
            values[node.node_id] = None if is_reference(found[name]) else found[name]
        elif node.node_id not in configs or of is None:
            values[node.node_id] = None
        else:
            values[node.node_id] = of.config_defaults.get(name, "")
    if any(value is not None and setting.has(value) for value in values.values()):
        return _YES
    unknown = [node_id for node_id, value in values.items() if value is None]
    return Answered(Applicability.UNKNOWN, (f"{name} of {nodes(unknown)}",)) if unknown else _NO


def _by_config(
    condition: SettingCondition | MechanismCondition | ProtocolCondition,
    config: Mapping[str, str],
    of: ReleaseFacts | None,
) -> Answered:
    if isinstance(condition, SettingCondition):
        return _by_setting(condition, config, of)
    found = find_listeners(config)
    if isinstance(condition, ProtocolCondition):
        is_met = bool(found.protocols & set(condition.any_of))
    else:
        handlers = [
            listener.setting(mechanism, _HANDLER)
            for listener in found.served
            if not condition.protocols or listener.protocol in condition.protocols
            for mechanism in listener.mechanisms
            if mechanism in condition.any_of
        ]
        is_met = any(
            not condition.handlers or is_reference(one) or _simple_name(one) in condition.handlers for one in handlers
        )
        if not is_met and condition.handlers and (others := [one for one in handlers if _is_of_others(one)]):
            return _by_code(others)
    if is_met:
        return _YES
    return Answered(Applicability.UNKNOWN, (f"the value of {few(found.unknown)}",)) if found.unknown else _NO


def _by_setting(condition: SettingCondition, config: Mapping[str, str], of: ReleaseFacts | None) -> Answered:
    ends = f".{condition.name}"
    values = [value.strip() for key, value in config.items() if key == condition.name or key.endswith(ends)]
    if not values:
        if of is None or condition.name not in of.config_names:
            return Answered(Applicability.UNKNOWN, (f"the default of {condition.name}",)) if of is None else _NO
        values = [of.config_defaults.get(condition.name, "")]
    if any(_is_met(condition, value) for value in values if not is_reference(value)):
        return _YES
    if condition.by_class and (others := [value for value in values if _is_of_others(value)]):
        return _by_code(others)
    if any(map(is_reference, values)):
        return Answered(Applicability.UNKNOWN, (f"the value of {condition.name}",))
    return _NO


def _is_of_others(name: str) -> bool:
    return bool(name) and not is_reference(name) and not name.startswith(_OF_KAFKA)


def _simple_name(name: str) -> str:
    """Return the name of a class of Kafka without its package; the whole name of another."""
    return name if _is_of_others(name) else name.rpartition(".")[2]


def _by_code(classes: Sequence[str]) -> Answered:
    return Answered(Applicability.UNKNOWN, (f"what {few(dict.fromkeys(classes))} does",), by_code=True)


def _is_met(condition: SettingCondition, value: str) -> bool:
    text = value.lower()
    if condition.any_of and text not in (one.lower() for one in condition.any_of):
        return False
    if condition.none_of and text in (one.lower() for one in condition.none_of):
        return False
    if condition.entries is not None and len([one for one in text.split(",") if one.strip()]) < condition.entries:
        return False
    if condition.at_least is None and condition.at_most is None:
        return True
    try:
        number = int(text)
    except ValueError:
        return False
    return (condition.at_least is None or number >= condition.at_least) and (
        condition.at_most is None or number <= condition.at_most
    )


def _all(answers: Iterable[Answered]) -> Answered:
    """Return whether all are met. One that is not met decides, also if others are unknown."""
    answered = tuple(answers)
    if any(one.answer is Applicability.NO for one in answered):
        return _NO
    reasons = tuple(dict.fromkeys(reason for one in answered for reason in one.reasons))
    seen = tuple(dict.fromkeys(what for one in answered for what in one.seen))
    sets = [set(one.nodes) for one in answered if one.nodes]
    ids = tuple(sorted(set.intersection(*sets))) if sets else ()
    if sets and not ids:
        return _NO  # no single node meets all of them
    by_code = bool(reasons) and all(one.by_code for one in answered if one.reasons)
    return Answered(Applicability.UNKNOWN if reasons else Applicability.YES, reasons, seen, ids, by_code)


def _any(answers: Iterable[Answered]) -> Answered:
    answered = tuple(answers)
    for wanted in (Applicability.YES, Applicability.UNKNOWN):
        if found := [one for one in answered if one.answer is wanted]:
            reasons = dict.fromkeys(reason for one in found for reason in one.reasons)
            seen = dict.fromkeys(what for one in found for what in one.seen)
            ids = sorted({node_id for one in found for node_id in one.nodes})
            of_nodes = tuple(ids) if all(one.nodes for one in found) else ()
            by_code = all(one.by_code for one in found)
            return Answered(wanted, tuple(reasons), tuple(seen), of_nodes, by_code)
    return _NO


def changing_defects(catalogue: Catalogue, *, of_groups: bool) -> Catalogue:
    """Return the catalogue with those blocking defects alone that topics decide, and groups or transactions: clients
    can begin to use them during a run. `of_groups`: those of groups and transactions, too.
    """

    def can_change(advisory: Advisory) -> bool:
        conditions = list(_flat(advisory.when))
        is_of_groups = any(isinstance(one, GroupsCondition | TransactionsCondition) for one in conditions)
        return of_groups if is_of_groups else any(isinstance(one, TopicsCondition) for one in conditions)

    blocking = [one for one in catalogue.advisories if Severity(one.severity) is BLOCKER and can_change(one)]
    return replace(catalogue, advisories=tuple(blocking))


def _flat(conditions: Iterable[AdvisoryCondition]) -> Iterator[AdvisoryCondition]:
    for one in conditions:
        yield from _flat(one.of) if isinstance(one, AnyCondition) else [one]


def advisory_findings(judged: Iterable[AdvisoryVerdict], *, observable: bool = True) -> tuple[Finding, ...]:
    """Return a finding for each defect that applies, or of which this is unknown.

    `observable`: False for a cluster whose files and hosts this tool cannot see; there an unknown value does not block.
    """
    found = []
    for one in judged:
        advisory, answered = one.advisory, one.answered
        if answered.answer is Applicability.NO:
            continue
        severity = _severity(one, observable=observable)
        where = f" ({nodes(answered.nodes)})" if answered.nodes else ""
        subject = f"Kafka {few(one.releases)}, {advisory.id}" if one.releases else advisory.id
        if answered.answer is Applicability.YES:
            seen = f" Seen: {few(answered.seen)}." if answered.seen else ""
            sentence = (
                f"Known defect, which applies here{where}. Affected: {advisory.condition}{seen} {advisory.defect}"
            )
            code = RELEASE_ADVISORY
        else:
            sentence = (
                f"Known defect; it is unknown whether it applies here, because this is not known: "
                f"{few(answered.reasons)}. Affected: {advisory.condition} {advisory.defect}"
            )
            code = ADVISORY_UNKNOWN
        found.append(code.found(subject, f"{sentence} Source: {advisory.source}.", advisory.remedy, severity=severity))
    return tuple(found)


def _severity(one: AdvisoryVerdict, *, observable: bool) -> Severity:
    advisory = one.advisory
    is_unknown = one.answered.answer is Applicability.UNKNOWN
    if advisory.concerns == "clients":
        return INFO if is_unknown else WARNING
    if not one.is_ahead and advisory.strikes is Strikes.RUNNING:
        return INFO  # only the source release has it, and the plan leaves this release
    severity = Severity(advisory.severity)
    if severity is BLOCKER and (not one.is_ahead or (is_unknown and (one.answered.by_code or not observable))):
        return WARNING
    return severity


def review_findings(catalogue: Catalogue, ahead: Iterable[Release]) -> Iterator[Finding]:
    """Yield the finding for each release that has a source of known defects which nobody read for it."""
    for release in dict.fromkeys(ahead):
        unread = catalogue.unread(release)
        if not unread:
            continue
        built = catalogue.get(release).built_at
        when = f"built on {built}" if built else "built on a day that its jars do not show"
        yield RELEASE_NOT_REVIEWED.found(
            f"release {release}",
            f"Nobody read these sources of known defects for Kafka {release} ({when}): {few(unread)}. It is unknown "
            "which other defects this release has.",
            severity=INFO if unread == (ReviewSource.ISSUES,) else WARNING,
        )


def age_findings(catalogue: Catalogue, path: Sequence[Release]) -> Iterator[Finding]:
    """Yield the finding for each release of `path` that was built before the one that it replaces.

    Fixes go to several minor lines at different times, so a higher number alone does not contain all fixes of a lower
    one.
    """
    for before, after in pairwise(path):
        old, new = catalogue.get(before), catalogue.get(after)
        if old.built_at is None or new.built_at is None or new.built_at >= old.built_at:
            continue
        lost = [one.id for one in catalogue.advisories if one.affects(after) and not one.affects(before)]
        listed = (
            f"Of the known defects, {after} has and {before} does not: {few(lost, limit=12)}."
            if lost
            else (f"The list of known defects has no entry that {after} has and {before} does not.")
        )
        newer = _newer(catalogue, before, after, old.built_at)
        remedy = f"Choose {few(newer)}, which were built later." if len(newer) > 1 else ""
        remedy = f"Choose {newer[0]}, which was built later." if len(newer) == 1 else remedy
        yield TARGET_OLDER_THAN_SOURCE.found(
            f"release {after}",
            f"Kafka {after} was built on {new.built_at}, before {before} ({old.built_at}): fixes that {before} has can "
            f"be missing in {after}. {listed}",
            remedy or f"Wait for a later patch of {after.major}.{after.minor}, or read the release notes of {before}.",
            severity=WARNING if after > before else INFO,
        )


def _newer(catalogue: Catalogue, before: Release, after: Release, built: date) -> list[Release]:
    """Return releases that replace the target: from its minor line on for an upgrade, else only of this line."""
    found = []
    for release in catalogue:
        of_line = (release.major, release.minor) == (after.major, after.minor)
        built_at = catalogue.get(release).built_at
        if built_at and built_at >= built and release > after and (of_line or after > before):
            found.append(release)
    return found


def review_note(catalogue: Catalogue, judged: Sequence[AdvisoryVerdict]) -> str:
    """Return what was examined: which sources were read until which day, and the result of the entries by name."""
    by_answer: defaultdict[Applicability, list[str]] = defaultdict(list)
    for one in judged:
        by_answer[one.answered.answer].append(one.advisory.id)
    parts = [f"{answer}: {few(by_answer[answer], limit=8)}" for answer in Applicability if by_answer[answer]]
    return "; ".join([reviews_text(catalogue.reviews), *parts])


def reviews_text(reviews: Iterable[Review]) -> str:
    """Return each source with the releases and the day for which it was read."""
    known: defaultdict[ReviewSource, list[str]] = defaultdict(list)
    for one in reviews:
        known[one.source].append(f"{' and '.join(map(releases_text, one.releases))}, until {one.until}")
    return "; ".join(
        f"{source} read for {', '.join(known[source])}" if source in known else f"{source} not read"
        for source in ReviewSource
    )


def releases_text(affected: AffectedReleases) -> str:
    """Return such as `4.3.0 to 4.3.1`, or `3.3.0 to now` for releases without a last one."""
    if affected.first == affected.last:
        return str(affected.first)
    return f"{affected.first} to {affected.last or 'now'}"
