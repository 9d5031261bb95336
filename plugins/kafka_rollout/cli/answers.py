"""Approvals on the command line: named by options, confirmed at the terminal."""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase

import typer

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.wording import few
from kafka_rollout.cli import show
from kafka_rollout.control.approval import refuse_answer
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.events import ApprovalOf, Channel, Decision, Responder
from kafka_rollout.run.ports import Answer, Question, Terminal


def shell_responder() -> Responder:
    """Return the operating system's user of this process and the host name; no environment variable is read.

    The channel proves no more than that: a name given with `--as` is claimed by this user.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without an entry
        user = str(os.getuid())
    return Responder(channel=Channel.SHELL, user=user, host=socket.gethostname())


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalAnswers:
    """Shows a decision request and asks the named approver."""

    cluster: ClusterSpec
    name: str | None
    reason: str | None
    confirms: bool
    """False: the options are the answer."""
    accepts: tuple[str, ...] = ()
    """Names and patterns of what can hide a blocker and is accepted unread, as `Plan.hidden`."""

    @property
    def present(self) -> bool:
        return self.confirms and sys.stdin.isatty()

    @property
    def terminal(self) -> Terminal | None:
        waits = self.name is not None and self.confirms and sys.stdin.isatty()
        return Terminal(approver=str(self.name), at=shell_responder()) if waits else None

    def ask(self, question: Question) -> Answer | None:
        show.print_body(question.body)
        if self.name is None:
            return None
        refuse_answer(self.cluster, self.name, shell_responder())
        accepted = self._accept_unread(question)
        if self.confirms:
            if not sys.stdin.isatty():
                raise UserError(
                    f"There is no terminal to confirm the approval of the {question.what.noun()}.",
                    remedy="Run the command in a terminal, or confirm with --yes.",
                )
            if not typer.confirm(f"{self.name}, do you approve the {question.what.noun()}?", default=False, err=True):
                return _answer(self.name, Decision.REJECTED, self.reason or "declined at the terminal")
        return _answer(self.name, Decision.APPROVED, self.reason, accepted)

    def _accept_unread(self, question: Question) -> tuple[str, ...]:
        """Return what the options accept instead of a reader.

        Raises RefusedError for an answer that options gave before the text existed: what is listed must be read.
        """
        if self.confirms:
            return ()
        _refuse_unread(question)
        left = {name: why for name, why in question.hidden.items() if not self._accepts(name)}
        if left:
            for name, why in left.items():
                show.say(f"{name}: {why}", show.err)
            options = " ".join(f"--accept-unknown {shlex.quote(name)}" for name in left)
            raise RefusedError(
                f"--yes accepts nothing unread that can hide a blocker: {few(left)}. See the list above.",
                remedy="Remove the cause and start a new run, or repeat the command in a terminal without --yes. If "
                f"you know these facts from elsewhere, add: {options}",
            )
        for name, why in question.hidden.items():
            show.say(f"Accepted as unknown by {self.name}: {name}: {why}", show.err)
        return tuple(question.hidden)

    def _accepts(self, name: str) -> bool:
        return any(name == one or fnmatchcase(name, one) for one in self.accepts)

    def show(self, body: str) -> None:
        show.print_body(body)


class ScriptAnswers(TerminalAnswers):
    """Answers of the command `features`. Its standard output is for scripts: the request goes to standard error."""

    __slots__ = ()

    @property
    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Answer | None:
        if self.name is None:
            return None
        refuse_answer(self.cluster, self.name, shell_responder())
        if question.what is ApprovalOf.DIFFERENCES and not self.confirms:
            show.print_body(question.body, show.err)
        accepted = self._accept_unread(question)
        if self.confirms:
            show.print_body(question.body, show.err)
            if not (sys.stdin.isatty() and typer.confirm(f"{self.name}, do you approve?", default=False, err=True)):
                raise RefusedError(
                    "The change was not confirmed at the terminal.", remedy="Confirm in a terminal, or with --yes."
                )
        return _answer(self.name, Decision.APPROVED, self.reason, accepted)

    def show(self, body: str) -> None:
        """Print nothing: a dry run prints the result of each feature."""


def _refuse_unread(question: Question) -> None:
    if question.what is ApprovalOf.DIFFERENCES:
        raise RefusedError(
            "The cluster differs from its state before the run (see the list above), and --yes accepts no difference.",
            remedy="Correct the cause and continue the run. To accept them, continue it in a terminal, with --as and "
            "--reason and without --yes.",
        )
    if question.what is ApprovalOf.NODE_LOG:
        raise RefusedError(
            "The doubts about logs (see the list above) are those of now, and --yes accepts none unread.",
            remedy="Read the logs, then repeat the command in a terminal without --yes.",
        )


def _answer(name: str, decision: Decision, reason: str | None, accepted: tuple[str, ...] = ()) -> Answer:
    return Answer(by=name, decision=decision, reason=reason or "", responder=shell_responder(), accepted=accepted)
