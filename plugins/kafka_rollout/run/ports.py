"""What a run needs in addition to the cluster: its history, the locks, answers of approvers and services."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kafka_rollout.base.lease import ActingProcess, CallState, Lock
from kafka_rollout.gates.gate import BeforeStop
from kafka_rollout.model.plan import Plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Decision, E, Event, Responder
from kafka_rollout.run.traffic import TrafficVerdict


class RunQueries(Protocol):
    """What is stored of one run: plan, events, states of nodes before their stops, documents."""

    @property
    def number(self) -> int:
        """What the run is called: from 1, in each cluster. Its id is for Airflow and for programs."""
        ...

    def load_plan(self) -> Plan: ...
    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None: ...
    def load_fingerprints(self) -> Mapping[int, str]: ...
    def events(self) -> tuple[Event, ...]:
        """All events, oldest first. One of a newer version is `Unknown`."""
        ...

    def events_of_other_runs(self, kind: type[E]) -> tuple[E, ...]:
        """The events of one kind in all other runs of the Kafka cluster, by the time of each event."""
        ...

    def events_by_other_run(self, *kinds: type[Event]) -> Mapping[str, tuple[Event, ...] | None]:
        """Number of the run → the events of these kinds, oldest first, of all other runs of the Kafka cluster, with its
        name then if that differs. None for a history that lacks an event, or has a damaged one."""
        ...

    def known_claims(self, nonces: Collection[str]) -> frozenset[str] | None:
        """Those of the nonces of claims that a run of this database has, or that an approver has taken over. None
        without a database."""
        ...

    def attachment(self, name: str, kind: type | None = None) -> Any | None:
        """Return a document as JSON data (`traffic/verdict.json`) or as a `kind`; None if there is none.

        Raises FatalError if the document was changed after the run wrote it."""
        ...

    def page(self, name: str) -> str | None:
        """A document of the run as text; None when there is none. Raises FatalError if it was changed since."""
        ...

    def location(self, name: str) -> str:
        """Where a document is, as a path or a URL for messages."""
        ...


class RunStore(RunQueries, Protocol):
    """The history of one run, to read and to write."""

    def save_plan(self, plan: Plan) -> None: ...
    def save_before_stop(self, release_step: str, before: BeforeStop, *, replace: bool = False) -> None:
        """Keep the state of a node. A second call for the same node and release step keeps the first one, unless
        `replace`."""
        ...

    def save_fingerprints(self, hashes: Mapping[int, str]) -> None:
        """Node id → hash of the configuration that was evaluated for the plan."""
        ...

    def record(self, event: Event) -> None:
        """Append one event; an event whose `at` is 0 gets the present time."""
        ...

    def attach(self, name: str, data: Any) -> None:
        """Store a value as a JSON document (`metadata/losses.json`), completely or not at all."""
        ...

    def attach_page(self, name: str, content: str) -> None:
        """Keep a document as text, whole or not at all."""
        ...

    def detach(self, name: str) -> None:
        """Remove a document; none is no error."""
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
        its purpose and the end, also if the cluster `cluster_id` is locked under another name; LockBrokenError if an
        approver broke the lock and the call of this process does not come after it."""
        ...

    def is_fenced(self, cluster: str, holder: str) -> bool:
        """Whether `acquire` raises LockBrokenError in this process."""
        ...

    def refuse_fenced(self, cluster: str, holder: str) -> None:
        """Raise LockBrokenError then, and acquire nothing: after its last change a run holds no lock."""
        ...

    def admit(self, cluster: str, holder: str, by: str) -> None:
        """Let all calls of a run acquire the lease again, after an approver broke its lock; `by` is recorded."""
        ...

    def acting(self, cluster: str, holder: str, what: str) -> AbstractContextManager[None]:
        """Let one process at a time act on the cluster, also of one run (a task that runs twice). Renews the lease
        until the end. Raises TransientError while another process acts, RefusedError if `holder` has lost the lease."""
        ...

    def check_acting(self, cluster: str) -> None:
        """Raise RefusedError unless this process acts on the cluster with the newest token and a lease that is valid
        for longer than CHANGE_WITHIN_S (base/time_limits.py)."""
        ...

    def acting_process(self, cluster: str) -> ActingProcess:
        """Return what this process leaves on the hosts of nodes while it acts; the first call stores the nonce. Raises
        RefusedError unless it acts."""
        ...

    def has_claimed(self, cluster: str, holder: str) -> bool:
        """Whether a process of `holder` can have left a claim on a host."""
        ...

    def renewing(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        """Renew the lease of `holder` in the background during a long operation, if it holds it."""
        ...

    def release(self, cluster: str, holder: str) -> None: ...
    def holder(self, cluster: str) -> Lock | None: ...
    def break_(self, cluster: str, by: str) -> Lock | None:
        """Take the lock away from its holder, whose calls until now cannot acquire it again. `by`, an approver, is
        recorded. Raises RefusedError while the holder acts."""
        ...

    def stop(self, cluster: str, holder: str, by: str) -> None:
        """The same for a run that an operator stops while it waits for an answer, also if it does not hold the lock."""
        ...

    def end_run(self, cluster: str, holder: str, why: str) -> None:
        """The same at once for a run that has ended: `why` is a sentence up to the name of the run."""
        ...

    def calling(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        """Show that this process carries out a call of the run, until the end of the block or of the process."""
        ...

    def find_call(self, cluster: str, holder: str) -> CallState:
        """The newest call of the run by `calling`."""
        ...


class RunTraffic(Protocol):
    def check(self) -> TrafficVerdict | None:
        """Compare what the test traffic of the run was acknowledged until now, while it goes on; None if the run never
        had any. Raises TransientError if there is no result."""
        ...


class RunServices(Protocol):
    """A repeated call of `monitor_groups`, `start_traffic` or `stop` does nothing more."""

    def scan(self, file: str, releases: Sequence[Release]) -> None:
        """Scan the coordinator logs and keep the result as `file` in the run's folder.

        `releases`: on which nodes start in this run.

        Raises TransientError or FatalError if the scan failed.
        """
        ...

    def monitor_groups(self) -> None:
        """Watch the cluster's groups until `stop`."""
        ...

    def start_traffic(self) -> None:
        """Produce and consume test records until `stop`."""
        ...

    def stop(self) -> None:
        """End both. Raises FatalError if test records were lost."""
        ...

    def report(self, *, dry_run: bool) -> None:
        """Write the run's report and show where it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A decision request.

    Airflow shows also the `subject`, offers the `options`, and lets only `users` answer; empty: everyone who can change
    the DAG. A terminal asks for yes or no.
    """

    what: ApprovalOf
    body: str
    """Markdown."""
    subject: str = ""
    options: tuple[Decision, ...] = (Decision.APPROVED, Decision.REJECTED)
    users: tuple[str, ...] = ()
    is_pause: bool = False
    """The plan pauses here."""
    hidden: Mapping[str, str] = field(default_factory=dict)
    """What can hide a blocker of the plan to approve, as `Plan.hidden`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    by: str
    """The approver, in Airflow the user's id."""
    decision: Decision
    reason: str
    responder: Responder | None = None
    """Who answered, and where."""
    request: str = ""
    """Name of the request in Airflow; it has the digest of the text."""
    accepted: tuple[str, ...] = ()
    """Of `Question.hidden`, what options named instead of a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A terminal that waits for an answer."""

    approver: str
    """Who is asked."""
    at: Responder
    """User and host."""


class Answers(Protocol):
    """Who decides in a run of one process."""

    @property
    def terminal(self) -> Terminal | None:
        """The terminal at which `ask` waits; None if it answers at once."""
        ...

    @property
    def present(self) -> bool:
        """Whether an approver can answer a question that comes up now."""
        ...

    def ask(self, question: Question) -> Answer | None:
        """Show the question and return the answer; None if no approver is named, so an earlier approval is
        needed.

        Raises RefusedError for an approver that the inventory does not name, UserError if the answer cannot be given.
        """
        ...

    def show(self, body: str) -> None:
        """Show Markdown that needs no answer."""
        ...
