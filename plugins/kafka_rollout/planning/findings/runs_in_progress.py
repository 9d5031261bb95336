"""The finding about a run that works on the cluster while it is checked: a result is then true for a moment only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_rollout.base.findings import WARNING, Check, CheckOf, Finding, FindingCode

RUN_IN_PROGRESS = FindingCode(
    "RUN-IN-PROGRESS",
    WARNING,
    "A run changes the cluster, or waits for an answer, while the cluster is checked.",
)
RUNS_CHECK = Check(
    "runs-in-progress",
    "Runs that change the cluster now",
    "check.md#results",
    (RUN_IN_PROGRESS,),
    of=(CheckOf.CHECK,),
    needs=(),
)
RUNS_UNKNOWN = "Runs are stored by the cluster's name in the inventory: use --cluster."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInProgress:
    """A run that holds the cluster's lock, waits for an answer, or is paused. A text that is unknown is empty."""

    name: str
    """Its number, or its id before its first event."""
    by: str
    """Who started it."""
    since: str
    """Its start, else when it took the lock; ISO 8601, UTC."""
    doing: str
    """Phase, releases, step and node."""
    command: str
    """Shows it."""


def run_findings(run: RunInProgress | None) -> Iterator[Finding]:
    """Yield the finding about the run of a cluster; None: there is none."""
    if run is None:
        return
    by = f", started by {run.by}," if run.by else ""
    since = f" since {run.since}" if run.since else ""
    yield RUN_IN_PROGRESS.found(
        f"run {run.name}",
        f"Run {run.name}{by} is in progress{since}: {run.doing}. What this check saw can change at any time.",
        f"See it with `{run.command}`. Check again when it has ended.",
    )
