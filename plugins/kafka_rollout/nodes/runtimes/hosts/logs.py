"""Logs of nodes on hosts: the journal of the unit, or the log file of the inventory.

In the journal, the process and the time of an entry are journald's: no client of Kafka writes them. In a file, the
process begins at the byte where the file ended before the start.
"""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.node_log import LogPart
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import (
    MISSING,
    HostCommands,
    read_number,
    rights_of,
    service_of,
    transfer_s,
    unusable,
)
from kafka_rollout.nodes.runtimes.hosts.rights import HostRight
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.log_files import (
    BYTES_BEFORE,
    MOST_BYTES,
    NO_FILE,
    ROTATED,
    TOO_LONG,
    end_of,
    parse_place,
)

if TYPE_CHECKING:
    from kafka_rollout.nodes.runtimes.hosts.unit_state import UnitState

_NO_JOURNAL = ("not seeing messages from other users", "insufficient permissions")
_NO_ENTRIES = "-- No entries --"
_FAILED = "kafka-rollout: not read, exit code"
_FAILED_LINE = re.compile(rf"^{_FAILED} (\d+)\s*\Z", re.MULTILINE)
_ENTRIES = ("--output=json", "--output-fields=MESSAGE", "--all")
_CURSORS = ("--output=json", "--output-fields=_PID")
_MOST_CURSORS = 4096
_MOST_ENTRIES = 2 * MOST_BYTES  # an entry has some 300 bytes beside its text
_CURSOR = re.compile(r"-- cursor: (\S+)")
# SD_MESSAGE_JOURNAL_DROPPED: journald has not kept entries of a unit that wrote too many (RateLimitBurst).
_DROPPED = "MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e"
_SUPPRESSED = "lacks lines: journald has suppressed messages of the unit (RateLimitBurst)"


def read_journal(commands: HostCommands, node: NodeSpec, lines: int) -> tuple[str, ...]:
    """Return the last lines of the unit. Raises RefusedError or TransientError if the journal cannot be read."""
    return tuple(_journal(commands, node, "--lines", str(lines)).out.splitlines()[-lines:])


def read_journal_on(commands: HostCommands, node: NodeSpec, unit: UnitState, after: str) -> LogPart:
    """Return what the unit's newest process has written since its start, or since `after`, a cursor of the journal."""
    pid, since = unit.last_pid or 0, _since(unit)
    if not since:
        return LogPart(pid=pid, started_at=None, problem="has no known start of its process")
    begin = [*(["--after-cursor", after] if after else since), f"_PID={pid}"]
    done = _journal(commands, node, "--show-cursor", *begin, most=MOST_BYTES)
    is_cut, problem = len(done.content) >= MOST_BYTES, ""
    if is_cut:  # the cursor is printed at the end, so entries with their cursors are read instead
        done = _journal(commands, node, *_ENTRIES, *begin, most=_MOST_ENTRIES)
        lines, position = _entries(done.content)
        is_cut = len(done.content) >= _MOST_ENTRIES
        if is_cut and not position:
            texts_left_out = _journal(commands, node, *_CURSORS, *begin, most=_MOST_CURSORS).content
            position, problem = _entries(texts_left_out.partition(b"\n")[0] + b"\n")[1], TOO_LONG
        elif not lines:
            problem = ROTATED  # journald removed them in between
    else:
        lines = [line for line in done.content.decode("utf-8", errors="replace").split("\n") if line != _NO_ENTRIES]
        lines = lines[:-1] if lines and lines[-1] == "" else lines
        cursor = _CURSOR.fullmatch(lines[-1]) if lines else None
        lines, position = (lines[:-1], cursor[1]) if cursor else (lines, "")
    unit_name = service_of(node).unit
    words = ["journalctl", "--quiet", *since, "--output=cat", "--no-pager", _DROPPED]
    dropped = commands.run(node, words).out.splitlines()
    return LogPart(
        pid=pid,
        started_at=unit.started_at,
        lines=tuple(lines),
        position=position or after,
        is_first=not after,
        is_cut=is_cut,
        problem=_SUPPRESSED if any(line.endswith(f" from {unit_name}") for line in dropped) else problem,
    )


def read_log_tail(commands: HostCommands, node: NodeSpec, right: HostRight, lines: int) -> tuple[str, ...]:
    """Return the last lines of the log file; none without one. Raises RefusedError if it is no file."""
    if _status(commands, node) is None:
        return ()
    return tuple(commands.act(node, right, lines=lines).out.splitlines()[-lines:])


def _entries(content: bytes) -> tuple[list[str], str]:
    """Return the lines of whole entries (journalctl --output=json), and the cursor of the last one."""
    lines, cursor = list[str](), ""
    for line in content.split(b"\n")[:-1]:
        if line == _NO_ENTRIES.encode():
            break
        entry = parse_json(line)
        text = entry.get("MESSAGE") or ""
        # journalctl writes a text that is not UTF-8 as a list of bytes, and repeated fields as a list of texts.
        if isinstance(text, list):
            is_bytes = all(isinstance(one, int) for one in text)
            text = bytes(text).decode("utf-8", errors="replace") if is_bytes else "\n".join(map(str, text))
        lines += text.split("\n")
        cursor = entry["__CURSOR"]
    return lines, cursor


