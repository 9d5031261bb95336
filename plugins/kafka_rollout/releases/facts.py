"""Kafka releases and the facts that the catalogue contains about each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any, Literal

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC
from kafka_rollout.releases.conditions import AdvisoryCondition
from kafka_rollout.releases.start_scripts import StartScripts

REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
NEW_COORDINATOR = "group.coordinator.new.enable"
METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
ELR_VERSION = "eligible.leader.replicas.version"
Logging = Literal["reload4j", "log4j2", "unknown"]


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A Kafka release such as 3.4.1. Releases sort by their numbers."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Release:
        """Read `3.4.1`; raises UserError for anything else (`latest`, `3.4`, `4.3.1-rc0`)."""
        match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", text.strip())
        if not match:
            raise UserError(f"'{text}' is not a Kafka release.", remedy="Write it as three numbers, for example 4.3.1.")
        return cls(*(int(part) for part in match.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """`3.9.1` in JSON, for adapters that use pydantic. A core schema is a plain dictionary."""
        return {
            "type": "function-plain",
            "function": {"type": "no-info", "function": cls._from_json},
            "serialization": {"type": "function-plain", "function": str, "when_used": "json"},
        }

    @classmethod
    def _from_json(cls, value: object) -> Release:
        if isinstance(value, cls):
            return value
        try:
            return cls.parse(str(value))
        except UserError as error:
            raise ValueError(error.sentence) from None


def newest_patches(releases: Iterable[Release]) -> tuple[Release, ...]:
    """Return the newest of these releases of each minor line, oldest first."""
    return tuple({(release.major, release.minor): release for release in sorted(releases)}.values())


@dataclass(frozen=True, slots=True, order=True)
class VersionRange:
    """Levels from min to max, both included (KIP-584's SupportedVersionRange)."""

    min: int
    max: int

    def __contains__(self, level: int) -> bool:
        return self.min <= level <= self.max

    def __str__(self) -> str:
        return f"{self.min}-{self.max}"


class CoordinatorClass(StrEnum):
    """How the coordinators of a release treat records of unknown types (KIP-915)."""

    INTOLERANT = "intolerant"  # pre-915: an unknown key type stops the load of the partition
    TOLERANT = "tolerant"  # 915: unknown key types are ignored, flexible value versions are read
    EMITTING = "emitting"  # post-915: writes records that an intolerant release cannot load
    UNKNOWN = "unknown"  # a gap: the coordinator's reaction could not be derived


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataVersionLevel:
    """One level of metadata.version."""

    level: int
    name: str
    """Such as `3.4-IV0`."""
    changed: bool
    """didMetadataChange of MetadataVersion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFacts:
    """One feature as a release supports it."""

    name: str
    supported: VersionRange
    latest_production: int
    """The highest stable level."""
    default_level: int
    """The level that a cluster formatted by the release has, and that `kafka-features.sh upgrade --release-version`
    sets (`Feature.defaultLevel()`); it can be below the highest stable level, for example while the feature is a
    preview."""
    dependencies: Mapping[int, Mapping[str, int]]
    """Level → required levels of other features (`Feature.dependencies()`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A finalized level of a feature from which a fact applies."""

    feature: str
    level: int


class RuleKind(StrEnum):
    """The rule that the content of a field must meet so that the coordinator of the release loads the record."""

    BETWEEN = "between"  # a number from `least` to `most`
    SET_UNLESS_ZERO = "set_unless_zero"  # not null, unless the preceding number (a BETWEEN field) is 0
    FILLED = "filled"  # not an empty text, not the zero UUID
    SUBSCRIPTION = (
        "subscription"  # the subscription of a member of the classic protocol, in the format of the consumers' protocol
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """One rule for a field of a value."""

    field: str
    """Its path, such as "members[].subscription"."""
    kind: RuleKind
    least: int = 0
    most: int = 0
    refusal: str
    """The error that the release logs when it stops at such a record; `{value}` is the content of the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTypeFacts:
    """One record type of a coordinator log: its key version, and the value versions that a release reads and writes."""

    key_version: int
    name: str
    reads: VersionRange
    """Value versions that the release's deserializer supports."""
    flexible_from: int | None
    """First flexible value version, or None."""
    writes: tuple[int, ...]
    """Value versions that it can write at some feature level; empty if it never writes the type."""
    unknown_value: str
    """Its error for an unknown value version; `{version}` is the version."""
    written_from: Mapping[int, FeatureLevel] = field(default_factory=dict)
    """The value versions that it writes only from a feature level."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Kinds of records ("value", "tombstone") that it reads and that then stop the load → its error."""
    rules: tuple[FieldRule, ...] = ()
    """The checks of values that parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFamilyFacts:
    """The record order that a group coordinator requires for one group type (GroupMetadataManager.replay)."""

    family: str
    """Prefix of the record names, such as "StreamsGroup"."""
    founders: tuple[int, ...]
    """Key versions whose value creates the group. The errors contain `{group}` and `{member}`."""
    other_type: str
    """Error for a record of a group of another type."""
    not_found: str = ""
    """Error for another record of a group that does not exist."""
    member_not_found: str = ""
    """The same for a member. Both are "" if any value creates the group and tombstones are skipped."""
    member_too_late: str = ""
    """Error for a member record after its assignment, if the assignment has tasks (streams groups of 4.1)."""
    takes_over_offsets: bool
    """No error if that group is a classic group that exists only because of its offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLogFacts:
    """How the coordinator of a release loads one coordinator log (`topic`) with its default configuration."""

    topic: str
    loaded: bool
    """False if the coordinator exists but is not started."""
    ignores_unknown_keys: bool
    ignores_unknown_values: bool
    """It skips an unknown value version with a warning, as it skips an unknown key (the transaction coordinator since
    4.3)."""
    stalls_at_unknown_end: bool = False
    """It advances only after a batch with a known key, so it reads the last batches in an endless loop if they have
    only unknown keys (the transaction coordinator up to 3.9)."""
    unknown_key: str = ""
    """The error of an intolerant release for a key version; `{version}` is the version."""
    deleted_while_pending: str = ""
    """Its error, with `{group}` and `{partition}`, for a group whose newest GroupMetadata record is a tombstone and
    whose only offsets belong to transactions without an end (GroupMetadataManager of 3.x); "" if it loads such groups.
    """
    group_families: tuple[GroupFamilyFacts, ...] = ()
    """Empty for the coordinator of 3.x, which supports only classic groups."""
    records: tuple[RecordTypeFacts, ...]

    def record(self, key_version: int) -> RecordTypeFacts | None:
        return next((record for record in self.records if record.key_version == key_version), None)

    @property
    def group_roles(self) -> Mapping[int, tuple[GroupFamilyFacts, str]]:
        """Key version → family of the record, and the rest of the record name after the family."""
        return {
            record.key_version: (family, record.name.removeprefix(family.family))
            for family in self.group_families
            for record in self.records
            if record.name.startswith(family.family)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """All facts of the catalogue about one release, in the order of its file; derivation derives them from the jars."""

    release: Release
    built_at: date | None
    """The day of its build."""
    coordinator_class: CoordinatorClass
    java_minimum: int | None
    java_maximum_with_sasl: int | None
    """The newest Java in which a node can log in to other nodes with SASL; None without a limit."""
    logging: Logging
    has_current_metadata_version_metric: bool
    has_snapshot_emitter_metrics: bool
    lossy_downgrade_level: int | None = None
    """The metadata.version of KIP-1155, if the release has it. A node that supports this level lowers metadata.version
    even if metadata is lost."""
    gaps: Mapping[str, str] = field(default_factory=dict)
    """Name of a fact that could not be derived → reason, a sentence. A name is that of a field,
    `coordinator_logs.<topic>`, `feature_dependencies`, `feature_defaults` or `metadata_log`. The field then has no
    content (None, empty, unknown, False), which must not be read as the release's behaviour."""
    features: Mapping[str, FeatureFacts]
    metadata_versions: tuple[MetadataVersionLevel, ...]
    coordinator_logs: Mapping[str, CoordinatorLogFacts]
    new_group_coordinator: CoordinatorLogFacts | None = None
    """How the new group coordinator loads the log, if the configuration of the release enables it (3.8, 3.9:
    `group.coordinator.rebalance.protocols`, `group.coordinator.new.enable`). Since 4.0 it is the only one."""
    oldest_requests: Mapping[str, int]
    """API → the oldest version that brokers serve to clients, only if it is above 0 (KIP-896). An API that the release
    has removed is not in it."""
    config_resources: frozenset[str]
    """Resource types that can have settings in the metadata, by Kafka's names (`TOPIC`, `GROUP`)."""
    config_names: frozenset[str]
    config_defaults: Mapping[str, str]
    """Broker setting → default, as in a configuration file; without an entry the default is null."""

    @property
    def has_two_group_coordinators(self) -> bool:
        """Whether the configuration of a broker chooses one, as far as it is known."""
        return self.new_group_coordinator is not None or "new_group_coordinator" in self.gaps

    def is_unknown_log(self, topic: str) -> bool:
        """Return whether the coordinator of this log was not derived."""
        return gap_of_log(topic) in self.gaps

    def metadata_version_name(self, level: int) -> str:
        return next((mv.name for mv in self.metadata_versions if mv.level == level), str(level))


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorRule:
    """How the version of a vendor's build names the Apache release that it is based on."""

    vendor: str
    pattern: str
    """A regular expression for the whole version. Its group is the Apache release, or, with `minors`, the vendor's
    minor line, which `minors` maps to that of Apache."""
    source: str
    """Where the mapping is documented."""
    minors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedReleases:
    """Releases with a defect, from the first to the last."""

    first: Release
    last: Release | None = None
    """None: no release corrects it."""

    def contains(self, release: Release) -> bool:
        return self.first <= release and (self.last is None or release <= self.last)


class Strikes(StrEnum):
    """When a defect does harm."""

    RUNNING = "running"  # while nodes run an affected release
    ROLLING = "rolling"  # while nodes of an affected release restart one after another
    STARTING = "starting"  # when a node starts on an affected release after another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisory:
    """A known defect of Kafka. The sentences are shown as they are."""

    id: str
    """Kafka's issue, a CVE, or a name."""
    affected: tuple[AffectedReleases, ...]
    """Releases of those that it `concerns`."""
    concerns: Literal["nodes", "clients"]
    severity: Literal["blocker", "warning", "info"]
    """On a cluster that meets all conditions of `when`. A blocker blocks only plans that start nodes on an affected
    release (ROLLING: also on another one after it), and has only conditions that can be observed."""
    condition: str
    """`when` in words."""
    defect: str
    remedy: str
    source: str
    """Where the defect is documented."""
    strikes: Strikes = Strikes.RUNNING
    coming_from: tuple[AffectedReleases, ...] = ()
    """Only if an earlier release of the path is one of these; empty: any."""
    when: tuple[AdvisoryCondition, ...] = ()

    def affects(self, release: Release) -> bool:
        return any(one.contains(release) for one in self.affected)


class ReviewSource(StrEnum):
    """A publication of Kafka in which its known defects are named."""

    UPGRADE_NOTES = "upgrade notes"
    CVES = "CVE list"
    ISSUES = "fixed blocker and critical issues"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a person read to fill the list of known defects."""

    source: ReviewSource
    until: date
    """The day of the reading: a release that was built later is not covered."""
    releases: tuple[AffectedReleases, ...]
    """The releases of which the source was read completely."""

    def covers(self, release: Release, built: date | None) -> bool:
        return built is not None and built <= self.until and any(one.contains(release) for one in self.releases)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The supported releases and their facts."""

    releases: Mapping[Release, ReleaseFacts]
    vendors: tuple[VendorRule, ...] = ()
    """Rules for builds of vendors, the first match applies."""
    advisories: tuple[Advisory, ...] = ()
    reviews: tuple[Review, ...] = ()
    """What was read to find known defects. A release that none covers is not reviewed."""
    scripts: StartScripts = field(default_factory=StartScripts)
    """The lines of Kafka's own start scripts."""

    def unread(self, release: Release) -> tuple[ReviewSource, ...]:
        """Return the sources that nobody read for this release."""
        built = self.get(release).built_at
        read = {one.source for one in self.reviews if one.covers(release, built)}
        return tuple(one for one in ReviewSource if one not in read)

    def get(self, release: Release) -> ReleaseFacts:
        """Return the facts of a release. Raises UserError, which lists the supported releases."""
        try:
            return self.releases[release]
        except KeyError:
            known = ", ".join(map(str, newest_patches(self.releases)))
            raise UserError(
                f"Release {release} is not in the catalogue.",
                remedy=f"Choose another one, such as {known}, or add it with `kafka-rollout-derive add {release}`.",
            ) from None

    def configured(self, *, new_group_coordinator: bool | None) -> Catalogue:
        """Return the catalogue for brokers whose configuration enables the new group coordinator, where a release has
        two.

        None: the configuration is unknown, so what such a release does with the log is unknown too.
        """
        if new_group_coordinator is False:
            return self
        configure = _with_unknown_group_coordinator if new_group_coordinator is None else _with_new_group_coordinator
        return replace(self, releases={release: configure(facts) for release, facts in self.releases.items()})

    def __contains__(self, release: object) -> bool:
        return release in self.releases

    def __iter__(self) -> Iterator[Release]:
        return iter(sorted(self.releases))

    @property
    def lossy_downgrade_level(self) -> int | None:
        """The metadata.version of KIP-1155, or None if no release of the catalogue has it."""
        levels = [facts.lossy_downgrade_level for facts in self.releases.values()]
        return min((level for level in levels if level is not None), default=None)

    @property
    def coordinator_topics(self) -> tuple[str, ...]:
        """The coordinator logs of all releases of the catalogue."""
        return tuple(sorted({topic for facts in self.releases.values() for topic in facts.coordinator_logs}))


def enables_new_group_coordinator(settings: Mapping[str, str]) -> bool:
    """Return whether 3.8 and 3.9 start their new group coordinator with what is set (without defaults).

    KafkaConfig.isNewGroupCoordinatorEnabled of 3.8. A value of a config provider counts as if it did.
    """
    protocols = {name.strip().lower() for name in settings.get(REBALANCE_PROTOCOLS, "").split(",")}
    return not protocols <= {"", "classic"} or settings.get(NEW_COORDINATOR, "").strip().lower() not in ("", "false")


_ALWAYS_WITH_SHARE_COORDINATOR = Release(4, 1, 0)


def starts_share_coordinator(facts: ReleaseFacts, settings: Callable[[], Mapping[str, str]]) -> bool:
    """Return whether a broker of the release starts a share coordinator, which loads `__share_group_state`.

    None before 4.0. In 4.0 it is a preview that `settings` (without defaults) enable (ShareGroupConfig of 4.0); a value
    of a config provider counts as if it did. From 4.1 on every broker has one (BrokerServer.createShareCoordinator).
    """
    if SHARE_TOPIC not in facts.coordinator_logs:
        return facts.is_unknown_log(SHARE_TOPIC)
    if facts.release >= _ALWAYS_WITH_SHARE_COORDINATOR:
        return True
    return enables_share_groups(settings())


def enables_share_groups(settings: Mapping[str, str]) -> bool:
    """Return whether a broker of 4.0 or 4.1 serves share groups by what is set (without defaults), at any share.version
    (KafkaApis.isShareGroupProtocolEnabled). A value of a config provider counts as if it did.
    """
    protocols = {name.strip().lower() for name in settings.get(REBALANCE_PROTOCOLS, "").split(",")}
    return not protocols <= {"", "classic", "consumer", "streams"} or (
        settings.get("group.share.enable", "").strip().lower() not in ("", "false")
    )


def _with_new_group_coordinator(facts: ReleaseFacts) -> ReleaseFacts:
    new = facts.new_group_coordinator
    if new is not None:
        return replace(facts, coordinator_logs={**facts.coordinator_logs, new.topic: new})
    if reason := facts.gaps.get("new_group_coordinator"):
        return _without_groups_log(facts, reason)
    return facts


def _with_unknown_group_coordinator(facts: ReleaseFacts) -> ReleaseFacts:
    if not facts.has_two_group_coordinators:
        return facts
    return _without_groups_log(facts, "It has two group coordinators, and the brokers did not report which they start.")


def _without_groups_log(facts: ReleaseFacts, reason: str) -> ReleaseFacts:
    others = {topic: log for topic, log in facts.coordinator_logs.items() if topic != GROUPS_TOPIC}
    return replace(facts, coordinator_logs=others, gaps={**facts.gaps, gap_of_log(GROUPS_TOPIC): reason})


def gap_of_log(topic: str) -> str:
    return f"coordinator_logs.{topic}"
