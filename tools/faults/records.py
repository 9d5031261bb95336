"""The record of a campaign: one JSON object per line, appended when it is known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import Lock
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignLine:
    """How a campaign was started. `commit`: of the project; `left_out`: kinds that could not be injected, and why."""

    at: float
    seed: int
    runtime: str
    commit: str
    density: float
    kinds: tuple[str, ...]
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultLine:
    """One planned fault. `reached`: it was injected. `step`: the newest event of the run when it began. `outcome`: what
    ended it, or why it was not injected."""

    at: float
    place: str
    kind: str
    target: str
    moment: str
    delay_s: float
    step: str
    lasted_s: float
    reached: bool
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One scenario. `outcome`: completed, rolled-back or failed. `calls`: commands until then. Records are counted from
    the start of the round. `waited_s`: the longest time that a record waited for its acknowledgement."""

    at: float
    place: str
    layout: str
    procedure: str
    releases: str
    run_id: str
    outcome: str
    seconds: float
    calls: int
    faults: int
    acknowledged: int
    lost: int
    doubled: int
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLine:
    """`what`: lost, doubled, contents, configuration, stuck, unsafe-stop, not-whole or broken (the campaign itself)."""

    at: float
    place: str
    what: str
    sentence: str
    repeat: str


Line = CampaignLine | FaultLine | RunLine | FailureLine
_KINDS = {kind.__name__.removesuffix("Line").lower(): kind for kind in (CampaignLine, FaultLine, RunLine, FailureLine)}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class Record:
    """Appends lines to a file; threads may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self.lines: list[Line] = []
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, line: Line) -> None:
        with self._lock:
            self.lines.append(line)
            with self.path.open("a") as file:
                file.write(json.dumps({"line": _NAMES[type(line)], **asdict(line)}, ensure_ascii=False) + "\n")

    def of(self, kind: type[Line], place: str = "") -> list[Any]:
        with self._lock:
            return [
                line for line in self.lines if isinstance(line, kind) and getattr(line, "place", "").startswith(place)
            ]


def read_lines(paths: Iterable[Path]) -> Iterator[Line]:
    """The lines of several campaigns. A line that was cut off by a kill is left out."""
    for path in paths:
        for text in path.read_text().splitlines():
            try:
                data = json.loads(text)
            except ValueError:
                continue
            kind: Any = _KINDS[data.pop("line")]
            known = {field.name for field in fields(kind)}
            values = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
            yield kind(**{name: value for name, value in values.items() if name in known})
