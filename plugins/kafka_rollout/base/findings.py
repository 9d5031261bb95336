"""Findings and verdicts. A refusal is data, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.outside_text import escape_invisible


class Severity(StrEnum):
    BLOCKER = "blocker"  # the next step cannot begin; an approval does not change that
    WARNING = "warning"  # an approver must read it before the approval
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact that blocks or warns.

    `code`: stable, in KEBAB-CASE capitals such as `RF-ONE-TOPIC`. `subject`: the object (`topic orders`, `node 3`).
    `sentence`: the measured fact. `remedy`: the action to take.
    """

    code: str
    severity: Severity
    subject: str
    sentence: str
    remedy: str

    @property
    def identity(self) -> tuple[str, str]:
        """Key that identifies the same finding in different checks; numbers in the sentence can differ."""
        return (self.code, self.subject)

    def __str__(self) -> str:
        """One line without invisible characters, for a log or a terminal."""
        line = f"[{self.severity}] {self.code} ({self.subject}): {self.sentence} {self.remedy}"
        return escape_invisible(line.rstrip())


def blocker(code: str, subject: str, sentence: str, remedy: str) -> Finding:
    return Finding(code=code, severity=Severity.BLOCKER, subject=subject, sentence=sentence, remedy=remedy)


def warning(code: str, subject: str, sentence: str, remedy: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, subject=subject, sentence=sentence, remedy=remedy)


def info(code: str, subject: str, sentence: str, remedy: str = "") -> Finding:
    return Finding(code=code, severity=Severity.INFO, subject=subject, sentence=sentence, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All findings for one question."""

    question: str
    findings: tuple[Finding, ...] = ()

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.BLOCKER)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.WARNING)

    @property
    def ok(self) -> bool:
        return not self.blockers

    def new_blockers_since(self, approved: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return the blockers that are not among the approved findings. Such blockers invalidate the approval."""
        seen = {finding.identity for finding in approved}
        return tuple(f for f in self.blockers if f.identity not in seen)
