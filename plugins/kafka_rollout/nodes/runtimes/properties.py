"""Configuration, snapshots and recorded starts of a node, for every runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.json_forms import from_json, parse_json, to_json
from kafka_rollout.formats.files import server_properties
from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

T = TypeVar("T")
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenConfiguration:
    """The newest change of server.properties with a change of release, as the runtime records it."""

    left: Release
    """Releases; the copy of the file has the name of the release that was left."""
    installed: Release
    """Releases; the copy of the file has the name of the release that was left."""
    written: str
    """SHA-256 of the file after the change, and of the copy."""
    copied: str
    """SHA-256 of the file after the change, and of the copy."""

    def dump(self) -> str:
        return json.dumps(to_json(self)) + "\n"


def load_record(kind: type[T], text: str | bytes) -> T | None:
    """Read a record of a runtime; None for a text that is not one, or that a loss of power has torn."""
    try:
        return from_json(kind, parse_json(text))
    except ValueError:
        return None


def configuration_for(
    content: bytes,
    release: Release,
    lines: Mapping[str, str | None],
    *,
    written: WrittenConfiguration | None,
    read_copy: Callable[[], bytes | None],
) -> bytes:
    """Return the content of server.properties for a release: of the present file, with these lines (None: removed).

    A plan proves just that, so no other line changes, whoever has written it. For the release that was left, it is the
    copy of that time to the byte, if that is the same. `read_copy`: the copy of the file of `release`, None without
    one. Raises FatalError if the lines cannot be set.
    """
    planned = {key: value for key, value in {**_named(content), **lines}.items() if value is not None}
    if _named(content) == planned:
        return content
    if written is not None and written.left == release and sha256(content).hexdigest() == written.written:
        copy = read_copy()
        if copy is not None and sha256(copy).hexdigest() == written.copied and _named(copy) == planned:
            return copy
    after = server_properties.set_properties(content, str(release), lines)
    if _named(after) != planned:
        raise FatalError(
            f"The lines of {release} cannot be set in the configuration without a change of other lines.",
            remedy="Write them into the file by hand, then repeat the step.",
        )
    return after


def _named(content: bytes) -> dict[str, str]:
    """Return keys and values, without the empty key that Java reads in a backslash at the end of a file."""
    return {key: value for key, value in server_properties.parse(content).items() if key}


def parse_starts(content: bytes) -> tuple[StartRecord, ...]:
    """Return the recorded starts. A line that was torn by a loss of power is left out."""
    found = (load_record(StartRecord, line) for line in content.splitlines())
    return tuple(record for record in found if record is not None)


def add_start(content: bytes, start: StartRecord) -> bytes | None:
    """Return the record with one more start; None if it has it. A torn line before it is ended, and not continued."""
    if any(one.is_of(start.pid, start.started_at) for one in parse_starts(content)):
        return None
    line = json.dumps({name: value for name, value in to_json(start).items() if value != ""})
    return content + (b"\n" if content and not content.endswith(b"\n") else b"") + line.encode() + b"\n"


def find_start(starts: Sequence[StartRecord], pid: int | None, started_at: float | None) -> StartRecord | None:
    """Return the record of a process's start; without a process that of the last start. None if there is none."""
    if pid is None:
        return starts[-1] if starts else None
    return next((one for one in reversed(starts) if one.is_of(pid, started_at)), None)


def checkpoint_files(node: NodeSpec, files: Iterable[tuple[str, int, float]]) -> tuple[CheckpointFile, ...]:
    """Return the snapshots among the files (path, bytes, epoch seconds) of a metadata log, the oldest first, without
    the one of the formatting (end offset 0)."""
    found = [
        CheckpointFile(
            node_id=node.node_id,
            path=path,
            end_offset=int(match[1]),
            epoch=int(match[2]),
            size=size,
            modified_at=modified_at,
        )
        for path, size, modified_at in files
        if (match := _CHECKPOINT.fullmatch(path.rpartition("/")[2])) is not None and int(match[1]) > 0
    ]
    return tuple(sorted(found, key=lambda checkpoint: (checkpoint.end_offset, checkpoint.epoch)))
