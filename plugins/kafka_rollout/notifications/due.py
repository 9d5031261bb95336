"""Notifications: from the histories of a cluster's runs and scans to what the person on duty must hear.

Pure: the caller reads the histories and passes the time in. The same histories give the same notifications with the
same keys, so the sender can repeat the call at any time and send each key once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from kafka_rollout.base.durations import duration
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.run.events import Asked, Begun, TakenOver
from kafka_rollout.run.projections.approvals import asks_for_decision, who_can_answer
from kafka_rollout.run.projections.runs import QUIET_S, RunEnd
from kafka_rollout.run.step_events import GatePassed
from kafka_rollout.run.view import GateHistory, GateState, NodeFailure, NodeStage, RunView, subject_of


class NotificationKind(StrEnum):
    """The values are stored, and name the kinds in the Airflow Variable."""

    APPROVAL_PENDING = "approval-pending"
    APPROVAL_EXPIRES = "approval-expires"
    DECISION_PENDING = "decision-pending"
    GATE_SLOW = "gate-slow"
    NODE_FAILED = "node-failed"
    RUN_PAUSED = "run-paused"
    RUN_FAILED = "run-failed"
    ROLLED_BACK = "rolled-back"
    FINISHED = "finished"
    OPTION_CLOSED = "option-closed"
    SCAN_FAILED = "scan-failed"
    CHECK_WORSE = "check-worse"
    CHECK_FAILED = "check-failed"
    NOT_FINALIZED = "not-finalized"
    TEST = "test"


SCAN_KINDS = (
    NotificationKind.OPTION_CLOSED,
    NotificationKind.SCAN_FAILED,
    NotificationKind.CHECK_WORSE,
    NotificationKind.CHECK_FAILED,
)


class Urgency(StrEnum):
    """The words that PagerDuty and other alerting services use for a severity."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class NotificationKindFacts(NamedTuple):
    """What docs/notifications.md says about a kind."""

    urgency: Urgency
    sent_when: str
    """An event, as the rest of a sentence."""


KINDS: Mapping[NotificationKind, NotificationKindFacts] = {
    NotificationKind.APPROVAL_PENDING: NotificationKindFacts(Urgency.WARNING, "a run asks for an approval"),
    NotificationKind.APPROVAL_EXPIRES: NotificationKindFacts(
        Urgency.CRITICAL, "60 minutes before a request expires; of a timeout below four hours in the last quarter"
    ),
    NotificationKind.DECISION_PENDING: NotificationKindFacts(
        Urgency.CRITICAL, "a step or gate failed: wait on, retry or roll back"
    ),
    NotificationKind.GATE_SLOW: NotificationKindFacts(Urgency.WARNING, "a gate waits longer than half of its timeout"),
    NotificationKind.NODE_FAILED: NotificationKindFacts(
        Urgency.CRITICAL, "the gate of a node failed, or a node was stopped and not started again"
    ),
    NotificationKind.RUN_PAUSED: NotificationKindFacts(
        Urgency.WARNING, "a run changed the cluster and stopped before its end"
    ),
    NotificationKind.RUN_FAILED: NotificationKindFacts(
        Urgency.CRITICAL, "a run failed, was refused, or got no answer in time"
    ),
    NotificationKind.ROLLED_BACK: NotificationKindFacts(Urgency.WARNING, "a run ended with a rollback"),
    NotificationKind.FINISHED: NotificationKindFacts(Urgency.INFO, "a run ended at its target. Dry runs send nothing"),
    NotificationKind.OPTION_CLOSED: NotificationKindFacts(
        Urgency.WARNING, "a scan found that a release of an open path down can no longer load the coordinator logs"
    ),
    NotificationKind.SCAN_FAILED: NotificationKindFacts(Urgency.WARNING, "a scheduled scan failed"),
    NotificationKind.CHECK_WORSE: NotificationKindFacts(Urgency.WARNING, "a scheduled check found new problems"),
    NotificationKind.CHECK_FAILED: NotificationKindFacts(Urgency.WARNING, "a scheduled check failed"),
    NotificationKind.NOT_FINALIZED: NotificationKindFacts(
        Urgency.WARNING, "14 days after an upgrade whose levels are not finalized"
    ),
    NotificationKind.TEST: NotificationKindFacts(Urgency.INFO, "the DAG is triggered with *Test*"),
}


