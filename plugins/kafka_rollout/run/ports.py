"""What is stored: the history of a run and the locks of the clusters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from kafka_rollout.base.lease import Lock
from kafka_rollout.gates.check import BeforeStop
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import Event


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
        """Return a document as JSON data (`traffic/verdict.json`) or as a `kind`; None if there is none.

        Raises FatalError if the document was changed after the run wrote it."""
        ...

    def attach(self, name: str, data: Any) -> None:
        """Store a value as a JSON document (`metadata/losses.json`), completely or not at all."""
        ...

    def page(self, name: str) -> str | None:
        """A document of the run as text; None when there is none. Raises FatalError if it was changed since."""
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
        """What is wrong, as a sentence about the first altered, removed or reordered event, or the first changed
        document; empty where nothing is."""
        ...

    def write_report(self, html: str, report: Any) -> tuple[str, str]:
        """Keep report.html and report.json; where they are, for messages."""
        ...

    def private_path(self, name: str) -> Path:
        """A path in the private folder of this machine, mode 0700; the file is to be written with mode 0600."""
        ...


class ChangeLock(Protocol):
    """One change at a time per cluster. The lease of a killed run ends at `expires_at`."""

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        """Acquire or renew the lease; `shorten` lets a renewal end it earlier. Raises LockHeldError with the holder,
        its purpose and the end, also if the cluster `cluster_id` is locked under another name."""
        ...

    def acting(self, cluster: str, holder: str, what: str) -> AbstractContextManager[None]:
        """Let one process at a time act on the cluster, also of one run (a task that runs twice). Renews the lease
        until the end. Raises TransientError while another process acts, RefusedError if `holder` has lost the lease."""
        ...

    def check_acting(self, cluster: str) -> None:
        """Raise RefusedError unless this process acts on the cluster with the newest token and a lease that is valid
        for longer than CHANGE_WITHIN_S (base/lease.py)."""
        ...

    def renewing(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        """Renew the lease of `holder` in the background during a long operation, if it holds it."""
        ...

    def release(self, cluster: str, holder: str) -> None: ...
    def holder(self, cluster: str) -> Lock | None: ...
    def break_(self, cluster: str, by: str) -> Lock | None:
        """Take the lock away from its holder; `by`, an approver, is recorded. Raises RefusedError while the holder
        acts."""
        ...
