"""Port for the answers of approvers: a terminal, or named on the command line. (Airflow answers its own tasks.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafka_rollout.domain.run.events import ApprovalOf
from kafka_rollout.domain.run.responder import Responder


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`body` is Markdown."""

    what: ApprovalOf
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`decision` is `approved` or `rejected`; `responder`: who answered, and where."""

    by: str
    decision: str
    reason: str
    responder: Responder | None = None


class Answers(Protocol):
    """Who decides in a run of one process."""

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
