"""The status of a run on a terminal: once, or followed until the run needs a human or ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.durations import duration, epoch
from kafka_rollout.base.errors import RefusedError, StoppedError, TransientError
from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.tones import Tone
from kafka_rollout.cli import show
from kafka_rollout.console.cluster_status import (
    ENDED,
    NEEDS_HUMAN,
    ClusterStatus,
    Phase,
    RunState,
    StatusCondition,
    Truth,
)
from kafka_rollout.procedure.progress import Progress

POLL_S = 2.0
_LINES_SHOWN = 8  # of the progress
_ASKS = {Phase.WAITING_FOR_APPROVAL, Phase.WAITING_FOR_DECISION}


class Until(StrEnum):
    """The values of an option."""

    NEEDS_HUMAN = "needs-human"
    END = "end"


def is_reached(phase: Phase, until: Until | None) -> bool:
    """Return whether a wait is over. A run that cannot continue by itself has ended; one that asks has not."""
    return phase in ENDED | NEEDS_HUMAN and not (until is Until.END and phase in _ASKS)


def exit_code(found: ClusterStatus, until: Until | None = None) -> int:
    """Return the exit code of a wait that is over."""
    if until is Until.NEEDS_HUMAN:
        return 0 if found.needs_human else 1
    is_blocked = any(one.type == "Planned" and one.reason == "Blocked" for one in found.conditions)
    if found.phase is Phase.REFUSED or (found.phase is Phase.DRY_RUN and is_blocked):
        return RefusedError.exit_code
    return 0 if found.phase in {Phase.FINISHED, Phase.DRY_RUN} else 1


def follow(
    cluster: str,
    run_id: str,
    settings: Settings,
    *,
    until: Until | None = None,
    timeout_s: float | None = None,
    on_status: Callable[[ClusterStatus, RunState], None] = lambda found, run: None,
    on_problem: Callable[[str], None] = lambda problem: None,
    clock: Clock | None = None,
) -> ClusterStatus:
    """Return the status of a run when it needs a human or ended. `until`: one of the two; None: the first of them.

    Asks a database that does not respond again. Raises TransientError after the timeout, StoppedError at Ctrl-C.
    """
    from kafka_rollout.wiring.runs import read_run_status

    clock = clock or SystemClock()
    ends_at = None if timeout_s is None else clock.monotonic() + timeout_s
    state, number = "unknown", run_id
    try:
        while True:
            try:
                found, run = read_run_status(cluster, run_id, settings)
                on_status(found, run)
                if is_reached(found.phase, until):
                    return found
                state, number = _words(found.phase), str(run.number)
            except TransientError as error:
                on_problem(str(error))
            left = POLL_S if ends_at is None else ends_at - clock.monotonic()
            if left <= 0:
                raise TransientError(
                    f"After {duration(timeout_s or 0)}, the state of run {number} is still: {state}.",
                    remedy=f"See `kafka-rollout status --cluster {cluster}`, or wait again.",
                )
            clock.sleep(min(POLL_S, left))
    except KeyboardInterrupt:
        raise StoppedError(
            f"Stopped by Ctrl-C. Run {number} continues: only this command ended.",
            remedy=f"Follow it again with `kafka-rollout status --watch --cluster {cluster} --run {number}`.",
        ) from None


class StatusScreen:
    """Shows a run that is followed on standard error: in place on a terminal, else a line for each change."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._newest = deque[str](maxlen=_LINES_SHOWN)
        self._shown: tuple[Phase, str | None] | None = None
        in_place = show.err.is_terminal and not show.err.is_dumb_terminal
        self._live = Live(console=show.err, auto_refresh=False, transient=True) if in_place else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, found: ClusterStatus, run: RunState) -> None:
        """Show the run as it is now."""
        new = list(self._progress.lines(run.plan, run.view.events))
        self._newest.extend(new)
        if self._live is not None:
            progress = (show.marked("", "", line) for line in ("", *self._newest))
            self._live.update(Group(*status_lines(found), *progress), refresh=True)
            return
        for line in new[-_LINES_SHOWN:]:
            self.say(line)
        if self._shown != (found.phase, found.step):
            self._shown = found.phase, found.step
            self.say(f"{_words(found.phase)}{f': {found.step}' if found.step else ''}")

    def say(self, line: str) -> None:
        """Print one line, above the status on a terminal."""
        show.say(f"{time.strftime('%H:%M:%SZ', time.gmtime())} {line}", show.err)


