"""Changes of Java properties files that can be undone to the byte.

Removed lines stay in the file as comments; added lines are in one marked block at the end. Everything else is kept,
including comments, line ends and later edits of an operator: `restore_properties(set_properties(content)) == content`.

The files are ISO-8859-1, as java.util.Properties reads them: every byte is a character, and only \\n, \\r\\n and \\r
end a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.outside_text import MOST_INT32, parse_number
from kafka_rollout.base.system.files import read_regular, reading
from kafka_rollout.model.configs import is_reference
from kafka_rollout.model.host_state import DirectoryFormat, DirectoryIdentity
from kafka_rollout.model.log_directories import DEFAULTS, DIRECTORY_KEYS, log_directories, metadata_directory

_CODEC = "latin-1"
_OUT = "#kafka-rollout-out: "
_BEGIN = "# kafka-rollout: the following was written for release "
_LINE_ENDS = " (after added line ends: {})"  # end of the first line of a block that needed some before it
_ADDED = re.compile(re.escape(_LINE_ENDS).replace(r"\{\}", "([12])") + "$")
_END = "# kafka-rollout: end"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BLANK = " \t\f"
_PAIR, _HALF = re.compile("[\ud800-\udbff][\udc00-\udfff]"), re.compile("[\ud800-\udfff]")
_ENTRY = re.compile(rf"((?:\\.|[^{_BLANK}=:\\])*)[{_BLANK}]*[=:]?[{_BLANK}]*(.*)", re.DOTALL)


def parse(content: bytes) -> dict[str, str]:
    """Return keys and values as java.util.Properties reads them. Raises UserError for a file that it refuses."""
    return {key: value for _, key, value in _entries(_lines(content)) if key is not None}


def read_properties(file: Path | None) -> Mapping[str, str]:
    """Read a node's server.properties; empty without a file. Raises UserError if the file cannot be read."""
    if file is None:
        return {}
    with reading(file):
        return parse(read_regular(file))


def read_directory_id(directory: str | Path) -> bytes | None:
    """Return meta.properties of a directory on this machine; None if it cannot be read."""
    try:
        return read_regular(Path(directory) / "meta.properties")
    except (OSError, UserError):
        return None


def node_id_of(meta: Mapping[str, str]) -> int | None:
    """Return the node id in meta.properties; None without one.

    A cluster that was migrated from ZooKeeper keeps version 0, with broker.id, for ever (MetaPropertiesVersion.V0,
    MetaPropertiesEnsemble.Copier).
    """
    key = "broker.id" if meta.get("version", "").strip() == "0" else "node.id"
    return parse_number(meta.get(key, ""), MOST_INT32)


def directory_formats(
    config: Mapping[str, str], read: Callable[[str], DirectoryFormat]
) -> dict[str, DirectoryFormat] | None:
    """Return path → format of each directory that a node with this configuration uses.

    None if a config provider has a path.
    """
    if any(is_reference(config.get(key, "")) for key in DIRECTORY_KEYS):
        return None
    known = {**DEFAULTS, **config}
    of_metadata = metadata_directory(known)
    return {path: _with_identity(path, read(path), of_metadata) for path in log_directories(known)}


def _with_identity(path: str, found: DirectoryFormat, of_metadata: str | None) -> DirectoryFormat:
    try:
        meta = parse(found.meta or b"")
    except UserError:  # the classes of the release refuse it
        meta = {}
    if not meta:
        return found
    identity = DirectoryIdentity(
        path=path,
        cluster_id=meta.get("cluster.id", ""),
        directory_id=meta.get("directory.id", ""),
        is_of_metadata=path == of_metadata,
    )
    return replace(found, identity=identity)


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


def directory_ids(config: Mapping[str, str], read: Callable[[str], bytes | None] = read_directory_id) -> dict[str, str]:
    """Return directory.id → path of each directory of a node. `read`: meta.properties of a directory, None without one.

    Directories that cannot be read, and those of releases before KIP-858, are left out.
    """
    formatted = {path: parse(read(path) or b"") for path in log_directories(config)}
    return {found["directory.id"]: path for path, found in formatted.items() if "directory.id" in found}


