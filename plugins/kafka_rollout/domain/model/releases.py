"""Releases of Kafka and what the catalogue knows of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kafka_rollout.domain.model.errors import UserError

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A Kafka release such as 3.4.1; ordered as its numbers are."""

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


@dataclass(frozen=True, slots=True, order=True)
class VersionRange:
    """Levels min..max, both included (KIP-584's SupportedVersionRange)."""

    min: int
    max: int

    def __contains__(self, level: int) -> bool:
        return self.min <= level <= self.max

    def __str__(self) -> str:
        return f"{self.min}-{self.max}"


class CoordinatorClass(StrEnum):
    """How a release's coordinators stand to records they do not know (KIP-915)."""

    INTOLERANT = "intolerant"  # pre-915: an unknown key type stops the load of the partition
    TOLERANT = "tolerant"  # 915: unknown key types are ignored, flexible value versions are read
    EMITTING = "emitting"  # post-915: writes records that an intolerant release cannot load


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataVersionLevel:
    """One level of metadata.version: `name` such as `3.4-IV0`; `changed` = didMetadataChange of MetadataVersion."""

    level: int
    name: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFacts:
    """One feature as a release supports it.

    `latest_production` is the highest stable level; `dependencies` maps a level to the levels of other features
    that it needs (`Feature.dependencies()`).
    """

    name: str
    supported: VersionRange
    latest_production: int
    dependencies: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A finalized level of a feature, from which on something holds."""

    feature: str
    level: int


class RuleKind(StrEnum):
    """What a field's content has to be, in a record that parses, so that the release's coordinator takes it."""

    BETWEEN = "between"  # a number from `least` to `most`
    SET_UNLESS_ZERO = "set_unless_zero"  # not null, unless the number before it, which is BETWEEN some, is 0
    FILLED = "filled"  # no empty text, no zero UUID
    SUBSCRIPTION = "subscription"  # what a consumer of the classic protocol subscribes to, as the consumers' protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """One rule of a value's field: `field` is its path, such as "members[].subscription".

    `refusal`: what the release says when it stops at such a record, with `{value}` for the field's content.
    """

    field: str
    kind: RuleKind
    least: int = 0
    most: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTypeFacts:
    """One record type of a coordinator log: its key version and what the release reads and writes of its value.

    `reads`: value versions that the release's deserializer takes; `flexible_from`: first flexible value version or
    None; `writes`: value versions it may write (by feature level, the highest included), empty if it never writes it;
    `written_from`: those of them that it writes only from a feature level on.
    `refuses`: what is read and then stops the load all the same ("value", "tombstone"), with the release's complaint.
    `unknown_value`: its complaint about a value version that it does not know, with `{version}` in it.
    `rules`: what it checks in values that parse.
    """

    key_version: int
    name: str
    reads: VersionRange
    flexible_from: int | None
    writes: tuple[int, ...]
    written_from: Mapping[int, FeatureLevel] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    unknown_value: str = ""
    rules: tuple[FieldRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFamilyFacts:
    """In which order a group coordinator takes the records of one type of groups (GroupMetadataManager.replay).

    `family`: what the records' names begin with, such as "StreamsGroup". `founders`: key versions of which a value
    makes the group, if it is not there. Complaints have `{group}` and `{member}` in them: `not_found` is that about any
    other record of a group that is not there, `member_not_found` likewise; "": it makes them of any value, and passes
    over tombstones. `other_type`: that about a record of a group that is of another type. `takes_over_offsets`: not if
    it is a classic one that was only made for offsets. `member_too_late`: that about a member's own record behind its
    assignment, if that has tasks (streams groups of 4.1).
    """

    family: str
    founders: tuple[int, ...]
    other_type: str
    not_found: str = ""
    member_not_found: str = ""
    member_too_late: str = ""
    takes_over_offsets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLogFacts:
    """How a release's coordinator, by its default configuration, loads one coordinator log (`topic`).

    `loaded`: False if the coordinator is there but not started. `ignores_unknown_values`: a value version that it does
    not know is skipped with a warning, as an unknown key is (the transaction coordinator since 4.3).
    `stalls_at_unknown_end`: it goes on only behind batches in which it knew a key, so that it reads the same batches
    for ever when the log ends with others (the transaction coordinator until 3.9). `unknown_key`: an intolerant
    release's complaint about a key version, with `{version}` in it. `deleted_while_pending`: its complaint, with
    `{group}` and `{partition}` in it, about a group whose newest record of itself is a tombstone and whose only offsets
    are those of transactions without an end (GroupMetadataManager of 3.x); "": it loads them. `group_families`: none
    for the coordinator of 3.x, which knows only classic groups.
    """

    topic: str
    records: tuple[RecordTypeFacts, ...]
    ignores_unknown_keys: bool
    ignores_unknown_values: bool = False
    stalls_at_unknown_end: bool = False
    loaded: bool = True
    unknown_key: str = ""
    deleted_while_pending: str = ""
    group_families: tuple[GroupFamilyFacts, ...] = ()

    def record(self, key_version: int) -> RecordTypeFacts | None:
        return next((record for record in self.records if record.key_version == key_version), None)

    @property
    def group_roles(self) -> Mapping[int, tuple[GroupFamilyFacts, str]]:
        """By key version the family of a record, and what its name has behind the family's."""
        return {
            record.key_version: (family, record.name.removeprefix(family.family))
            for family in self.group_families
            for record in self.records
            if record.name.startswith(family.family)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """Everything the catalogue holds of one release; derived from its jars by tools/derive_catalogue.py.

    `config_resources`: kinds of resources that may have settings in the metadata, by Kafka's names (`TOPIC`, `GROUP`).
    `lossy_downgrade_level`: KIP-1155's metadata.version, if the release has it: a node that supports that level lowers
    metadata.version also where metadata is lost.
    `new_group_coordinator`: what loads the log of the groups instead, where the release starts it if it is told to
    (3.8, 3.9: `group.coordinator.rebalance.protocols`, `group.coordinator.new.enable`; the only one since 4.0).
    """

    release: Release
    features: Mapping[str, FeatureFacts]
    metadata_versions: tuple[MetadataVersionLevel, ...]
    coordinator_logs: Mapping[str, CoordinatorLogFacts]
    coordinator_class: CoordinatorClass
    java_minimum: int
    config_names: frozenset[str]
    config_resources: frozenset[str]
    has_current_metadata_version_metric: bool
    has_snapshot_emitter_metrics: bool
    logging: str  # "reload4j" or "log4j2"
    lossy_downgrade_level: int | None = None
    new_group_coordinator: CoordinatorLogFacts | None = None

    def metadata_version_name(self, level: int) -> str:
        return next((mv.name for mv in self.metadata_versions if mv.level == level), str(level))


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The releases that the tool knows, by release."""

    releases: Mapping[Release, ReleaseFacts]

    def get(self, release: Release) -> ReleaseFacts:
        """Facts of a release; raises UserError naming the known ones."""
        try:
            return self.releases[release]
        except KeyError:
            known = ", ".join(str(known) for known in sorted(self.releases))
            raise UserError(
                f"Release {release} is not in the catalogue.",
                remedy=f"Choose one of {known}, or derive its facts with tools/derive_catalogue.py.",
            ) from None

    def configured(self, *, new_group_coordinator: bool) -> Catalogue:
        """The catalogue of releases that are told to start their new group coordinator, where they have two."""
        if not new_group_coordinator:
            return self
        return Catalogue({release: _with_new_group_coordinator(facts) for release, facts in self.releases.items()})

    def __contains__(self, release: object) -> bool:
        return release in self.releases

    def __iter__(self) -> Iterator[Release]:
        return iter(sorted(self.releases))

    @property
    def lossy_downgrade_level(self) -> int | None:
        """KIP-1155's metadata.version, where a release of the catalogue has it."""
        levels = [facts.lossy_downgrade_level for facts in self.releases.values()]
        return min((level for level in levels if level is not None), default=None)

    @property
    def coordinator_topics(self) -> tuple[str, ...]:
        """The coordinator logs that some release has."""
        return tuple(sorted({topic for facts in self.releases.values() for topic in facts.coordinator_logs}))


def _with_new_group_coordinator(facts: ReleaseFacts) -> ReleaseFacts:
    new = facts.new_group_coordinator
    return facts if new is None else replace(facts, coordinator_logs={**facts.coordinator_logs, new.topic: new})
