"""The summary of one or several campaigns as Markdown. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tools.faults.kinds import FACTS, Kind
from tools.faults.records import CampaignLine, FailureLine, FaultLine, Line, RunLine


def summary(lines: Iterable[Line]) -> str:
    """Faults by kind, runs by procedure, records, the longest wait, and every failure with how to repeat it."""
    known = list(lines)
    campaigns = [line for line in known if isinstance(line, CampaignLine)]
    faults = [line for line in known if isinstance(line, FaultLine)]
    runs = [line for line in known if isinstance(line, RunLine)]
    failures = [line for line in known if isinstance(line, FailureLine)]
    reached = [fault for fault in faults if fault.reached]
    parts = [
        "# Fault campaign",
        *(f"- {_campaign(campaign)}" for campaign in campaigns),
        "",
        f"{len(reached)} faults in {len(runs)} runs; {len(failures)} failures. "
        f"{len(faults) - len(reached)} planned faults were not injected.",
        "",
        *_table(("fault", "injected", "not injected", "longest (s)"), _by_kind(faults)),
        "",
        *_table(("procedure", "runs", "completed", "rolled back", "failed", "calls", "faults"), _by_procedure(runs)),
        "",
        *_records(known),
        "",
        f"Stuck runs: {sum(failure.what == 'stuck' for failure in failures)}",
        "",
    ]
    if failures:
        parts += ["## Failures", ""]
        for failure in failures:
            parts += [f"- **{failure.what}** in {failure.place}: {failure.sentence}", f"  Repeat: `{failure.repeat}`"]
        parts.append("")
    return "\n".join(parts)


def _campaign(campaign: CampaignLine) -> str:
    left_out = f"; left out: {campaign.left_out}" if campaign.left_out else ""
    return (
        f"seed {campaign.seed}, runtime {campaign.runtime}, commit {campaign.commit}, density {campaign.density:g}"
        f"{left_out}"
    )


def _by_kind(faults: Sequence[FaultLine]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for kind in Kind:
        of_kind = [fault for fault in faults if fault.kind == kind]
        if not of_kind:
            continue
        reached = [fault for fault in of_kind if fault.reached]
        longest = max((fault.lasted_s for fault in reached), default=0.0)
        label = f"{kind}: {FACTS[kind].text}"
        rows.append((label, str(len(reached)), str(len(of_kind) - len(reached)), f"{longest:.1f}"))
    return rows


def _by_procedure(runs: Sequence[RunLine]) -> list[tuple[str, ...]]:
    rows = []
    for procedure in sorted({run.procedure for run in runs}):
        of_one = [run for run in runs if run.procedure == procedure]
        outcomes = Counter(run.outcome for run in of_one)
        numbers = (len(of_one), outcomes["completed"], outcomes["rolled-back"], outcomes["failed"])
        calls, faults = sum(run.calls for run in of_one), sum(run.faults for run in of_one)
        rows.append((procedure, *(str(number) for number in (*numbers, calls, faults))))
    return rows


def _records(lines: Sequence[Line]) -> list[str]:
    """Records count from the start of a round, so the last run of each round has the sum."""
    last: dict[tuple[int, str], RunLine] = {}
    campaign = 0
    for line in lines:
        if isinstance(line, CampaignLine):
            campaign += 1
        elif isinstance(line, RunLine):
            last[campaign, line.place.rpartition(".")[0]] = line
    acknowledged = sum(run.acknowledged for run in last.values())
    lost, doubled = sum(run.lost for run in last.values()), sum(run.doubled for run in last.values())
    waited = max((line.waited_s for line in lines if isinstance(line, RunLine)), default=0.0)
    return [
        f"Records of the independent producer: {acknowledged:,} acknowledged, {lost} lost, {doubled} doubled.",
        f"Longest wait of a record for its acknowledgement: {waited:.1f} s.",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
