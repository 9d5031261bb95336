"""The release catalogue: releases/<release>.json, one file a release, written by `kafka-rollout-derive add`.

It is in two folders: include/, which is part of the project, and that of the releases added on this machine
(Settings.catalogue). A release in both is read from include/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.conditions import AdvisoryCondition, AnyCondition, UnobservableCondition
from kafka_rollout.releases.facts import (
    METADATA_VERSION,
    Advisory,
    Catalogue,
    CoordinatorLogFacts,
    FeatureFacts,
    FeatureLevel,
    FieldRule,
    Release,
    ReleaseFacts,
    Review,
    RuleKind,
    VendorRule,
    VersionRange,
)
from kafka_rollout.releases.start_scripts import StartScripts

INTOLERANT_REFERENCE = Release(3, 4, 0)
"""The newest release of the catalogue whose coordinators fail on unknown records."""

SCRIPTS = "start_scripts.json"
_JAVA = 8  # the oldest that a release needs
_REMEDY = "Restore it from the repository, or derive it again with `kafka-rollout-derive add RELEASE`."


_File = TypeVar("_File", bound=BaseModel)
_State = tuple[int, ...] | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Vendors(_Strict):
    rules: list[VendorRule]

    @field_validator("rules")
    @classmethod
    def _have_one_group(cls, rules: list[VendorRule]) -> list[VendorRule]:
        for rule in rules:
            if re.compile(rule.pattern).groups != 1:
                raise ValueError(f"the pattern of {rule.vendor} needs exactly one group")
        return rules


class ScriptsFile(_Strict):
    """`start_scripts.json`, written by `kafka-rollout-derive scripts`. The fields are those of StartScripts."""

    minor_releases: list[str]
    digests: list[str]


class _Advisories(_Strict):
    reviews: list[Review]
    advisories: list[Advisory]

    @field_validator("advisories")
    @classmethod
    def _are_complete(cls, advisories: list[Advisory]) -> list[Advisory]:
        for advisory in advisories:
            if not (advisory.affected and advisory.source):
                raise ValueError(f"{advisory.id} needs affected releases and a source")
            if advisory.severity == "blocker" and any(_is_unobservable(condition) for condition in advisory.when):
                raise ValueError(f"{advisory.id} is a blocker, so its conditions must be observable")
        return advisories


def _is_unobservable(condition: AdvisoryCondition) -> bool:
    if isinstance(condition, AnyCondition):
        return any(map(_is_unobservable, condition.of))
    return isinstance(condition, UnobservableCondition)


# In a dictionary, because pydantic takes no configuration for a dataclass itself.
_FACTS = TypeAdapter(dict[str, ReleaseFacts], config=ConfigDict(extra="forbid"))


def release_files(*folders: Path, of: str = "releases") -> dict[Release, Path]:
    """The files <release>.json in a subfolder of the catalogue's folders, oldest release first; the first folder wins.

    The files are not read.
    """
    files: dict[Release, Path] = {}
    for folder in folders:
        for path in (folder / of).glob("*.json"):
            try:
                files.setdefault(Release.parse(path.stem), path)
            except UserError:
                continue
    return dict(sorted(files.items()))


def get_catalogue(settings: Settings | None = None) -> Catalogue:
    return load_catalogue(*(settings or Settings.from_environment()).catalogue_folders)


def list_releases(settings: Settings | None = None) -> list[str]:
    """Return the names of all supported releases, oldest first. Reads no catalogue file."""
    return [str(release) for release in release_files(*(settings or Settings.from_environment()).catalogue_folders)]


def load_catalogue(*folders: Path) -> Catalogue:
    """Every release of the folders; raises UserError with the name of an invalid file."""
    files = release_files(*folders)
    if not files:
        raise UserError(f"The catalogue {folders[0] / 'releases'} contains no release.", remedy=_REMEDY)
    advisories = tuple(_read_all(folders, "advisories.json", _Advisories))
    scripts = tuple(_read_all(folders, SCRIPTS, ScriptsFile))
    return Catalogue(
        {release: load_facts(path) for release, path in files.items()},
        tuple(rule for file in _read_all(folders, "vendors.json", _Vendors) for rule in file.rules),
        tuple(one for file in advisories for one in file.advisories),
        tuple(one for file in advisories for one in file.reviews),
        StartScripts(
            frozenset(one for file in scripts for one in file.digests),
            frozenset(one for file in scripts for one in file.minor_releases),
        ),
    )


def _read_all(folders: Iterable[Path], name: str, form: type[_File]) -> Iterator[_File]:
    """Yield a file of each folder that has it. Raises UserError with the name of an invalid file."""
    for path in (folder / name for folder in folders):
        if path.exists():
            yield _rules_of(path, form, _state_of(path))


@lru_cache(maxsize=32)
def _rules_of(path: Path, form: type[_File], _state: _State) -> _File:
    try:
        return form.model_validate_json(path.read_text())
    except ValidationError as error:
        raise UserError(f"The rules {path} are invalid: {_first(error, 0)}.", remedy=_REMEDY) from None


def load_facts(path: Path) -> ReleaseFacts:
    """One release's file, checked. A process reads it again only if it was replaced or changed."""
    return _facts_of(path, _state_of(path))


