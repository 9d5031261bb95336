"""What a scheduled check found that the check before it did not, from their documents (`CheckReport.document`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka_rollout.base.findings import Severity
from kafka_rollout.base.wording import count, few
from kafka_rollout.report.check_report import Result

_ALERTS = {Severity.BLOCKER.value, Severity.WARNING.value}


def newest_before(checks: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any] | None:
    """Return the newest check before this one with the same target. `checks`: newest first; `number`: its index."""
    target = checks[number]["target"]
    return next((one for one in checks[number + 1 :] if one["target"] == target), None)


def find_worse(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each blocker, warning and unknown result of `after` that `before` does not have.

    `before`: the newest earlier check for the same target; None for the first one, of which only blockers count.
    """
    known = {} if before is None else {one["id"]: one for one in before["checks"]}
    return tuple(
        sentence for one in after["checks"] for sentence in _worse(known.get(one["id"]), one, is_first=before is None)
    )


def _worse(before: Mapping[str, Any] | None, after: Mapping[str, Any], *, is_first: bool) -> Iterator[str]:
    earlier = {} if before is None else _severities(before)
    for group in after["findings"]:
        severity = group["severity"]
        if severity not in _ALERTS or (is_first and severity != Severity.BLOCKER):
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
