"""The record of a run as files under $KAFKA_ROLLOUT_HOME/runs/<cluster>/<run> (port RunStore).

| file                      | what                                                              |
|---------------------------|-------------------------------------------------------------------|
| plan.json                 | the frozen plan                                                   |
| events.jsonl              | everything that happened, one event a line                        |
| before-stop/<release step>/<n>.json| what node n was in before its stop                                |
| report.html, report.json  | the report                                                        |

Snapshots and other things that hold credentials go to $KAFKA_ROLLOUT_HOME/private/<cluster>/<run>, mode 0700.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from kafka_rollout.adapters.store.event_log import EventLog
from kafka_rollout.adapters.system.files import original_name, safe_name, write_whole
from kafka_rollout.domain.gates.check import BeforeStop, GateCheck
from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.domain.model.plan import Plan

_PLAN = TypeAdapter(Plan)
_BEFORE_STOP = TypeAdapter(BeforeStop)


class FileRunStore:
    """One run's record. `folder` is made by the first write; other parts of a run keep their files under it."""

    def __init__(self, home: Path, cluster: str, run_id: str, *, clock: Callable[[], float] = time.time) -> None:
        self.run_id = run_id
        self.cluster = cluster
        self.folder = home / "runs" / safe_name(cluster) / safe_name(run_id)
        self._private = home / "private" / safe_name(cluster) / safe_name(run_id)
        self._home = home
        self._events = EventLog(self.folder, clock=clock)

    def save_plan(self, plan: Plan) -> None:
        write_whole(self.folder / "plan.json", _PLAN.dump_json(plan, indent=1))

    def load_plan(self) -> Plan:
        """Raises UserError when the run has none, FatalError when it cannot be read."""
        path = self.folder / "plan.json"
        try:
            return _PLAN.validate_json(path.read_bytes())
        except FileNotFoundError:
            raise UserError(
                f"Run {self.run_id} of cluster {self.cluster} has no plan.", remedy="Plan first, in the same run."
            ) from None
        except ValidationError:
            raise FatalError(
                f"The plan of run {self.run_id} in {path} is damaged.", remedy="Start a new run; it observes anew."
            ) from None

    def save_before_stop(self, release_step: str, before: BeforeStop, *, anew: bool = False) -> None:
        write_whole(
            self._before_stop(release_step, before.node_id), _BEFORE_STOP.dump_json(before), keep_first=not anew
        )

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None:
        path = self._before_stop(release_step, node_id)
        try:
            return _BEFORE_STOP.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise FatalError(
                f"What node {node_id} was in before its stop, in {path}, is damaged.",
                remedy="Compare the node's partitions by hand before going on.",
            ) from None

    def _before_stop(self, release_step: str, node_id: int) -> Path:
        return self.folder / "before-stop" / safe_name(release_step) / f"{node_id}.json"

    def record(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append one event; `at` is now unless `data` has its own."""
        self._events.record(kind, data)

    def record_check(self, look: GateCheck) -> None:
        self.record("gate", {**to_jsonable_python(look), "holds": look.holds, "waits_for": look.waits_for})

    def events(self) -> tuple[Mapping[str, Any], ...]:
        """All events, oldest first. A line torn by a kill comes as an event of kind `torn-line` with its number."""
        return self._events.events()

    def attachment(self, name: str) -> Any | None:
        """JSON that another part left below the run's folder (`ledger/verdict.json`); None while it is not whole."""
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def attach(self, name: str, data: Any) -> None:
        write_whole(self.folder / name, json.dumps(to_jsonable_python(data), ensure_ascii=False).encode())

    def write_report(self, html: str, data: Mapping[str, Any]) -> tuple[Path, Path]:
        page, report = self.folder / "report.html", self.folder / "report.json"
        write_whole(report, json.dumps(to_jsonable_python(data), indent=1, ensure_ascii=False).encode())
        write_whole(page, html.encode())
        return page, report

    def private_path(self, name: str) -> Path:
        for folder in (self._home / "private", self._private.parent, self._private):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        return self._private / safe_name(name)


def list_runs(home: Path, cluster: str) -> tuple[str, ...]:
    """Ids of the cluster's runs, the one written to last first. What has no events is no run (a ledger of its own)."""
    folder = home / "runs" / safe_name(cluster)
    if not folder.is_dir():
        return ()
    runs = (run for run in folder.iterdir() if (run / "events.jsonl").exists())
    newest_first = sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)
    return tuple(original_name(run.name) for run in newest_first)