def read_own_lines(
    commands: HostCommands, node: NodeSpec, unit: UnitState, start: StartRecord | None, lines: int
) -> tuple[str, ...]:
    """Return the last lines of the unit's newest process; empty if they are not known.

    A process that ended before it wrote into its log file can have printed the reason into the journal.
    """
    place = None if start is None else parse_place(start.log_place)
    right = rights_of(node).read_log_on
    if place is not None and right is not None and _status(commands, node) is not None:
        done = _read_log(commands, node, right, place.offset, f"tail --lines {lines}")
        if done is not None and (found := done.out.splitlines()):
            return tuple(found)
    if unit.last_pid is None or not _since(unit):
        return ()
    with suppress(TransientError, RefusedError):
        done = _journal(commands, node, *_since(unit), "--lines", str(lines), f"_PID={unit.last_pid}")
        return tuple(line for line in done.out.splitlines() if line != _NO_ENTRIES)
    return ()


def end_of_log(commands: HostCommands, node: NodeSpec) -> str:
    """Return the place where the log file ends, before a start; empty if the log is in the journal."""
    right = rights_of(node).read_log_on
    if right is None:
        return ""
    found = _status(commands, node)
    if found is None:
        return str(NO_FILE)
    inode, size = found
    done = _read_log(commands, node, right, max(0, size - BYTES_BEFORE), "cat")
    return "" if done is None else str(end_of(inode, size, done.content[: min(size, BYTES_BEFORE)]))


def read_file_on(commands: HostCommands, node: NodeSpec, offset: int) -> tuple[int, bytes] | None:
    """Return the inode of the log file and its content from a byte on; None without a file, or while it is rotated."""
    right = rights_of(node).read_log_on
    before = None if right is None else _status(commands, node)
    if right is None or before is None:
        return None
    done = _read_log(commands, node, right, offset, f"head --bytes {BYTES_BEFORE + MOST_BYTES}")
    after = _status(commands, node)
    return None if done is None or after is None or before[0] != after[0] else (before[0], done.content)


def _read_log(commands: HostCommands, node: NodeSpec, right: HostRight, offset: int, limit: str) -> Done | None:
    """Read the log file from a byte on, through a command that limits it; None without a file."""
    done = _piped(commands, node, right.command(offset=offset + 1), limit, BYTES_BEFORE + MOST_BYTES)
    commands.refuse_missing_right(node, right, done)
    return None if MISSING in done.err else commands.expect(node, right, done)


def _piped(commands: HostCommands, node: NodeSpec, words: Sequence[str], limit: str, most: int) -> Done:
    """Run a command through one that limits its output to `most` bytes.

    The status of a pipe is that of its last command, so the shell prints the status of the first one.
    """
    line = f'{{ {shlex.join(words)} || echo "{_FAILED} $?" >&2; }} | {limit}'
    done = commands.run(node, line, within_s=transfer_s(most))
    failed = _FAILED_LINE.search(done.err)
    if failed and len(done.content) < most:  # with all of them, `limit` has ended the pipe
        return replace(done, code=int(failed[1]), err=done.err[: failed.start()])
    return done


def _status(commands: HostCommands, node: NodeSpec) -> tuple[int, int] | None:
    """Return inode and size of the log file; None without one."""
    right = rights_of(node).see_log
    done = None if right is None else commands.sudo(node, right)
    if right is None or done is None or MISSING in done.err:
        return None
    inode, _, rest = commands.expect(node, right, done).out.strip().partition("/")
    size, _, mode = rest.partition("/")
    if not stat.S_ISREG(int(mode, 16) if re.fullmatch("[0-9a-f]+", mode) else 0):
        service = service_of(node)
        raise RefusedError(
            f"{service.log_file} on host {service.host} is not a file, but a FIFO or a device, for example.",
            remedy="Set log_file in the inventory to a file that the node writes, or remove it to read the journal.",
        )
    return read_number(inode, "the inode of the log file"), read_number(size, "the size of the log file")


def _since(unit: UnitState) -> list[str]:
    return [] if unit.started_at is None else ["--since", f"@{int(unit.started_at)}"]


def _journal(commands: HostCommands, node: NodeSpec, *words: str, most: int = 0) -> Done:
    """Read the unit's journal. `most`: bytes of the output, of which the rest is not read; 0: all of it."""
    service = service_of(node)
    # Not --quiet: it hides the hint that this user cannot read the journal.
    line = ["journalctl", "--unit", service.unit, "--output=cat", "--no-pager", *words]
    done = (
        _piped(commands, node, line, f"head --bytes {most}", most)
        if most
        else commands.run(node, line, within_s=transfer_s(0))
    )
    if done.code != 0 or any(text in done.err for text in _NO_JOURNAL):
        raise unusable(
            done,
            f"The journal of unit {service.unit} on host {service.host} cannot be read: {done.problem}.",
            remedy="Add the SSH user to the group systemd-journal, or set log_file in the inventory.",
        )
    return done
