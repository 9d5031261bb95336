"""What earlier runs of the cluster found and no approver accepted, before levels are raised.

A run takes the state before it as it is: records that an earlier run lost are not in it, so each comparison of the
later run is clean. An approver accepts the lines by name in the run that found them, or in the approval of the levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import WARNING, Check, Checked, CheckOf, FindingCode
from kafka_rollout.base.wording import few_sentences
from kafka_rollout.control.approval import accepted_doubts
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.observation.cluster_ports import ReadPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.run.left_open import EVENTS_READ, find_accepted_lines, find_left_open
from kafka_rollout.run.projections.approvals import find_doubts_of_runs
from kafka_rollout.run.step_events import EarlierRunsRead

UNREAD = "Its history is damaged or not complete, so it is unknown what it found."
_REMEDY = (
    "Continue that run: an approver accepts its differences there, or rolls back. Or find the cause, and accept these "
    "lines in the approval of the levels, which lists them."
)
DIFFERENCES_NOT_ACCEPTED = FindingCode(
    "DIFFERENCES-NOT-ACCEPTED",
    WARNING,
    "An earlier run found differences or lost test records, or was not compared, and no approver accepted that.",
    _REMEDY,
)
EARLIER_RUNS_CHECK = Check(
    "earlier-runs",
    "Differences that earlier runs found",
    "upgrade.md#the-state-before-and-after",
    (DIFFERENCES_NOT_ACCEPTED,),
    of=(CheckOf.UPGRADE, CheckOf.FEATURES),
    needs=(),
)


_OF_CLUSTER = " of cluster "  # in the keys of `events_by_other_run`


def check_earlier_runs(ports: ReadPorts, changes: Iterable[FeatureChange]) -> Checked:
    """Check a plan that raises levels, in this run or in a later one."""
    if not raises_level(changes):
        return EARLIER_RUNS_CHECK.ran(unless="No level is raised.")
    return EARLIER_RUNS_CHECK.ran(
        DIFFERENCES_NOT_ACCEPTED.found(f"run {number}", few_sentences(found.values()), covers=found)
        for number, found in _left_open_by_run(ports).items()
    )


def raises_level(changes: Iterable[FeatureChange]) -> bool:
    return any(change.target > change.current for change in changes)


def record_earlier_runs(run: Run) -> tuple[str, ...]:
    """Return what other runs left open, as sentences, and record it for the text of the approval."""
    found = tuple(line for left in _left_open_by_run(run.ports).values() for line in left)
    if found != find_doubts_of_runs(run.history.events()):
        run.history.record(EarlierRunsRead(unaccepted=found))
    return found


def refuse_unaccepted_of_runs(run: Run) -> None:
    """Raise RefusedError before levels are raised, if another run left something open that no approver accepted."""
    found = record_earlier_runs(run)
    accepted = accepted_doubts(run) if found else ()
    if left := [line for line in found if line not in accepted]:
        raise RefusedError(
            f"No level is raised: {few_sentences(left, limit=4)}",
            remedy=f"{_REMEDY} In a DAG, clear the task of that approval with all downstream tasks.",
        )


def _left_open_by_run(ports: ReadPorts) -> Mapping[str, Mapping[str, str]]:
    """Return number → line → sentence, of what the run left open and no approver of another run accepted. A line names
    its run, so that an acceptance is about one run. It names the cluster of the run if the run that asked had another
    name for it."""
    histories = ports.run.events_by_other_run(*EVENTS_READ)
    known = {number: find_accepted_lines(events) for number, events in histories.items() if events is not None}

    def named(number: str) -> tuple[str, str]:
        own, _, cluster = number.partition(_OF_CLUSTER)
        return own, cluster or ports.cluster.name

    def is_accepted(number: str, one: str) -> bool:
        own, cluster = named(number)
        return any(
            f"Run {own if named(reader)[1] == cluster else f'{own}{_OF_CLUSTER}{cluster}'}: {one}" in lines
            for reader, lines in known.items()
        )

    found = dict[str, Mapping[str, str]]()
    for number, events in histories.items():
        sentences = (UNREAD,) if events is None else find_left_open(events)
        lines = {f"Run {number}: {one}": one for one in sentences}
        if left := {line: one for line, one in lines.items() if not is_accepted(number, one)}:
            found[number] = left
    return found