def to_content(lines: Mapping[str, str]) -> bytes:
    """Return a properties file with these lines."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in lines.items()).encode(_CODEC)


def set_properties(content: bytes, release: str, lines: Mapping[str, str | None]) -> bytes:
    """Return the content with these properties set (None: removed). A key that has the value already is not changed.

    What an earlier call has set or removed stays, in one block with the new lines.
    """
    base = restore_properties(content)
    current, now = parse(base), parse(content)
    earlier = {key: now.get(key) for key in {**current, **now} if key and now.get(key) != current.get(key)}
    lines = dict(sorted({**earlier, **lines}.items()))
    wanted = {key: value for key, value in lines.items() if current.get(key) != value}
    if not wanted:
        return base
    result: list[str] = []
    is_open = False  # the last line continues, so that a line after it would be a part of its value
    for raw, key, _ in _entries(_lines(base)):
        is_open = key is not None and key not in wanted and _continues(_text(raw[-1]))
        result += [f"{_OUT}{line}" for line in raw] if key in wanted else raw
    added = [f"{_escape(key, key=True)}={_escape(value)}" for key, value in wanted.items() if value is not None]
    if added:
        line_end = next((end for end in map(_line_end, reversed(result)) if end), "\n")
        missing = int(bool(result) and not _line_end(result[-1])) + int(is_open)
        first = f"{_BEGIN}{release}{_LINE_ENDS.format(missing) if missing else ''}"
        result += [line_end * missing, *(f"{line}{line_end}" for line in (first, *added, _END))]
    return "".join(result).encode(_CODEC)


def restore_properties(content: bytes) -> bytes:
    """Return the content before set_properties changed it. A block whose last line was removed is kept."""
    result: list[str] = []
    block: list[str] = []
    added = 0  # line ends before a block after which nothing follows
    is_open = False  # a line that was taken out continues: it was the last one of the file

    def keep(lines: list[str]) -> None:
        nonlocal is_open
        if is_open and lines and not lines[0].startswith(_OUT):
            result.append(_line_end(result[-1]) or "\n")  # so that a line after it is not a part of its value
        result.extend(line.removeprefix(_OUT) for line in lines)
        is_open = bool(lines) and lines[-1].startswith(_OUT) and _continues(_text(lines[-1]))

    for line in _lines(content):
        text = _text(line)
        if text.startswith(_BEGIN):
            if block:
                keep(block)
            block = [line]
        elif block and text == _END:
            found = _ADDED.search(_text(block[0]))
            block, added = [], int(found[1]) if found else 0
        elif block:
            block.append(line)
        else:
            keep([line])
            added = 0
    if block:
        keep(block)
    else:
        result = _without_line_ends(result, added)
    return "".join(result).encode(_CODEC)


def _without_line_ends(lines: list[str], number: int) -> list[str]:
    kept = list(lines)
    for _ in range(number):
        if kept:
            kept[-1] = _text(kept[-1])
            kept = kept if kept[-1] else kept[:-1]
    return kept


def _lines(content: bytes) -> list[str]:
    """The lines with their ends."""
    return _LINE.findall(content.decode(_CODEC))


def _text(line: str) -> str:
    return line.rstrip("\r\n")


def _line_end(line: str) -> str:
    return line[len(_text(line)) :]


def _entries(lines: list[str]) -> Iterator[tuple[list[str], str | None, str]]:
    """(physical lines, key, value) of each logical line; key None for comments and empty lines."""
    index = 0
    while index < len(lines):
        raw = [lines[index]]
        logical = _text(lines[index]).lstrip(_BLANK)
        index += 1
        if not logical or logical[0] in "#!":
            yield raw, None, ""
            continue
        while _continues(logical):
            logical = logical[:-1]
            if not logical or index == len(lines):  # without a character, the next line begins a logical line
                break
            raw.append(lines[index])
            logical += _text(lines[index]).lstrip(_BLANK)
            index += 1
        # Java reads an empty name in a backslash that ends a file, also before \n or \r.
        if not logical and (index < len(lines) or raw[-1].endswith("\r\n")):
            yield raw, None, ""
            continue
        match = _ENTRY.fullmatch(logical)
        if match is None:  # the expression matches every text; needed by the type checker
            continue
        yield raw, _unescape(match[1]), _unescape(match[2])


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    known = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        if match[0] == "\\u":
            raise UserError(
                "A properties file has \\u without four hexadecimal digits. Java does not read such a file.",
                remedy="Correct the line: in Java properties, a backslash is written as two.",
            )
        return chr(int(match[1], 16)) if match[1] else known.get(match[2], match[2])

    return _with_pairs(re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL))


def _with_pairs(text: str) -> str:
    """Join the halves of characters above U+FFFF, each of which has an escape of its own in a properties file.

    Java keeps a half that is alone, but no other text can: not the arguments of a process, JSON or a page.
    """
    joined = _PAIR.sub(lambda match: match[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be"), text)
    if half := _HALF.search(joined):
        raise UserError(
            f"A properties file has \\u{ord(half[0]):04x}, which is half of a character, without its other half.",
            remedy="Correct the line: write both halves, for example \\ud83d\\ude00, or remove this one.",
        )
    return joined


def _escape(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\")
    for character, code in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"), ("\f", "\\f")):
        escaped = escaped.replace(character, code)
    escaped = re.sub(r"[^\x00-\xff]", _unicode_escape, escaped)
    return re.sub(r"([ =:#!])", r"\\\1", escaped) if key else re.sub(r"^( )", r"\\\1", escaped)


def _unicode_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