def _state_of(path: Path) -> _State:
    """Return what is another for another content; None for a file that cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=128)
def _facts_of(path: Path, _state: _State) -> ReleaseFacts:
    try:
        facts = _FACTS.validate_python({"": _fields_of(json.loads(path.read_text()))})[""]
    except OSError as error:
        raise UserError(f"The catalogue file {path} cannot be read: {error.strerror}.", remedy=_REMEDY) from None
    except ValidationError as error:
        raise _invalid(path, _first(error, 1)) from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise _invalid(path, f"the file: {error}") from None
    if problem := next(_problems(facts), None):
        raise _invalid(path, problem)
    if str(facts.release) != path.stem:
        raise UserError(f"The catalogue file {path} contains release {facts.release}.", remedy=_REMEDY)
    return facts


def _first(error: ValidationError, above: int) -> str:
    """The first problem. `above`: the number of names in its place that are not of the file."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'][above:])) or 'the file'}: {first['msg']}"


def _invalid(path: Path, problem: str) -> UserError:
    return UserError(f"The catalogue file {path} is invalid: {problem}.", remedy=_REMEDY)


def _problems(facts: ReleaseFacts) -> Iterator[str]:
    if METADATA_VERSION not in facts.features:
        yield f"features: {METADATA_VERSION} is missing"
    ranges = {f"features.{name}.supported": feature.supported for name, feature in facts.features.items()}
    for topic, log in facts.coordinator_logs.items():
        ranges |= {f"coordinator_logs.{topic}.{record.name}.reads": record.reads for record in log.records}
    yield from (f"{place}: {one.min} is above {one.max}" for place, one in ranges.items() if one.min > one.max)
    if (facts.java_minimum or _JAVA) < _JAVA:
        yield f"java_minimum: {facts.java_minimum} is below {_JAVA}"


def _fields_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of ReleaseFacts for a file, which can be of an older version of this tool."""
    features, logs = document.get("features", {}), document.get("coordinator_logs", {})
    older = {"feature_defaults": any("default_level" not in one for one in features.values())}
    older |= {"config_defaults": "config_defaults" not in document}
    gaps = {name: "An older version of this tool wrote the file of the release." for name, is_ in older.items() if is_}
    new = document.get("new_group_coordinator")
    fields = {
        **{"config_defaults": {}, **document},
        "features": {
            name: {"default_level": 0, **one, "name": name, "supported": _range(one.get("supported"))}
            for name, one in features.items()
        },
        "coordinator_logs": {topic: _log_fields(topic, log) for topic, log in logs.items()},
        "new_group_coordinator": None if new is None else _log_fields(GROUPS_TOPIC, new),
        "gaps": {**document.get("gaps", {}), **gaps},
    }
    del fields["derived_from"]
    return fields


def _log_fields(topic: str, log: dict[str, Any]) -> dict[str, Any]:
    records = [
        {
            **one,
            "reads": _range(one.get("reads")),
            "written_from": {
                version: {"feature": feature, "level": level}
                for version, levels in one.get("written_from", {}).items()
                for feature, level in levels.items()
            },
        }
        for one in log.get("records", ())
    ]
    return {**log, "topic": topic, "records": records}


def _range(pair: Any) -> Any:
    return {"min": pair[0], "max": pair[1]} if isinstance(pair, list) and len(pair) == 2 else pair


_KEYS: Mapping[type, str] = {FeatureFacts: "name", CoordinatorLogFacts: "topic"}


def file_form(value: Any) -> Any:
    """Return facts as the JSON of their file, without contents that a field has by default.

    A range is a pair, and the name of a feature or a log is only the key of its object.
    """
    match value:
        case VersionRange():
            return [value.min, value.max]
        case FeatureLevel():
            return {value.feature: value.level}
        case Mapping():
            return {str(key): file_form(one) for key, one in sorted(value.items())}
        case tuple():
            return [file_form(one) for one in value]
        case frozenset():
            return sorted(value)
        case Release() | date():
            return str(value)
    if not is_dataclass(value):
        return value
    if isinstance(value, FieldRule) and value.kind is RuleKind.BETWEEN:
        return asdict(value)
    left_out = _KEYS.get(type(value))
    form = {}
    for one in fields(value):
        content, has_default = getattr(value, one.name), (one.default, one.default_factory) != (MISSING, MISSING)
        if one.name != left_out and (content or not has_default):
            form[one.name] = file_form(content)
    return form
