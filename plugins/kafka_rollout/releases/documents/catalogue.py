"""The release catalogue: releases/<release>.json, one file a release, written by `kafka-rollout catalogue add`.

It is in two folders: include/, which is part of the project, and that of the releases added on this machine
(Settings.catalogue). A release in both is read from include/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.facts import (
    METADATA_VERSION,
    Advisory,
    Catalogue,
    CoordinatorClass,
    CoordinatorLogFacts,
    FeatureFacts,
    FeatureLevel,
    FieldRule,
    GroupFamilyFacts,
    MetadataVersionLevel,
    RecordTypeFacts,
    Release,
    ReleaseFacts,
    RuleKind,
    VendorRule,
    VersionRange,
)

INTOLERANT_REFERENCE = Release(3, 4, 0)
"""The newest release of the catalogue whose coordinators fail on unknown records."""

_REMEDY = "Restore it from the repository, or derive it again with `kafka-rollout catalogue add RELEASE`."


def _check_order(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[0] > pair[1]:
        raise ValueError(f"{pair[0]} is above {pair[1]}")
    return pair


_File = TypeVar("_File", bound=BaseModel)
Range = Annotated[tuple[int, int], AfterValidator(_check_order)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Feature(_Strict):
    supported: Range
    latest_production: int
    default_level: int | None = None
    dependencies: dict[int, dict[str, int]]


class _MetadataVersion(_Strict):
    level: int
    name: str
    changed: bool


class _Rule(_Strict):
    field: str
    kind: RuleKind
    least: int = 0
    most: int = 0
    refusal: str


class _Record(_Strict):
    key_version: int
    name: str
    reads: Range
    flexible_from: int | None
    writes: list[int]
    written_from: dict[int, dict[str, int]] = {}
    refuses: dict[str, str] = {}
    unknown_value: str
    rules: list[_Rule] = []


class _GroupFamily(_Strict):
    family: str
    founders: list[int]
    other_type: str
    not_found: str = ""
    member_not_found: str = ""
    member_too_late: str = ""
    takes_over_offsets: bool


class _Log(_Strict):
    loaded: bool
    ignores_unknown_keys: bool
    ignores_unknown_values: bool
    stalls_at_unknown_end: bool = False
    unknown_key: str = ""
    deleted_while_pending: str = ""
    group_families: list[_GroupFamily] = []
    records: list[_Record]


class _Vendor(_Strict):
    vendor: str
    pattern: str
    source: str
    minors: dict[str, str] = {}

    @field_validator("pattern")
    @classmethod
    def _has_one_group(cls, pattern: str) -> str:
        if re.compile(pattern).groups != 1:
            raise ValueError("it needs exactly one group")
        return pattern


class _Vendors(_Strict):
    rules: list[_Vendor]


class _Affected(_Strict):
    first: Release
    last: Release | None = None


class _Advisory(_Strict):
    id: str
    affected: list[_Affected] = Field(min_length=1)
    concerns: Literal["brokers", "clients"]
    condition: str
    defect: str
    remedy: str
    source: str = Field(min_length=1)
    below_metadata_version: int | None = None


class _Advisories(_Strict):
    advisories: list[_Advisory]


class _DerivedFrom(_Strict):
    tool: str
    jars: dict[str, str]


class _Facts(_Strict):
    release: str
    derived_from: _DerivedFrom
    coordinator_class: CoordinatorClass
    java_minimum: int | None = Field(ge=8)
    logging: str = Field(pattern="^(reload4j|log4j2|unknown)$")
    has_current_metadata_version_metric: bool
    has_snapshot_emitter_metrics: bool
    features: dict[str, _Feature]
    metadata_versions: list[_MetadataVersion]
    coordinator_logs: dict[str, _Log]
    oldest_requests: dict[str, int]
    config_resources: list[str]
    config_names: list[str]
    config_defaults: dict[str, str] | None = None
    lossy_downgrade_level: int | None = None
    new_group_coordinator: _Log | None = None
    gaps: dict[str, str] = {}

    @field_validator("features")
    @classmethod
    def _has_metadata_version(cls, features: dict[str, _Feature]) -> dict[str, _Feature]:
        if METADATA_VERSION not in features:
            raise ValueError(f"{METADATA_VERSION} is missing")
        return features


def release_files(*folders: Path, of: str = "releases") -> dict[Release, Path]:
    """The files <release>.json in a subfolder of the catalogue's folders, oldest release first; the first folder wins.

    The files are not read.
    """
    found: dict[Release, Path] = {}
    for folder in folders:
        for path in (folder / of).glob("*.json"):
            try:
                found.setdefault(Release.parse(path.stem), path)
            except UserError:
                continue
    return dict(sorted(found.items()))


def get_catalogue(settings: Settings | None = None) -> Catalogue:
    """Return the facts of every supported release."""
    return load_catalogue(*(settings or Settings.from_environment()).catalogue_folders)


def list_releases(settings: Settings | None = None) -> list[str]:
    """Return the names of all supported releases, oldest first. Reads no catalogue file."""
    return [str(release) for release in release_files(*(settings or Settings.from_environment()).catalogue_folders)]


def load_catalogue(*folders: Path) -> Catalogue:
    """Every release of the folders; raises UserError with the name of an invalid file."""
    found = release_files(*folders)
    if not found:
        raise UserError(f"The catalogue {folders[0] / 'releases'} contains no release.", remedy=_REMEDY)
    return Catalogue(
        {release: load_facts(path) for release, path in found.items()},
        tuple(
            VendorRule(**rule.model_dump())
            for file in _read_all(folders, "vendors.json", _Vendors)
            for rule in file.rules
        ),
        tuple(_advisory(one) for file in _read_all(folders, "advisories.json", _Advisories) for one in file.advisories),
    )


def _read_all(folders: Iterable[Path], name: str, form: type[_File]) -> Iterator[_File]:
    """Yield a file of each folder that has it. Raises UserError with the name of an invalid file."""
    for path in (folder / name for folder in folders):
        if path.exists():
            try:
                yield form.model_validate_json(path.read_text())
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"]) or "the file"
                raise UserError(f"The rules {path} are invalid: {where}: {first['msg']}.", remedy=_REMEDY) from None


def _advisory(one: _Advisory) -> Advisory:
    return Advisory(
        affected=tuple((affected.first, affected.last) for affected in one.affected),
        of_clients=one.concerns == "clients",
        **one.model_dump(exclude={"affected", "concerns"}),
    )


def load_facts(path: Path) -> ReleaseFacts:
    """One release's file, checked."""
    try:
        facts = _Facts.model_validate_json(path.read_text())
    except OSError as error:
        raise UserError(f"The catalogue file {path} cannot be read: {error.strerror}.", remedy=_REMEDY) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UserError(f"The catalogue file {path} is invalid: {where}: {first['msg']}.", remedy=_REMEDY) from None
    if facts.release != path.stem:
        raise UserError(f"The catalogue file {path} contains release {facts.release}.", remedy=_REMEDY)
    return _to_domain(facts)


