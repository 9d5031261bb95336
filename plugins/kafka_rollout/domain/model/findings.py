"""Findings and verdicts: a refusal is data, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    BLOCKER = "blocker"  # the next step may not begin; no approval changes that
    WARNING = "warning"  # a person should see it before approving
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact that blocks or warns.

    `code` is stable, in KEBAB-CASE capitals such as `RF-ONE-TOPIC`; `subject` names the object (`topic orders`,
    `node 3`); `sentence` says what was seen; `remedy` what to do about it.
    """

    code: str
    severity: Severity
    subject: str
    sentence: str
    remedy: str

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two findings of different looks the same one (numbers in the sentence may differ)."""
        return (self.code, self.subject)

    def __str__(self) -> str:
        return f"[{self.severity}] {self.code} ({self.subject}): {self.sentence} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All findings of one question."""

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
        """Blockers that were not among the findings that a person approved: they void the approval."""
        seen = {finding.identity for finding in approved}
        return tuple(f for f in self.blockers if f.identity not in seen)
