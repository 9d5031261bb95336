"""Findings of one kind as one entry: their number, the first of them, and one remedy that is never cut."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_rollout.base.findings import Code, Finding, Severity

_SHOWN = 5
_NOUNS = frozenset({"broker", "controller", "feature", "group", "host", "node", "partition", "release", "topic"})
_COMMAND = re.compile(r"\bRun: |`")
_WORD = re.compile(r"\w(?:[\w.\-]*\w)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings with the same code, severity and action, in their order; at least one.

    `same_remedy`: the remedies are equal. Else they differ only in numbers and in the names of the subjects.
    """

    findings: tuple[Finding, ...]
    same_remedy: bool

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def code(self) -> Code:
        return self.first.code

    @property
    def severity(self) -> Severity:
        return self.first.severity

    @property
    def subjects(self) -> str:
        """The subject, or the number of subjects with the first of them: `300 topics (a, b, c, d, e and 295 more)`."""
        subjects = list(dict.fromkeys(finding.subject for finding in self.findings))
        if len(subjects) == 1:
            return subjects[0]
        kinds = {subject.partition(" ")[0] for subject in subjects}
        kind = f"{kinds.pop()} " if len(kinds) == 1 and kinds <= _NOUNS else ""
        shown = ", ".join(subject.removeprefix(kind) for subject in subjects[:_SHOWN])
        left = f" and {len(subjects) - _SHOWN:,} more" if len(subjects) > _SHOWN else ""
        noun = f"{kind.strip()}s" if kind.strip() else "objects"
        return f"{len(subjects):,} {noun} ({shown}{left})"

    @property
    def sentence(self) -> str:
        """The sentence of the only finding, or of the first one as an example."""
        return self.first.sentence if len(self.findings) == 1 else f"For example: {self.first.sentence}"

    @property
    def remedy(self) -> str:
        """The remedy of all findings, or of the first one as an example. It is complete."""
        remedy = self.first.remedy
        return remedy if self.same_remedy or not remedy else f"For {self.first.subject}, and the others alike: {remedy}"


def group_by_kind(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Return the findings in groups, the most severe first, else in the order of their first findings.

    Findings are alike if their remedies ask for the same action, apart from numbers and the words of their subjects.
    """
    alike: dict[tuple[Severity, Code, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.severity, finding.code, _action(finding)), []).append(finding)
    groups = [
        FindingGroup(findings=tuple(some), same_remedy=len({one.remedy for one in some}) == 1)
        for some in alike.values()
    ]
    return tuple(sorted(groups, key=lambda group: list(Severity).index(group.severity)))


def _action(finding: Finding) -> str:
    """Return the remedy without the numbers and the words of the subject's name; a remedy with a command as it is."""
    if _COMMAND.search(finding.remedy):
        return finding.remedy
    name = set(_WORD.findall(finding.subject.partition(" ")[2]))
    return _WORD.sub(lambda word: "#" if word[0] in name or word[0].isdigit() else word[0], finding.remedy)