def _words(phase: Phase) -> str:
    return phase.value.replace("-", " ")


def print_status(found: ClusterStatus) -> None:
    """Print a status on one screen."""
    for line in status_lines(found):
        show.out.print(line, soft_wrap=True)


def status_lines(found: ClusterStatus) -> Iterator[Text]:
    """Return a status as lines: first what needs a human."""
    title = found.cluster
    if found.run:
        title += f": {found.kind or 'not planned yet'} {found.way}".rstrip()
    yield show.marked(_words(found.phase).upper(), f"bold {show.TONES[found.tone]}", title)
    for condition in found.conditions:
        if condition.type == "NeedsHuman" and condition.status is Truth.TRUE:
            yield show.marked("!", show.TONES[found.tone], condition.message or condition.reason)
        if condition.type == "Requested" and condition.status is Truth.TRUE:
            yield show.marked("!", show.TONES[Tone.FAIR], condition.message)
    for line in _plain_lines(found):
        yield show.marked("", "", line)


def _plain_lines(found: ClusterStatus) -> Iterator[str]:
    if (waits := found.waits_for) is not None:
        until = f", until {_times(waits.until)}" if waits.until else ""
        yield f"Waits since: {_times(waits.since)}{until}"
        yield f"Can answer: {', '.join(waits.who)}"
    yield f"What to do: {found.next_action}"
    if found.step:
        yield f"Step: {found.step}"
    if found.nodes.total:
        yield f"Nodes: {found.nodes.done} of {found.nodes.total} done, {found.nodes.left} left"
    if found.batches is not None and found.batches.open:
        yield f"Batches: {found.batches.done} of {found.batches.total} done; {found.batches.sentence}"
    why = next((one.message for one in found.conditions if one.type == "NeedsHuman"), "")
    for condition in found.conditions:
        if condition.type not in {"NeedsHuman", "Requested", "Locked"}:
            since = f" (since {_times(condition.since)})" if condition.since else ""
            yield f"  {condition.type} {condition.status.value}: {_unsaid(condition, why)}{since}"
    yield f"Lock: {_lock_text(found)}"
    if found.run:
        by = f" by {found.started_by}" if found.started_by else ""
        number = found.number or found.run
        yield f"Run: {number}, started {_times(found.started)}{by}, last event {_times(found.updated)}"


def _unsaid(condition: StatusCondition, why: str) -> str:
    """Return the message; of a reason that the first line has said, only what it is about."""
    about, colon, reason = condition.message.partition(": ")
    if colon and reason.removesuffix(".") in why:
        return f"{about}: as above"
    return condition.message or condition.reason


def _lock_text(found: ClusterStatus) -> str:
    (locked,) = (one for one in found.conditions if one.type == "Locked")
    if locked.status is Truth.UNKNOWN:
        return f"unknown. {locked.message}"
    if found.lock is None:
        return "no run holds it"
    purpose = f" ({found.lock.purpose.rstrip('.')})" if found.lock.purpose else ""
    named = found.lock.number or found.lock.holder
    return f"{f'run {named}' if named else 'a run that you cannot read'} until {_times(found.lock.expires)}{purpose}"


def _times(at: str | None) -> str:
    """Return a time of the document, absolute and relative to now."""
    if at is None:
        return "unknown"
    seconds = time.time() - epoch(at)
    return f"{at} ({duration(seconds)} ago)" if seconds >= 0 else f"{at} (in {duration(-seconds)})"