class Page(StrEnum):
    """The page that a notification leads to."""

    ANSWER = "answer"  # the required actions of the run in Airflow
    RUN = "run"
    REPORT = "report"
    CLUSTERS = "clusters"
    SCAN = "scan"  # `report` has its address


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One notification."""

    key: str
    """The same for the same event, unique in the cluster."""
    kind: NotificationKind
    cluster: str
    at: float
    """Time of the event (epoch s)."""
    headline: str
    sentences: tuple[str, ...] = ()
    """Reason, deadline, who can answer."""
    remedy: str = ""
    """What to do."""
    node: int | None = None
    """The node's id. `dag_id` is empty for a run of the command line."""
    page: Page = Page.RUN
    dag_id: str = ""
    run_id: str = ""
    run: int | None = None
    """What the run is called; None for a scheduled scan, which has no number."""
    report: str = ""
    """Address of a scan's report."""
    joined: tuple[NotificationKind, ...] = ()
    """The kinds of other alerts of the same run, whose sentences this one has."""

    @property
    def urgency(self) -> Urgency:
        return KINDS[self.kind].urgency

    @property
    def failed(self) -> bool:
        """Return whether a scheduled scan or check failed."""
        return self.kind in {NotificationKind.SCAN_FAILED, NotificationKind.CHECK_FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTimes:
    """Times in seconds."""

    before_expiry_s: float = 3600.0
    """A reminder before an approval expires, at most a quarter of the time for the answer."""
    not_finalized_s: float = 14 * 86_400.0
    """A cluster can run a new release without finalizing for this time."""
    fresh_s: float = 86_400.0
    """An older event is not sent any more, so that the first run of the sender does not send the past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """A run as it was read."""

    run_id: str
    number: int
    """What it is called."""
    view: RunView
    end: RunEnd | None = None
    """None without a report."""
    has_lock: bool = False
    """The run holds the lock of the cluster."""
    gate_timeout_s: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """What is known about a cluster."""

    cluster: str
    runs: tuple[RunHistory, ...] = ()
    """Those that can need a notification."""
    alerts: tuple[Notification, ...] = ()
    """Of its scheduled scans."""
    newest_end: tuple[str, RunEnd] | None = None
    """Run id and end of the newest run that changed nodes or levels; None if there is none."""
    newest_scan: tuple[str, float] | None = None
    """Run id and time (epoch s) of the newest scan that a scheduled run stored; None if there is none."""


def due_notifications(
    history: ClusterHistory, *, now: float, times: NotificationTimes | None = None
) -> tuple[Notification, ...]:
    """Return every notification that is due now, also those that were sent before."""
    times = times or NotificationTimes()
    found = [
        one for run in history.runs for one in _of_run(history.cluster, run, now, times) if not _is_over(one, history)
    ]
    found += [one for one in history.alerts if not _is_scanned(one, history)]
    found = [one for one in found if one.kind in WHILE_TRUE or now - one.at < times.fresh_s]
    return (*found, *_not_finalized(history, now, times))


WHILE_TRUE = {NotificationKind.APPROVAL_PENDING, NotificationKind.APPROVAL_EXPIRES, NotificationKind.DECISION_PENDING}
"""They are due as long as their request is open, and no longer."""


_PAST = {NotificationKind.FINISHED, NotificationKind.ROLLED_BACK}
"""They report what has happened. The others say that something is open: a request, a node, a run, a level, a log."""


def is_open(notification: Notification) -> bool:
    """Return whether what the notification says is still open. A new channel gets nothing else at first."""
    return notification.kind not in _PAST


def _is_over(one: Notification, history: ClusterHistory) -> bool:
    """Return whether a later run that reached its end, or went back, has resolved what stopped this run."""
    if one.kind not in {NotificationKind.NODE_FAILED, NotificationKind.RUN_FAILED, NotificationKind.RUN_PAUSED}:
        return False
    newest = history.newest_end
    return newest is not None and newest[1].outcome in _AT_END and newest[1].ended_at > one.at


def _is_scanned(one: Notification, history: ClusterHistory) -> bool:
    """Return whether a later scheduled scan has resolved a failed one, and the alert says nothing else."""
    if one.kind is not NotificationKind.SCAN_FAILED or one.joined or history.newest_scan is None:
        return False
    run_id, at = history.newest_scan
    return run_id != one.run_id and at > one.at


_AT_END = {"finished", "rolled_not_finalized", "rolled_back"}


def alert_of_scan(
    kind: NotificationKind, headline: str, sentences: Iterable[str], *, remedy: str, report: str = ""
) -> Notification:
    """Return the alert of a scheduled scan or check. `of_scheduled_run` adds its cluster, run and time."""
    return Notification(
        key="",
        kind=kind,
        cluster="",
        at=0.0,
        headline=headline,
        sentences=tuple(sentences),
        remedy=remedy,
        page=Page.SCAN if report else Page.CLUSTERS,
        report=report,
    )


def of_scheduled_run(alert: Notification, cluster: str, run_id: str, at: float) -> Notification:
    return replace(alert, key=f"{alert.kind}:{run_id}", cluster=cluster, run_id=run_id, at=at)


def _of_run(cluster: str, run: RunHistory, now: float, times: NotificationTimes) -> Iterator[Notification]:
    view = run.view
    question = view.question(None if run.end is None else run.end.ended_at, has_lock=run.has_lock)
    if view.last_at is None or (question is None and not (view.has(Begun, TakenOver) or view.has_acted)):
        return  # a plan or a dry run of the command line
    made = _Maker(cluster=cluster, run=run)
    yield from made.failed_nodes()
    if question is not None:
        yield from made.of_question(question, now, times)
    elif (end := made.end()) is not None:
        if end.outcome != "dry_run":  # its starter looks at it
            yield made.of_end(end)
    elif view.failed is not None:
        if now - view.failed.at >= QUIET_S:  # the report follows in a moment
            yield made.failed(view.failed.at, f"{view.cause} Step {view.failed.name} failed.".strip())
    elif run.has_lock or now - view.last_at < QUIET_S:
        yield from made.slow_gates(now)
    elif view.has_acted:
        yield made.paused(view.last_at, "It does not hold the lock, records nothing, and has no report.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """The notifications of one run."""

    cluster: str
    run: RunHistory

    @property
    def view(self) -> RunView:
        return self.run.view

    def tell(self, what: str) -> str:
        return f"Run {self.run.number} {what}."

    def make(self, kind: NotificationKind, number: int | str, at: float, headline: str, **more: object) -> Notification:
        """`number`: tells this event of the run from others of its kind."""
        of_run = {"dag_id": self.view.dag_id, "run_id": self.run.run_id, "run": self.run.number}
        fields = {**of_run, "page": Page.RUN, **more}
        key = f"{kind}:{self.run.run_id}:{number}"
        return Notification(key=key, kind=kind, cluster=self.cluster, at=at, headline=headline, **fields)  # type: ignore[arg-type]

    def end(self) -> RunEnd | None:
        """Return the report's end, if nothing happened since."""
        end = self.run.end
        return end if end is not None and end.is_newest(self.view.last_at) else None

    def of_question(self, found: tuple[int, Asked], now: float, times: NotificationTimes) -> Iterator[Notification]:
        number, asked = found
        subject = subject_of(asked)
        if asked.answer_by and now >= asked.answer_by:
            yield self.failed(asked.answer_by, f"There was no answer in time: {subject}")
            return
        decides = asks_for_decision(asked)
        last = self.view.last_act if decides else None
        cause = self.view.cause if decides else ""
        until = f"{datetime.fromtimestamp(asked.answer_by, UTC):%Y-%m-%d %H:%M} UTC"
        deadline = f"Without an answer until {until}, the task fails." if asked.answer_by else ""
        where = "Open the page" if asked.terminal is None else f"Go to the terminal of {asked.terminal}"
        more = {
            "sentences": _listed(
                cause,
                subject,
                deadline,
                f"Can answer: {', '.join(who_can_answer(asked, self.view.dag_id))}.",
            ),
            "remedy": f"{where} and answer: {', '.join(asked.options)}.",
            "page": Page.ANSWER if asked.terminal is None else Page.CLUSTERS,
            "node": None if last is None else last.node_id,
        }
        wants = "a decision" if decides else "an approval"
        kind = NotificationKind.DECISION_PENDING if decides else NotificationKind.APPROVAL_PENDING
        yield self.make(kind, number, asked.at, self.tell(f"waits for {wants}"), **more)
        reminds = min(times.before_expiry_s, (asked.answer_by - asked.at) / 4)
        if asked.answer_by and now >= asked.answer_by - reminds:
            left = f"The request for {wants} expires in {duration(asked.answer_by - now)}."
            yield self.make(NotificationKind.APPROVAL_EXPIRES, number, asked.answer_by - reminds, left, **more)

    def failed_nodes(self) -> Iterator[Notification]:
        for one in self.view.node_failures:
            if self._is_back(one):
                continue
            what = f"The gate {one.gate} failed." if one.gate else "It was stopped and not started again."
            remedy = (
                f"Read the log of node {one.node_id}. The run changes no other node until you answer or continue it."
            )
            headline = f"Node {one.node_id}: {one.reason.rstrip('.')}."
            more: dict[str, Any] = {"sentences": (what,), "remedy": remedy, "node": one.node_id}
            yield self.make(NotificationKind.NODE_FAILED, one.number, one.at, headline, **more)

    def _is_back(self, failure: NodeFailure) -> bool:
        """Return whether the newest gate of the node has passed since."""
        newest = next((one for one in reversed(self.view.nodes.values()) if one.node_id == failure.node_id), None)
        return newest is not None and newest.stage is NodeStage.DONE and newest.since > failure.at

    def slow_gates(self, now: float) -> Iterator[Notification]:
        timeout_s = self.run.gate_timeout_s
        for gate in self.view.open_gates:
            since = _waits_since(gate)
            if since is None or now - since < timeout_s / 2:
                continue
            ref, check = gate.ref, gate.checks[-1]
            sentences = (
                f"Gate {check.gate} has waited for {duration(now - since)}. Its timeout is {duration(timeout_s)}.",
                f"It waits for {check.waits_for}.",
            )
            after = "the run asks an approver, or stops in a shell."
            # The stop of all nodes or controllers waits in its own task, that of the controllers after their gate.
            has_passed = any(one.ref == ref for one in self.view.all(GatePassed))
            if ref.kind is GateKind.NODES_STOP or (ref.kind is GateKind.CONTROLLERS_STOP and has_passed):
                after = "the task fails, or the shell stops; no node is stopped. To wait again, continue the run."
            remedy = f"Look at the named conditions now. After the timeout {after}"
            more = {"sentences": sentences, "remedy": remedy, "node": ref.node_id}
            headline = f"Gate {check.gate} waits longer than expected."
            yield self.make(NotificationKind.GATE_SLOW, f"{ref}:{since:.0f}", since + timeout_s / 2, headline, **more)

    def of_end(self, end: RunEnd) -> Notification:
        page = Page.REPORT if self.view.dag_id else Page.CLUSTERS
        more: dict[str, object] = {"sentences": _listed(end.sentence), "page": page}
        match end.outcome:
            case "finished" | "rolled_not_finalized":
                is_whole = end.outcome == "finished"
                more["remedy"] = "No action is needed." if is_whole else "Start a run that finalizes the levels."
                return self.make(
                    NotificationKind.FINISHED, self.view.attempts, end.ended_at, self.tell("finished"), **more
                )
            case "rolled_back":
                more["remedy"] = "Correct the cause of the rollback, then start a new run."
                return self.make(
                    NotificationKind.ROLLED_BACK, self.view.attempts, end.ended_at, self.tell("was rolled back"), **more
                )
        if self.view.ended_by_operator:
            return self.paused(end.ended_at, end.sentence, page)
        return self.failed(end.ended_at, end.sentence, page)

    def failed(self, at: float, why: str, page: Page = Page.RUN) -> Notification:
        changed = "" if self.view.has_acted else "It changed nothing."
        remedy = f"Read the reason, fix the cause, then continue the run: {self._way_on}."
        more = {"sentences": _listed(why, changed), "remedy": remedy, "page": page}
        return self.make(NotificationKind.RUN_FAILED, self.view.attempts, at, self.tell("failed"), **more)

    @property
    def _way_on(self) -> str:
        if self.view.dag_id:
            return f"clear {self.view.cleared} in Airflow"
        return f"use --run {self.run.number} in the shell"

    def paused(self, at: float, why: str, page: Page = Page.RUN) -> Notification:
        remedy = f"Continue the run ({self._way_on}), or roll it back. Until then the cluster stays between two states."
        more = {"sentences": _listed(why), "remedy": remedy, "page": page}
        return self.make(
            NotificationKind.RUN_PAUSED, self.view.attempts, at, self.tell("stopped before its end"), **more
        )


def _waits_since(gate: GateHistory) -> float | None:
    """Return since when a gate waits; None for one that waits for nothing. A held gate waits for its operator: the
    timeout does not run.
    """
    if gate.state is not GateState.WAITS:
        return None
    begin: float | None = None
    for check in reversed(gate.checks):
        if check.is_held or (gate.passed_or_failed_at is not None and check.at <= gate.passed_or_failed_at):
            break
        begin = check.at
    return begin


def _not_finalized(history: ClusterHistory, now: float, times: NotificationTimes) -> Iterator[Notification]:
    if history.newest_end is None:
        return
    run_id, end = history.newest_end
    age_s = now - end.ended_at
    if end.outcome != "rolled_not_finalized" or age_s < times.not_finalized_s:
        return
    yield Notification(
        key=f"{NotificationKind.NOT_FINALIZED}:{run_id}",
        kind=NotificationKind.NOT_FINALIZED,
        cluster=history.cluster,
        at=end.ended_at + times.not_finalized_s,
        headline=f"The feature levels are not finalized {duration(age_s)} after the upgrade.",
        sentences=_listed(end.sentence),
        remedy="Finalize the levels, or downgrade. Until then the new release runs without its new features.",
        page=Page.CLUSTERS,
        run_id=run_id,
    )


def _listed(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def newest_change(ends: Sequence[tuple[str, RunEnd]]) -> tuple[str, RunEnd] | None:
    """Return the newest end of a run that changed the cluster. `ends`: newest first."""
    return next((one for one in ends if one[1].outcome not in {"dry_run", "refused", ""}), None)