def _to_domain(facts: _Facts) -> ReleaseFacts:
    coordinator = facts.new_group_coordinator
    return ReleaseFacts(
        release=Release.parse(facts.release),
        features={
            name: FeatureFacts(
                name=name,
                supported=VersionRange(*feature.supported),
                default_level=feature.default_level or 0,
                **feature.model_dump(include={"latest_production", "dependencies"}),
            )
            for name, feature in facts.features.items()
        },
        metadata_versions=tuple(MetadataVersionLevel(**version.model_dump()) for version in facts.metadata_versions),
        coordinator_logs={topic: _log_to_domain(topic, log) for topic, log in facts.coordinator_logs.items()},
        config_names=frozenset(facts.config_names),
        config_defaults=facts.config_defaults or {},
        config_resources=frozenset(facts.config_resources),
        new_group_coordinator=None if coordinator is None else _log_to_domain(GROUPS_TOPIC, coordinator),
        gaps={**facts.gaps, **_missing_facts(facts)},
        **facts.model_dump(include=_UNCHANGED),
    )


def _missing_facts(facts: _Facts) -> dict[str, str]:
    """Return the gaps of a file that an older version of this tool wrote: facts that it did not derive."""
    missing = []
    if any(feature.default_level is None for feature in facts.features.values()):
        missing.append("feature_defaults")
    if facts.config_defaults is None:
        missing.append("config_defaults")
    return dict.fromkeys(missing, "An older version of this tool wrote the file of the release.")


_UNCHANGED = {
    "coordinator_class",
    "oldest_requests",
    "java_minimum",
    "has_current_metadata_version_metric",
    "has_snapshot_emitter_metrics",
    "logging",
    "lossy_downgrade_level",
}


def _log_to_domain(topic: str, log: _Log) -> CoordinatorLogFacts:
    families = log.model_dump()["group_families"]
    return CoordinatorLogFacts(
        topic=topic,
        records=tuple(map(_record_to_domain, log.records)),
        group_families=tuple(GroupFamilyFacts(**{**one, "founders": tuple(one["founders"])}) for one in families),
        **log.model_dump(exclude={"records", "group_families"}),
    )


def _record_to_domain(record: _Record) -> RecordTypeFacts:
    changed = {
        "reads": VersionRange(*record.reads),
        "writes": tuple(record.writes),
        "written_from": {
            version: FeatureLevel(feature=feature, level=level)
            for version, levels in record.written_from.items()
            for feature, level in levels.items()
        },
        "rules": tuple(FieldRule(**rule.model_dump()) for rule in record.rules),
    }
    return RecordTypeFacts(**{**record.model_dump(), **changed})
