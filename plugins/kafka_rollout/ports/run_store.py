"""Port for the history of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kafka_rollout.domain.gates.check import BeforeStop, GateCheck
from kafka_rollout.domain.model.plan import Plan

TORN_LINE = "torn-line"  # kind of the event that stands for a line cut off by a kill of its writer


class RunStore(Protocol):
    """One run's record: plan, events, what was seen before stops, report. Survives the death of whoever writes."""

    def save_plan(self, plan: Plan) -> None: ...
    def load_plan(self) -> Plan: ...
    def save_before_stop(self, release_step: str, before: BeforeStop, *, anew: bool = False) -> None:
        """Kept once per node and release step: a second save for the same pair keeps the first, unless it is made
        `anew`."""
        ...

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None: ...
    def record(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append one event (`at` is added); kinds: observed, plan, approval, gate, stopped, started, finalized, …"""
        ...

    def record_check(self, look: GateCheck) -> None: ...
    def events(self) -> tuple[Mapping[str, Any], ...]: ...
    def attachment(self, name: str) -> Any | None:
        """JSON that another part left in the run's folder (`ledger/verdict.json`); None when there is none."""
        ...

    def attach(self, name: str, data: Any) -> None:
        """Leave JSON in the run's folder (`metadata/losses.json`), whole or not at all."""
        ...

    def write_report(self, html: str, data: Mapping[str, Any]) -> tuple[Path, Path]:
        """(report.html, report.json), written whole or not at all."""
        ...

    def private_path(self, name: str) -> Path:
        """A path outside the report store, its folder 0700; the file is to be written with mode 0600."""
        ...
