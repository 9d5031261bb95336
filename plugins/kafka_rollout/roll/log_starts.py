"""Whether a log start moved above what retention explains, on the brokers that the run has started.

A release or a file that lets brokers delete records shows it at the first broker, if its gate compares the log starts
with those of before the run. What from outside looks alike, a client's DeleteRecords, an approver accepts by topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import FatalError, NotObservableError, TransientError
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.gates.gate import Gate, GateCondition, doubtful
from kafka_rollout.model.contents import (
    ClusterInventory,
    Difference,
    StartReading,
    comparable_starts,
    shorter_retention,
    unexplained_starts,
)
from kafka_rollout.model.retention import BROKER_NAMES
from kafka_rollout.observation.node_steps import is_rollback_step
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.findings.configuration import find_expected_configs
from kafka_rollout.planning.findings.pending import read_approved
from kafka_rollout.preparation.state_comparison import STATE_LOST, load_state_before
from kafka_rollout.run.events import events_of, has
from kafka_rollout.run.step_events import ContentsTaken, Started

CONDITION = "log starts"
MOVED = "state/moved-starts.json"  # topics
# A broker removes segments 30 s after its start (log.initial.task.delay.ms), and the default soak is 60 s.
_AGE_S, _AGE_TIMES = 30.0, 20
_SHOWN = 20
_LOST = "the log starts are not compared, because the stored state of before the run cannot be read"


def check_log_starts(run: ReadRun, gate: Gate, accepted: Mapping[str, str]) -> tuple[GateCondition, ...]:
    """Return the condition about the brokers that the run has started; none in a rollback, which must not wait for it,
    and none if no partition is compared: nothing meets it then.

    `accepted`: as for `doubtful`.
    """
    release_step, _ = gate.subject
    if is_rollback_step(run.plan, release_step):
        return ()
    try:
        known = _load(run, gate)
    except TransientError as error:
        return (GateCondition(name=CONDITION, is_met=False, evidence=error.sentence),)
    except FatalError as error:
        return (doubtful(CONDITION, error.sentence, [_LOST], accepted),)
    if known is None:
        is_lost = has(run.history.events(), ContentsTaken)
        return (doubtful(CONDITION, STATE_LOST.sentence, [_LOST], accepted),) if is_lost else ()
    sentences = [one.sentence for one in (*known.shorter, *known.found)]
    if not sentences:
        evidence = f"{_compared(known)}, none of them moved so"
        return (GateCondition(name=CONDITION, is_met=True, evidence=evidence),) if known.compared else ()
    topics = sorted({_topic(one) for one in known.found})
    doubts = [*(one.sentence for one in known.shorter), *_doubts(topics)]
    condition = doubtful(CONDITION, few(sentences, limit=3), doubts, accepted)
    return (condition if condition.is_met else condition.listing([one.subject for one in known.found]),)


def describe_uncompared(run: ReadRun, gate: Gate) -> str:
    """Return how many log starts the gate did not compare; empty if it compared all, or has not read them."""
    known = run.ports.start_readings.get(gate.ref)
    if known is None or known.compared == known.led:
        return ""
    return f"{_compared(known)}; those of the others show nothing: retention can move them at any time"


def _compared(known: StartReading) -> str:
    return f"compared for {known.compared} of the partitions led by {nodes(known.brokers)} ({known.led})"


def note_moved_starts(run: Run) -> None:
    """Before the first start of the run, note the topics whose log starts moved so: no broker of the run did that.

    A run can wait for its window for days after the state was recorded, and clients of these topics delete records.
    """
    if has(run.history.events(), Started):
        return
    try:
        before = load_state_before(run.ports)
    except FatalError:
        return
    above = {} if before is None else comparable_starts(before, run.ports.clock.now())
    if before is None or not above:
        return
    brokers = [one.node_id for one in run.cluster.brokers]
    found = unexplained_starts(before, run.ports.admin.log_starts(brokers, above))
    run.history.attach(MOVED, sorted({_topic(one) for one in found}))


def _topic(moved: Difference) -> str:
    return moved.subject.rpartition("-")[0]


def _load(run: ReadRun, gate: Gate) -> StartReading | None:
    """Return what is known now; None if the run has no state of before it. Raises TransientError."""
    started, readings = events_of(run.history.events(), Started), run.ports.start_readings
    if any(one.started != len(started) for one in tuple(readings.values())):
        readings.clear()  # those of earlier gates, too
    known = readings.get(gate.ref)
    if known is not None and run.ports.clock.now() - known.at < max(_AGE_S, _AGE_TIMES * known.seconds):
        return known
    ids = {event.node_id for event in started}
    found = _read(run, gate, len(started), tuple(one.node_id for one in run.cluster.brokers if one.node_id in ids))
    if found is not None:
        readings[gate.ref] = found
    return found


def _read(run: ReadRun, gate: Gate, started: int, brokers: tuple[int, ...]) -> StartReading | None:
    at = run.ports.clock.now()
    before = load_state_before(run.ports)
    if before is None:
        return None
    moved = frozenset(run.history.attachment(MOVED) or ())
    above = {name: most for name, most in comparable_starts(before, at).items() if name.rpartition("-")[0] not in moved}
    now = run.ports.admin.log_starts(brokers, above)
    shorter = _shorter(run, gate, before)
    return StartReading(
        started=started,
        at=at,
        seconds=run.ports.clock.now() - at,
        brokers=brokers,
        led=now.led,
        compared=now.asked,
        found=unexplained_starts(before, now),
        shorter=shorter,
    )


def _shorter(run: ReadRun, gate: Gate, before: ClusterInventory) -> tuple[Difference, ...]:
    """Ask the node of the gate itself: what another broker says of a topic is by that broker's own file.

    A line of its file that the approved plan names with its value is expected.
    """
    _, node = gate.subject
    try:
        settings = run.ports.admin.settings_in_use(node, BROKER_NAMES)
    except NotObservableError as error:
        return (Difference("retention", str(node.node_id), error.sentence),)
    expected = find_expected_configs(run.plan, run.ports.catalogue)
    approved = read_approved(run.plan.findings).get(node.node_id, {})
    files = {**expected.files, node.node_id: {**approved, **expected.files.get(node.node_id, {})}}
    expected = replace(expected, files=files)
    return shorter_retention(before, node.node_id, settings, expected)


def _doubts(topics: Sequence[str]) -> list[str]:
    moved = "moved above what its retention explains"
    named = [f"the log start of topic {one} {moved}" for one in topics[:_SHOWN]]
    if rest := topics[_SHOWN:]:
        digest = hashlib.sha256("\n".join(rest).encode()).hexdigest()[:8]
        named.append(f"the log start of {count(len(rest), 'more topic')} ({digest}) {moved}")
    return named
