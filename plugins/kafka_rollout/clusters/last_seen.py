"""What a cluster ran when it was last observed: a small file that the trigger forms show.

Airflow parses the DAGs every half minute, so that must not open the database of the runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import from_json, parse_json, to_json
from kafka_rollout.base.system.files import read_if_exists, safe_name, write_whole
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.releases.facts import Release

_LEVEL = re.compile(r"[0-9A-Za-z.-]{0,20}")
_LAST = 1e11  # epoch seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """The releases of a cluster at a time."""

    at: float
    """Epoch seconds."""
    releases: Mapping[Release, int]
    """Release → number of nodes."""
    unknown: int
    """Number of nodes whose release was not seen."""
    metadata_version: str
    """Name of the level, such as 3.9-IV0; empty if it is unknown."""

    def __post_init__(self) -> None:
        if not (self.releases and 0 <= self.at < _LAST and _LEVEL.fullmatch(self.metadata_version)):
            raise ValueError("it is not as it was written")

    @property
    def text(self) -> str:
        """The sentence of a form. It has a date and no age: a form that changes is a new version of its DAG."""
        seen = {str(release): number for release, number in sorted(self.releases.items(), reverse=True)}
        seen |= {"unknown": self.unknown} if self.unknown else {}
        named = ", ".join(seen if len(seen) == 1 else (f"{one} ({count(seen[one], 'node')})" for one in seen))
        level = f", metadata.version {self.metadata_version}" if self.metadata_version else ""
        return f"Running when last seen, on {iso(self.at)[:10]} (UTC): {named}{level}."


def read_last_seen(cluster: str, settings: Settings) -> LastSeen | None:
    """Return what was last seen; None if nothing was, or if the file is damaged or cannot be read."""
    with suppress(OSError, UserError, ValueError):
        content = read_if_exists(_file(cluster, settings))
        return None if content is None else from_json(LastSeen, parse_json(content))
    return None


def last_seen_text(cluster: str, settings: Settings) -> str:
    """Return the sentence of a form about the running release."""
    seen = read_last_seen(cluster, settings)
    return "The running release has not been seen yet." if seen is None else seen.text


def write_last_seen(cluster: str, seen: LastSeen, settings: Settings) -> None:
    """Keep what was seen, unless the file has something newer. A form without it is no reason to fail."""
    before = read_last_seen(cluster, settings)
    if before is None or before.at <= seen.at:
        with suppress(OSError):
            write_whole(_file(cluster, settings), json.dumps(to_json(seen)).encode(), mode=0o644)


def _file(cluster: str, settings: Settings) -> Path:
    return settings.shared_folder / "last-seen" / f"{safe_name(cluster)}.json"
