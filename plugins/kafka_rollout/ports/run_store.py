"""Port for the history of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kafka_rollout.domain.gates.check import BeforeStop
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.run.events import Event


class RunStore(Protocol):
    """The history of one run: plan, events, states of nodes before their stops, report."""

    def save_plan(self, plan: Plan) -> None: ...
    def load_plan(self) -> Plan: ...
    def save_before_stop(self, release_step: str, before: BeforeStop, *, replace: bool = False) -> None:
        """Keep the state of a node. A second call for the same node and release step keeps the first one, unless
        `replace`."""
        ...

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None: ...
    def save_fingerprints(self, hashes: Mapping[int, str]) -> None:
        """Node id → hash of the configuration that was evaluated for the plan."""
        ...

    def load_fingerprints(self) -> Mapping[int, str]: ...
    def record(self, event: Event) -> None:
        """Append one event; an event whose `at` is 0 gets the present time."""
        ...

    def events(self) -> tuple[Event, ...]:
        """All events, oldest first. One of a newer version is `Unknown`."""
        ...

    def attachment(self, name: str, kind: type | None = None) -> Any | None:
        """Return a document as JSON data (`ledger/verdict.json`) or as a `kind`; None if there is none."""
        ...

    def attach(self, name: str, data: Any) -> None:
        """Store a value as a JSON document (`metadata/losses.json`), completely or not at all."""
        ...

    def page(self, name: str) -> str | None:
        """A document of the run as text; None when there is none."""
        ...

    def attach_page(self, name: str, content: str) -> None:
        """Keep a document as text, whole or not at all."""
        ...

    def detach(self, name: str) -> None:
        """Remove a document; none is no error."""
        ...

    def location(self, name: str) -> str:
        """Where a document is, as a path or a URL for messages."""
        ...

    def verify_chain(self) -> str:
        """What is wrong with the events, as a sentence about the first altered, removed or reordered one; empty where
        nothing is."""
        ...

    def write_report(self, html: str, data: Mapping[str, Any]) -> tuple[str, str]:
        """Keep report.html and report.json; where they are, for messages."""
        ...

    def private_path(self, name: str) -> Path:
        """A path in the private folder of this machine, mode 0700; the file is to be written with mode 0600."""
        ...
