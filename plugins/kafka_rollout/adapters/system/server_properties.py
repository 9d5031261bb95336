"""Changes of Java properties files that can be undone.

Removed lines stay in the file as comments; added lines are in one marked block at the end. Everything else is kept,
including comments and later edits of an operator: `restore_properties(set_properties(text)) == text`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kafka_rollout.adapters.system.files import read_regular
from kafka_rollout.domain.model.cluster.host_state import DirectoryFormat
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.internal_topics import METADATA_LOG

DEFAULTS = {"log.dir": "/tmp/kafka-logs"}  # noqa: S108
_OUT = "#kafka-rollout-out: "
_BEGIN = "# kafka-rollout: the following came with release "
_END = "# kafka-rollout: end"


def parse(text: str) -> dict[str, str]:
    """Return keys and values as java.util.Properties reads them."""
    return {key: value for _, key, value in _entries(text.splitlines()) if key is not None}


def log_directories(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of a node: log.dirs, and metadata.log.dir."""
    names = [config.get("log.dirs") or config.get("log.dir", ""), config.get("metadata.log.dir", "")]
    return tuple(dict.fromkeys(path.strip() for path in ",".join(names).split(",") if path.strip()))


def read_directory_id(directory: str | Path) -> str | None:
    """Return meta.properties of a directory on this machine; None if it cannot be read."""
    try:
        return read_regular(Path(directory) / "meta.properties").decode()
    except (OSError, UnicodeDecodeError, UserError):
        return None


def directory_formats(
    config: Mapping[str, str], read: Callable[[str], DirectoryFormat | None]
) -> dict[str, DirectoryFormat] | None:
    """Return path → format of each directory that a node with this configuration uses; None if one is not readable."""
    formats = {}
    for path in log_directories({**DEFAULTS, **config}):
        found = read(path)
        if found is None:
            return None
        formats[path] = found
    return formats


def local_format(directory: str | Path) -> DirectoryFormat:
    """Return the format of a directory on this machine."""
    path = Path(directory)
    try:
        return DirectoryFormat(
            meta=_content(path / "meta.properties"),
            bootstrap=_content(path / "bootstrap.checkpoint"),
            has_metadata_log=(path / METADATA_LOG).is_dir(),
        )
    except OSError as error:
        return DirectoryFormat(problem=str(error.strerror))


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def directory_ids(config: Mapping[str, str], read: Callable[[str], str | None] = read_directory_id) -> dict[str, str]:
    """Return directory.id → path of each directory of a node. `read`: meta.properties of a directory, None without one.

    Directories that cannot be read, and those of releases before KIP-858, are left out.
    """
    formatted = {path: parse(read(path) or "") for path in log_directories(config)}
    return {found["directory.id"]: path for path, found in formatted.items() if "directory.id" in found}


def to_text(lines: Mapping[str, str]) -> str:
    """Return a properties file with these lines."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in lines.items())


def set_properties(text: str, release: str, lines: Mapping[str, str | None]) -> str:
    """Return the text with these properties set (None: removed). Keys that already have the value are not changed."""
    base = restore_properties(text)
    current = parse(base)
    wanted = {key: value for key, value in lines.items() if current.get(key) != value}
    if not wanted:
        return base
    result: list[str] = []
    for raw, key, _ in _entries(base.splitlines()):
        result += [f"{_OUT}{line}" for line in raw] if key in wanted else raw
    added = [f"{_escape(key, key=True)}={_escape(value)}" for key, value in wanted.items() if value is not None]
    if added:
        result += [f"{_BEGIN}{release}", *added, _END]
    return "\n".join(result) + "\n"


def restore_properties(text: str) -> str:
    """Return the text before set_properties changed it."""
    result: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(_BEGIN):
            inside = True
        elif line == _END:
            inside = False
        elif not inside:
            result.append(line.removeprefix(_OUT))
    return "\n".join(result) + "\n"


def _entries(lines: list[str]) -> Iterator[tuple[list[str], str | None, str]]:
    """(physical lines, key, value) of each logical line; key None for comments and empty lines."""
    index = 0
    while index < len(lines):
        raw = [lines[index]]
        logical = lines[index].lstrip()
        index += 1
        if not logical or logical[0] in "#!":
            yield raw, None, ""
            continue
        while _continues(logical) and index < len(lines):
            raw.append(lines[index])
            logical = logical[:-1] + lines[index].lstrip()
            index += 1
        match = re.match(r"((?:\\.|[^\s=:\\])*)\s*[=:]?\s*(.*)", logical, re.DOTALL)
        if match is None:  # the expression matches every text; needed by the type checker
            continue
        yield raw, _unescape(match[1]), _unescape(match[2])


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    known = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else known.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text)


def _escape(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return re.sub(r"([\s=:#!])", r"\\\1", escaped) if key else re.sub(r"^( )", r"\\\1", escaped)
