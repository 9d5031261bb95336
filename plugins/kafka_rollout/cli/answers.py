"""Approvals on the command line: named by options, confirmed at the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.shell_user import shell_responder
from kafka_rollout.domain.model.errors import RefusedError, UserError
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.run.events import APPROVED, REJECTED
from kafka_rollout.ports.answers import Answer, Question
from kafka_rollout.steps.common.approval import refuse_stranger


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalAnswers:
    """Shows what is decided and asks the named approver; `confirms` False takes the options as the answer."""

    cluster: ClusterSpec
    name: str | None
    reason: str | None
    confirms: bool

    @property
    def present(self) -> bool:
        return self.confirms and sys.stdin.isatty()

    def ask(self, question: Question) -> Answer | None:
        show.print_body(question.body)
        if self.name is None:
            return None
        refuse_stranger(self.cluster, self.name)
        if self.confirms:
            if not sys.stdin.isatty():
                raise UserError(
                    f"There is no terminal to confirm the {question.what.value}.",
                    remedy="Run the command in a terminal, or confirm with --yes.",
                )
            if not typer.confirm(f"{self.name}, do you approve the {question.what.value}?", default=False, err=True):
                return Answer(
                    by=self.name,
                    decision=REJECTED,
                    reason=self.reason or "declined at the terminal",
                    responder=shell_responder(),
                )
        return Answer(by=self.name, decision=APPROVED, reason=self.reason or "", responder=shell_responder())

    def show(self, body: str) -> None:
        show.print_body(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptAnswers:
    """Of the command `features`: its standard output is for scripts, so the question goes to the standard error."""

    cluster: ClusterSpec
    name: str | None
    reason: str | None
    confirms: bool

    @property
    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Answer | None:
        if self.name is None:
            return None
        refuse_stranger(self.cluster, self.name)
        if self.confirms:
            show.print_body(question.body, show.err)
            if not (sys.stdin.isatty() and typer.confirm(f"{self.name}, do you approve?", default=False, err=True)):
                raise RefusedError("The change was not confirmed at the terminal.", remedy="Confirm with --yes.")
        return Answer(by=self.name, decision=APPROVED, reason=self.reason or "", responder=shell_responder())

    def show(self, body: str) -> None:
        """Nothing: the results of a dry run are the lines of the features."""
