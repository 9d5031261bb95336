"""Kafka releases and the facts that the catalogue contains about each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any, Literal

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.releases.conditions import AdvisoryCondition

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
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
    """One level of metadata.version. `name`: such as `3.4-IV0`. `changed`: didMetadataChange of MetadataVersion."""

    level: int
    name: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFacts:
    """One feature as a release supports it.

    `latest_production`: the highest stable level. `default_level`: the level that a cluster formatted by the release
    has, and that `kafka-features.sh upgrade --release-version` sets (`Feature.defaultLevel()`); it can be below the
    highest stable level, for example while the feature is a preview. `dependencies`: level → required levels of other
    features (`Feature.dependencies()`).
    """

    name: str
    supported: VersionRange
    latest_production: int
    default_level: int
    dependencies: Mapping[int, Mapping[str, int]]


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
    """One rule for a field of a value. `field`: its path, such as "members[].subscription".

    `refusal`: the error that the release logs when it stops at such a record; `{value}` is the content of the field.
    """

    field: str
    kind: RuleKind
    least: int = 0
    most: int = 0
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTypeFacts:
    """One record type of a coordinator log: its key version, and the value versions that the release reads and writes.

    `reads`: value versions that the release's deserializer supports. `flexible_from`: first flexible value version, or
    None. `writes`: value versions that it can write at some feature level; empty if it never writes the type.
    `written_from`: the value versions that it writes only from a feature level. `refuses`: kinds of records ("value",
    "tombstone") that it reads and that then stop the load → its error. `unknown_value`: its error for an unknown value
    version; `{version}` is the version. `rules`: the checks of values that parse.
    """

    key_version: int
    name: str
    reads: VersionRange
    flexible_from: int | None
    writes: tuple[int, ...]
    unknown_value: str
    written_from: Mapping[int, FeatureLevel] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[FieldRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFamilyFacts:
    """The record order that a group coordinator requires for one group type (GroupMetadataManager.replay).

    `family`: prefix of the record names, such as "StreamsGroup". `founders`: key versions whose value creates the
    group. The errors contain `{group}` and `{member}`. `not_found`: error for another record of a group that does not
    exist. `member_not_found`: the same for a member. Both are "" if any value creates the group and tombstones are
    skipped. `other_type`: error for a record of a group of another type. `takes_over_offsets`: no error if that group
    is a classic group that exists only because of its offsets. `member_too_late`: error for a member record after its
    assignment, if the assignment has tasks (streams groups of 4.1).
    """

    family: str
    founders: tuple[int, ...]
    other_type: str
    not_found: str = ""
    member_not_found: str = ""
    member_too_late: str = ""
    takes_over_offsets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLogFacts:
    """How the coordinator of a release loads one coordinator log (`topic`) with its default configuration.

    `loaded`: False if the coordinator exists but is not started. `ignores_unknown_values`: it skips an unknown value
    version with a warning, as it skips an unknown key (the transaction coordinator since 4.3). `stalls_at_unknown_end`:
    it advances only after a batch with a known key, so it reads the last batches in an endless loop if they have only
    unknown keys (the transaction coordinator up to 3.9). `unknown_key`: the error of an intolerant release for a key
    version; `{version}` is the version. `deleted_while_pending`: its error, with `{group}` and `{partition}`, for a
    group whose newest GroupMetadata record is a tombstone and whose only offsets belong to transactions without an end
    (GroupMetadataManager of 3.x); "" if it loads such groups. `group_families`: empty for the coordinator of 3.x, which
    supports only classic groups.
    """

    topic: str
    loaded: bool
    ignores_unknown_keys: bool
    ignores_unknown_values: bool
    stalls_at_unknown_end: bool = False
    unknown_key: str = ""
    deleted_while_pending: str = ""
    group_families: tuple[GroupFamilyFacts, ...] = ()
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
    """All facts of the catalogue about one release, in the order of its file; derivation derives them from the jars.

    `oldest_requests`: API → the oldest version that brokers serve to clients, only if it is above 0 (KIP-896). An API
    that the release has removed is not in it. `config_resources`: resource types that can have settings in the
    metadata, by Kafka's names (`TOPIC`, `GROUP`). `lossy_downgrade_level`: the metadata.version of KIP-1155, if the
    release has it. A node that supports this level lowers metadata.version even if metadata is lost.
    `new_group_coordinator`: how the new group coordinator loads the log, if the configuration of the release enables it
    (3.8, 3.9: `group.coordinator.rebalance.protocols`, `group.coordinator.new.enable`). Since 4.0 it is the only one.
    `config_defaults`: broker setting → default, as in a configuration file; without an entry the default is null.
    `built_at`: the day of its build. `java_maximum_with_sasl`: the newest Java in which a node can log in to other
    nodes with SASL; None without a limit.
    `gaps`: name of a fact that could not be derived → reason, a sentence. A name is that of a field,
    `coordinator_logs.<topic>`, `feature_dependencies`, `feature_defaults` or `metadata_log`. The field then has no
    content (None, empty, unknown, False), which must not be read as the release's behaviour.
    """

    release: Release
    built_at: date | None
    coordinator_class: CoordinatorClass
    java_minimum: int | None
    java_maximum_with_sasl: int | None
    logging: Logging
    has_current_metadata_version_metric: bool
    has_snapshot_emitter_metrics: bool
    lossy_downgrade_level: int | None = None
    gaps: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, FeatureFacts]
    metadata_versions: tuple[MetadataVersionLevel, ...]
    coordinator_logs: Mapping[str, CoordinatorLogFacts]
    new_group_coordinator: CoordinatorLogFacts | None = None
    oldest_requests: Mapping[str, int]
    config_resources: frozenset[str]
    config_names: frozenset[str]
    config_defaults: Mapping[str, str]

    def is_unknown_log(self, topic: str) -> bool:
        """Return whether the coordinator of this log was not derived."""
        return gap_of_log(topic) in self.gaps

    def metadata_version_name(self, level: int) -> str:
        return next((mv.name for mv in self.metadata_versions if mv.level == level), str(level))


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorRule:
    """How the version of a vendor's build names the Apache release that it is based on.

    `pattern`: a regular expression for the whole version. Its group is the Apache release, or, with `minors`, the
    vendor's minor line, which `minors` maps to that of Apache. `source`: where the mapping is documented.
    """

    vendor: str
    pattern: str
    source: str
    minors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedReleases:
    """Releases with a defect, from the first to the last. `last` None: no release corrects it."""

    first: Release
    last: Release | None = None

    def contains(self, release: Release) -> bool:
        return self.first <= release and (self.last is None or release <= self.last)


class Strikes(StrEnum):
    """When a defect does harm."""

    RUNNING = "running"  # while nodes run an affected release
    ROLLING = "rolling"  # while nodes of an affected release restart one after another
    STARTING = "starting"  # when a node starts on an affected release after another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisory:
    """A known defect of Kafka. The sentences are shown as they are.

    `id`: Kafka's issue, a CVE, or a name. `affected`: releases of those that it `concerns`. `severity`: on a cluster
    that meets all conditions of `when`. A blocker blocks only plans that start nodes on an affected release, and has
    only conditions that can be observed. `coming_from`: only if an earlier release of the path is one of these; empty:
    any. `condition`: `when` in words. `source`: where the defect is documented.
    """

    id: str
    affected: tuple[AffectedReleases, ...]
    concerns: Literal["nodes", "clients"]
    severity: Literal["blocker", "warning", "info"]
    condition: str
    defect: str
    remedy: str
    source: str
    strikes: Strikes = Strikes.RUNNING
    coming_from: tuple[AffectedReleases, ...] = ()
    when: tuple[AdvisoryCondition, ...] = ()

    def affects(self, release: Release) -> bool:
        return any(one.contains(release) for one in self.affected)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The supported releases and their facts. `vendors`: rules for builds of vendors, the first match applies.

    `reviewed_until`: the day until which fixed defects were looked for; None: never.
    """

    releases: Mapping[Release, ReleaseFacts]
    vendors: tuple[VendorRule, ...] = ()
    advisories: tuple[Advisory, ...] = ()
    reviewed_until: date | None = None

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

    def configured(self, *, new_group_coordinator: bool) -> Catalogue:
        """Return the catalogue for brokers whose configuration enables the new group coordinator, where a release has
        two.
        """
        if not new_group_coordinator:
            return self
        configured = {release: _with_new_group_coordinator(facts) for release, facts in self.releases.items()}
        return replace(self, releases=configured)

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


def _with_new_group_coordinator(facts: ReleaseFacts) -> ReleaseFacts:
    new = facts.new_group_coordinator
    if new is not None:
        return replace(facts, coordinator_logs={**facts.coordinator_logs, new.topic: new})
    if reason := facts.gaps.get("new_group_coordinator"):
        others = {topic: log for topic, log in facts.coordinator_logs.items() if topic != GROUPS_TOPIC}
        return replace(facts, coordinator_logs=others, gaps={**facts.gaps, gap_of_log(GROUPS_TOPIC): reason})
    return facts


def gap_of_log(topic: str) -> str:
    return f"coordinator_logs.{topic}"
