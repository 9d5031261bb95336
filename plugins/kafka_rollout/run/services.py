"""What a run of one process needs in addition to the cluster: answers of approvers, scans, background processes, the
report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafka_rollout.run.events import ApprovalOf, Decision, Responder


class RunServices(Protocol):
    """A repeated call of `monitor_groups`, `start_traffic` or `stop` does nothing more."""

    def scan(self, file: str) -> None:
        """Scan the coordinator logs and keep the result as `file` in the run's folder.

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
    """A decision request. `body`: Markdown.

    Airflow shows also the `subject`, offers the `options`, and lets only `users` answer; empty: everyone who can change
    the DAG. A terminal asks for yes or no. `is_pause`: the plan pauses here.
    """

    what: ApprovalOf
    body: str
    subject: str = ""
    options: tuple[Decision, ...] = (Decision.APPROVED, Decision.REJECTED)
    users: tuple[str, ...] = ()
    is_pause: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`by`: the approver, in Airflow the user's id. `responder`: who answered, and where."""

    by: str
    decision: Decision
    reason: str
    responder: Responder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A terminal that waits for an answer. `approver`: who is asked; `at`: user and host."""

    approver: str
    at: Responder


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
