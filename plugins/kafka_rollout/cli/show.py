"""Output of the command line: tables for terminals, JSON for programs."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import Finding, Severity, group_by_kind
from kafka_rollout.base.outside_text import escape_invisible, escape_json
from kafka_rollout.base.system.files import write_file
from kafka_rollout.base.tones import Tone
from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.gates.reasons import describe
from kafka_rollout.releases.facts import Release, VersionRange
from kafka_rollout.roll.walk import RollProgress


class SafeConsole(Console):
    """A console on which text from outside has no control: strings have visible characters and line breaks only.

    Text from outside goes through `as_text` as well, so that Rich takes no markup from it.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(_visible(line) for line in text.split("\n")), **options)


def _visible(line: str) -> str:
    return escape_invisible(line, limit=max(10 * len(line), 100))


# Results are written to standard output, progress and errors to standard error.
out = SafeConsole(highlight=False, emoji=False)
err = SafeConsole(stderr=True, highlight=False, emoji=False)

_COLOURS = {Severity.BLOCKER: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}


TONES = {Tone.GOOD: "green", Tone.NOW: "blue", Tone.FAIR: "yellow", Tone.BAD: "red", Tone.SOFT: "dim"}
"""Tone → style of a terminal."""

_CREDENTIALS: ContextVar[Path | None] = ContextVar("credentials", default=None)
# The commands that reach a cluster by themselves. To ask typer for them would import all modules.
WITH_CREDENTIALS = (
    "accept",
    "check",
    "downgrade",
    "features describe",
    "features set",
    "groups list",
    "groups watch",
    "inventory check",
    "inventory init",
    "inventory rights",
    "rehearse",
    "restart",
    "retry",
    "rollback",
    "scan",
    "traffic",
    "upgrade",
    "verify",
)
_COMMAND = re.compile(rf"\bkafka-rollout (?:{'|'.join(WITH_CREDENTIALS)})(?= --)(?! --command-config)")


def name_credentials(command_config: Path) -> None:
    """Let the commands that this call prints name its file with the credentials: they work as they are printed."""
    _CREDENTIALS.set(command_config)


def credentials() -> str:
    """Return the absolute path of the file with the credentials of this call; empty without one."""
    file = _CREDENTIALS.get()
    return "" if file is None else str(file.absolute())


def _with_credentials(text: str) -> str:
    if not (file := credentials()):
        return text
    return _COMMAND.sub(lambda found: f"{found[0]} --command-config {shlex.quote(file)}", text)


def as_text(value: object) -> str:
    """Return text from outside for Rich: one line, every character visible, without effect as markup."""
    shown = escape_invisible(_with_credentials(str(value)))
    # A backslash at the end would escape a tag after it.
    return escape(re.sub(r"\\+$", lambda run: "\\u005c" * len(run[0]), shown))


def plain(value: Any) -> Any:
    """Return a domain value in its JSON form: releases, ranges, days and paths as text, sets sorted."""
    if isinstance(value, Release | VersionRange | date | Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item) for item in value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


@dataclass(slots=True)
class JsonResult:
    """The JSON result of one call."""

    file: Path | None = None
    """None for standard output."""
    run: str = ""
    """The id of its run, once it is known."""
    is_written: bool = False


_RESULT: ContextVar[JsonResult] = ContextVar("result", default=JsonResult())  # noqa: B039 — for calls without --json


@contextmanager
def json_result(file: Path | None) -> Iterator[JsonResult]:
    """Let standard output have the JSON result and nothing else: all other text goes to standard error."""
    result = JsonResult(file=file)
    before = _RESULT.set(result)
    out.stderr = True
    try:
        yield result
    finally:
        out.stderr = False
        _RESULT.reset(before)


def name_run(run_id: str) -> None:
    """Let an error in JSON name the run."""
    _RESULT.get().run = run_id


def print_json(value: Any) -> None:
    """Print the JSON result, or write it to the file of --output."""
    print_json_text(escape_json(json.dumps(plain(value), indent=2, ensure_ascii=False)) + "\n")


def print_json_text(text: str) -> None:
    """The same for a result that is JSON already."""
    result = _RESULT.get()
    result.is_written = True
    if result.file is None:
        sys.stdout.write(text)
    else:
        write_file(result.file, text.encode())


def say(line: object, console: Console = out) -> None:
    """Print one line of text from outside."""
    console.print(as_text(line), soft_wrap=True)


def marked(mark: object, style: str, line: object) -> Text:
    """Return one line of text from outside after a coloured word; without a word, only the line."""
    return Text.from_markup(
        f"[{style}]{as_text(mark)}[/{style}] {as_text(line)}" if mark else as_text(line), emoji=False
    )


def say_marked(mark: object, style: str, line: object) -> None:
    """Print one line of text from outside after a coloured word."""
    out.print(marked(mark, style, line), soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Cells are text from outside; a cell that is a Rich `Text` keeps its markup, None shows as –."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else as_text("–" if cell is None else cell) for cell in row))
    out.print(table)


def print_body(text: str, console: Console = out) -> None:
    """Print Markdown. Text from outside in it is already escaped."""
    console.print(Markdown("\n".join(_visible(line) for line in text.split("\n"))))


def print_findings(findings: tuple[Finding, ...]) -> None:
    """Print findings of one kind as one entry."""
    for group in group_by_kind(findings):
        say_marked(group.severity.value, _COLOURS[group.severity], f"{group.code} {group.subjects}")
        say(f"  {group.sentence} {group.remedy}")


def print_check(check: GateCheck) -> None:
    for condition in check.conditions:
        mark = ("✓", "green") if condition.is_met else ("✗", "red")
        say_marked(*mark, f"{condition.name}: {describe(condition)}")


class ProgressLines:
    """RollProgress on standard error: one line per change, and one every 10 s without a change."""

    REPEAT_S = 10.0
    LONGEST = 300

    def __init__(self) -> None:
        self._last = ""
        self._said_at = 0.0

    def __call__(self, progress: RollProgress) -> None:
        left = "" if progress.remaining_s is None else f", about {duration(progress.remaining_s)} left"
        line = f"node {progress.k} of {progress.n}, {progress.node}: {progress.message}"
        self.say(line, f"[{duration(progress.elapsed_s)}{left}]")

    def on_check(self, seen: GateCheck, message: str) -> None:
        """Print one check of a gate; called by `wait_for_gate`."""
        self.say(f"gate {seen.gate}: {message}")

    def say(self, line: str, clock: str = "") -> None:
        # The numbers in the evidence change with every check. A line counts as new if the unmet conditions changed.
        subject = re.sub(r"\d+", "", line[:120])
        now = time.monotonic()
        if subject == self._last and now - self._said_at < self.REPEAT_S:
            return
        self._last, self._said_at = subject, now
        line = line if len(line) <= self.LONGEST else f"{line[: self.LONGEST]}…"
        say(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {line} {clock}".rstrip(), err)


class Silent:
    """No progress: the output of the command is for scripts."""

    def __call__(self, progress: RollProgress) -> None: ...

    def on_check(self, seen: GateCheck, message: str) -> None: ...

    def say(self, line: str) -> None: ...
