"""The result of `kafka-rollout check` as typed values: each check with its result, the totals and one last sentence.

The JSON document has the same fields (`document`). Its format is FORMAT. Two documents are compared (`find_worse`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_rollout.base.errors import result_code
from kafka_rollout.base.findings import (
    Check,
    Checked,
    Finding,
    FindingGroup,
    Need,
    OfSomeNodes,
    Severity,
    group_by_kind,
)
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.wording import count, few
from kafka_rollout.run.events import Observed

FORMAT = 1


class Result(StrEnum):
    """The result of one check, in the order of the totals."""

    BLOCKER = "blocker"
    WARNING = "warning"
    UNKNOWN = "unknown"
    INFO = "info"
    OK = "ok"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEntry:
    """One check that ran."""

    check: Check
    result: Result
    examined: str
    """Objects with their numbers."""
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]
    """What it did not observe, or why it does not apply. An entry with findings can have reasons too: then the result
    is known in part."""
    seconds: float
    """Of its evaluation and its own queries."""

    @classmethod
    def of(cls, checked: Checked, unknown: Mapping[Need, str], *, examined: str, seconds: float) -> CheckEntry:
        """Return the entry. `unknown`: as in `Checked.result`. An unknown value never counts as ok or info."""
        reasons = (checked.not_applicable,) if checked.not_applicable else checked.lacking(unknown)
        worst = min((finding.severity for finding in checked.observed), key=list(Severity).index, default=None)
        if checked.not_applicable:
            result = Result.NOT_APPLICABLE
        elif worst in (Severity.BLOCKER, Severity.WARNING):
            result = Result(worst.value)
        elif reasons:
            result = Result.UNKNOWN
        else:
            result = Result.OK if worst is None else Result.INFO
        return cls(
            check=checked.check,
            result=result,
            examined="" if checked.not_applicable else "; ".join(filter(None, (examined, checked.note))),
            findings=checked.observed,
            reasons=reasons,
            seconds=checked.seconds + seconds,
        )

    @property
    def groups(self) -> tuple[FindingGroup, ...]:
        return group_by_kind(self.findings)

    @property
    def duration(self) -> str:
        """The duration with its unit: `3 ms`, `1.2 s`."""
        return f"{self.seconds * 1000:.0f} ms" if self.seconds < 1 else f"{self.seconds:.1f} s"

    @property
    def is_unknown_in_part(self) -> bool:
        """Whether the check has findings that count, or judged some of the nodes."""
        if self.result is Result.UNKNOWN:
            return all(isinstance(reason, OfSomeNodes) for reason in self.reasons)
        return bool(self.reasons) and self.result in (Result.BLOCKER, Result.WARNING)

    @property
    def can_hide_a_blocker(self) -> bool:
        """Whether a blocker can exist that this check did not see."""
        return bool(self.reasons) and self.result is not Result.NOT_APPLICABLE and self.check.can_block


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheckReport:
    """All checks of one cluster for one release."""

    cluster: str
    """Name in the inventory; the id of a discovered cluster."""
    bootstrap_servers: str
    cluster_id: str
    change: str
    """Upgrade, downgrade or restart."""
    path: tuple[str, ...]
    """The releases, the running one first."""
    target: str
    nodes: str
    """What was observed, with numbers."""
    contents: str
    """What was observed, with numbers."""
    checked_at: float
    """Epoch seconds."""
    seconds: float
    """The whole check."""
    entries: tuple[CheckEntry, ...]
    left_out: int
    """Checks that --only or --skip left out."""
    complete_with: str
    """How unknown results become known."""
    observed: Observed | None = None
    """Releases, levels and health in numbers."""

    @property
    def totals(self) -> Mapping[Result, int]:
        counted = Counter(entry.result for entry in self.entries)
        return {result: counted[result] for result in Result}

    @property
    def has_blockers(self) -> bool:
        return self.totals[Result.BLOCKER] > 0

    @property
    def can_hide_blockers(self) -> tuple[str, ...]:
        """The ids of the checks that could not exclude a blocker."""
        return tuple(entry.check.id for entry in self.entries if entry.can_hide_a_blocker)

    @property
    def exit_code(self) -> int:
        """0: nothing blocks, and no check that could find a blocker is unknown."""
        return result_code(blocks=self.has_blockers, can_hide=bool(self.can_hide_blockers))

    @property
    def by_severity(self) -> tuple[CheckEntry, ...]:
        """The checks, the most severe results first."""
        return tuple(sorted(self.entries, key=lambda entry: list(Result).index(entry.result)))

    @property
    def way(self) -> str:
        """The change as a text: `upgrade 3.9.1 → 4.3.1`."""
        return f"{self.change} {' → '.join(self.path)}" if len(self.path) > 1 else f"{self.change} on {self.target}"

    @property
    def totals_text(self) -> str:
        parts = [_numbered(number, result) for result, number in self.totals.items() if number]
        left_out = f", {self.left_out} left out" if self.left_out else ""
        return f"{count(len(self.entries), 'check')}: {', '.join(parts) or 'none'}{left_out}"

    @property
    def sentence(self) -> str:
        """The last sentence: whether something blocks the change, and what is unknown."""
        totals, hiding = self.totals, self.can_hide_blockers
        if totals[Result.BLOCKER]:
            told = f"The {self.way} is blocked: remove the blockers, then check again."
        elif hiding:
            told = (
                f"A blocker of the {self.way} cannot be excluded, because of {few(hiding, limit=len(hiding))}. "
                "--skip leaves a check out."
            )
        elif totals[Result.WARNING]:
            told = f"No blocker was found for the {self.way}. Read the warnings before you start it."
        else:
            told = f"No blocker was found for the {self.way}."
        in_part = sum(entry.is_unknown_in_part for entry in self.entries)
        unknown = sum(entry.result is Result.UNKNOWN and not entry.is_unknown_in_part for entry in self.entries)
        if not unknown and not in_part:
            return told
        verb = "is" if unknown == 1 else "are"
        partly = f", {in_part} more in part" if in_part else ""
        return f"{told} {count(unknown, 'check')} {verb} unknown{partly}, which does not mean ok. {self.complete_with}"

    def document(self) -> Mapping[str, Any]:
        """Return the JSON document; docs/check.schema.json describes it."""
        return {
            "format": FORMAT,
            "cluster": self.cluster,
            "bootstrap_servers": self.bootstrap_servers,
            "cluster_id": self.cluster_id,
            "change": self.change,
            "path": list(self.path),
            "target": self.target,
            "nodes": self.nodes,
            "contents": self.contents,
            "checked_at": round(self.checked_at, 3),
            "seconds": round(self.seconds, 3),
            "ok": self.exit_code == 0,
            "can_hide_blockers": list(self.can_hide_blockers),
            "totals": {result.value: number for result, number in self.totals.items()},
            "left_out": self.left_out,
            "sentence": self.sentence,
            "observed": to_json(self.observed),
            "checks": [_entry(entry) for entry in self.entries],
        }


def _numbered(number: int, result: Result) -> str:
    return count(number, result) if result in (Result.BLOCKER, Result.WARNING) else f"{number} {result}"


def _entry(entry: CheckEntry) -> Mapping[str, Any]:
    return {
        "id": entry.check.id,
        "title": entry.check.title,
        "docs": f"docs/{entry.check.page}",
        "result": entry.result.value,
        "examined": entry.examined,
        "reasons": list(entry.reasons),
        "seconds": round(entry.seconds, 3),
        "findings": [
            {
                "code": group.code,
                "severity": group.severity.value,
                "count": len(group.findings),
                "remedy": group.remedy,
                "objects": [
                    {"subject": one.subject, "sentence": one.sentence, "remedy": one.remedy} for one in group.findings
                ],
            }
            for group in entry.groups
        ],
    }


def find_worse(checks: Sequence[Mapping[str, Any]], number: int) -> tuple[str, ...]:
    """Return a sentence for each blocker, warning and unknown result of a check that the one before does not have.

    `checks`: documents, the newest first; `number`: index of the check. The one before is the newest earlier check for
    the same target; without one, only blockers count.
    """
    after = checks[number]
    before = next((one for one in checks[number + 1 :] if one["target"] == after["target"]), None)
    known = {} if before is None else {one["id"]: one for one in before["checks"]}
    return tuple(
        sentence for one in after["checks"] for sentence in _worse(known.get(one["id"]), one, is_first=before is None)
    )


def _worse(before: Mapping[str, Any] | None, after: Mapping[str, Any], *, is_first: bool) -> Iterator[str]:
    earlier = {} if before is None else _severities(before)
    for group in after["findings"]:
        severity = group["severity"]
        if severity not in (Severity.BLOCKER, Severity.WARNING) or (is_first and severity != Severity.BLOCKER):
            continue
        as_severe = (severity, Severity.BLOCKER)
        new = [one for one in group["objects"] if earlier.get((group["code"], one["subject"])) not in as_severe]
        if new:
            yield f"{severity} {group['code']} for {_named(new)}: {new[0]['sentence']}"
    was_known = before is not None and before["result"] != Result.UNKNOWN
    if after["result"] == Result.UNKNOWN and was_known:
        yield f"{after['id']} is unknown now: {' '.join(after['reasons'])}"


def _severities(check: Mapping[str, Any]) -> Mapping[tuple[str, str], str]:
    """(code, subject) → severity. One code can have several groups of findings."""
    return {
        (group["code"], one["subject"]): group["severity"] for group in check["findings"] for one in group["objects"]
    }


def _named(objects: Sequence[Mapping[str, Any]]) -> str:
    names = [one["subject"] for one in objects]
    return names[0] if len(names) == 1 else f"{count(len(names), 'object')} ({few(names)})"
