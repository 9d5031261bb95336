"""A history and a lock for commands that change nothing: they are in the memory of the process and end with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.base.lease import ActingProcess, CallState, Lock
from kafka_rollout.gates.gate import BeforeStop
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import E, Event


@dataclass(slots=True)
class MemoryRunStore:
    """RunStore of one process. Nothing is written."""

    _plan: Plan | None = None
    _before: dict[tuple[str, int], BeforeStop] = field(default_factory=dict)
    _fingerprints: Mapping[int, str] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)
    _documents: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def save_plan(self, plan: Plan) -> None:
        self._plan = plan

    def load_plan(self) -> Plan:
        if self._plan is None:
            raise FatalError("This command has no plan yet.", remedy="Make the plan first.")
        return self._plan

    def save_before_stop(self, release_step: str, before: BeforeStop, *, replace: bool = False) -> None:
        if replace or (release_step, before.node_id) not in self._before:
            self._before[release_step, before.node_id] = before

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None:
        return self._before.get((release_step, node_id))

    def save_fingerprints(self, hashes: Mapping[int, str]) -> None:
        self._fingerprints = dict(hashes)

    def load_fingerprints(self) -> Mapping[int, str]:
        return self._fingerprints

    def record(self, event: Event) -> None:
        self._events.append(event)

    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    def events_of_other_runs(self, kind: type[E]) -> tuple[E, ...]:
        return ()

    def events_by_other_run(self, *kinds: type[Event]) -> Mapping[str, tuple[Event, ...] | None]:
        return {}

    def known_claims(self, nonces: Collection[str]) -> None:
        """This process has no database."""

    def attachment(self, name: str, kind: type | None = None) -> Any | None:
        return self._documents.get(name)

    def attach(self, name: str, data: Any) -> None:
        self._documents[name] = data

    def page(self, name: str) -> str | None:
        return self._documents.get(name)

    def attach_page(self, name: str, content: str) -> None:
        self._documents[name] = content

    def detach(self, name: str) -> None:
        self._documents.pop(name, None)

    def location(self, name: str) -> str:
        return f"memory: {name}"

    def write_report(self, html: str, report: Any) -> tuple[str, str]:
        _refuse("write a report")

    def private_path(self, name: str) -> Path:
        _refuse("write a file")


class NoLock:
    """ChangeLock of a process that changes nothing: every change is refused."""

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        _refuse("acquire the lock of a cluster")

    def is_fenced(self, cluster: str, holder: str) -> bool:
        return False

    def refuse_fenced(self, cluster: str, holder: str) -> None:
        """No run of it has a lock."""

    def admit(self, cluster: str, holder: str, by: str) -> None:
        """No run of it has a lock."""

    def acting(self, cluster: str, holder: str, what: str) -> AbstractContextManager[None]:
        _refuse(what)

    def check_acting(self, cluster: str) -> None:
        _refuse("change a cluster")

    def acting_process(self, cluster: str) -> ActingProcess:
        _refuse("change a cluster")

    def has_claimed(self, cluster: str, holder: str) -> bool:
        return False

    def renewing(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        return nullcontext()

    def release(self, cluster: str, holder: str) -> None:
        """Nothing is held."""

    def holder(self, cluster: str) -> Lock | None:
        return None

    def stop(self, cluster: str, holder: str, by: str) -> None:
        """No run of it has a lock."""

    def end_run(self, cluster: str, holder: str, why: str) -> None:
        """No run of it has a lock."""

    def calling(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        return nullcontext()

    def find_call(self, cluster: str, holder: str) -> CallState:
        return CallState.NONE

    def break_(self, cluster: str, by: str) -> Lock | None:
        return None


def _refuse(what: str) -> NoReturn:
    raise RefusedError(f"A check cannot {what}: it changes nothing.", remedy="Start a run for this.")
