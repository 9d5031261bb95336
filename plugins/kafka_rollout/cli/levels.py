"""Levels and releases as `kafka-features.sh` accepts them: by number or name, `feature=level`, two numbers."""

from __future__ import annotations

import re

from kafka_rollout.base.errors import UserError
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release


def read_level(text: str) -> int:
    """Return the metadata.version of `25`, `4.0-IV3` or `4.0`. Raises UserError for another text."""
    if re.fullmatch(r"[1-9]\d{0,4}", text):
        return int(text)
    level = _level_of_name(get_catalogue(), text)
    if level is None:
        raise UserError(
            f"'{text}' is not a metadata.version.", remedy="Use a number or a name, for example 25 or 4.0-IV3."
        )
    return level


def read_feature(text: str) -> str:
    """Return `feature:level` lists with the level of metadata.version as a number, if it has a name."""
    return ",".join(_with_number(part.strip()) for part in text.split(","))


def read_release(text: str) -> Release:
    """Return the release of `4.0.1`, or for `4.0` the newest of this minor line in the catalogue."""
    return _newest_of(get_catalogue(), text) or Release.parse(text)


def _with_number(text: str) -> str:
    name, sign, level = re.fullmatch(r"(.*?)([:=]?)([^:=]*)", text).groups()  # type: ignore[union-attr]
    if not sign or name != METADATA_VERSION or re.fullmatch(r"-?\d+", level):
        return text
    return f"{name}:{read_level(level)}"


def _level_of_name(catalogue: Catalogue, text: str) -> int | None:
    names = {one.name.upper(): one.level for facts in catalogue.releases.values() for one in facts.metadata_versions}
    if (level := names.get(text.upper())) is not None:
        return level
    release = _newest_of(catalogue, text)
    return None if release is None else catalogue.get(release).features[METADATA_VERSION].latest_production


def _newest_of(catalogue: Catalogue, text: str) -> Release | None:
    """Return the newest release of a minor line such as `4.0`."""
    return next((one for one in reversed(list(catalogue)) if f"{one.major}.{one.minor}" == text), None)
