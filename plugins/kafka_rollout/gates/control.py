"""Whether a run can begin its next node step now, or pauses. Input and output are data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.durations import duration, iso
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.maintenance import Maintenance
from kafka_rollout.base.wording import nodes
from kafka_rollout.gates.check import Condition

NODE, RACK = "node", "rack"


# A node step that is expected to take longer than every window begins in the first part of a window. Without the rest,
# a check some seconds after the opening would come too late.
_OF_LONGEST_WINDOW = 0.9


def window_condition(
    maintenance: Maintenance, now: float, expected_s: float, what: str = "a node step", *, commands_s: float = 0.0
) -> Condition:
    """Return whether the maintenance window is open for a whole node step. Expected seconds: `commands_s` of the
    commands before the stop, `expected_s` of the rest.

    At most _OF_LONGEST_WINDOW of the longest coming window is required, or one slow node step would close all of them.
    """
    state = maintenance.state_at(now)
    left_s = state.left_s(now)
    whole_s = commands_s + expected_s
    needed_s = min(whole_s, _OF_LONGEST_WINDOW * maintenance.longest_s(now))
    evidence = state.text
    if state.is_open and left_s < needed_s:
        evidence = f"{evidence}, {duration(left_s)} left; {what} takes about {duration(whole_s)}"
        if commands_s:
            evidence += f", of which {duration(commands_s)} for the commands before the stop"
    return Condition(name="maintenance window", is_met=left_s >= needed_s and state.is_open, evidence=evidence)


def pause_condition(text: str, since: float) -> Condition:
    """Return the unmet condition of a paused run. `text`: `paused by alice: a reason`; `since`: epoch seconds."""
    return Condition(name="no pause", is_met=False, evidence=f"{text} (since {iso(since)})")


def check_pause_after(pause_after: str) -> None:
    """Raise UserError unless it is empty, `node`, `rack` or a number of nodes."""
    if pause_after not in {"", NODE, RACK} and not (pause_after.isdecimal() and int(pause_after)):
        raise UserError(f"The run cannot pause after '{pause_after}'.", remedy="Write node, rack or a number of nodes.")


def find_due_pause(pause_after: str, done: Sequence[int], next_node: int, racks: Mapping[int, str]) -> str:
    """Return why the run pauses before the next node, as a sentence; empty if it does not.

    `done`: the nodes since the last pause, in their order. `racks`: broker.rack of these nodes and of the next one, ""
    for none. A batch is never divided.
    """
    if not pause_after or not done:
        return ""
    if pause_after == RACK:
        rack = racks[done[-1]]
        ended = f"The nodes of rack {rack} are done." if rack else "The nodes without a rack are done."
        return "" if rack == racks[next_node] else ended
    most = 1 if pause_after == NODE else int(pause_after)
    return f"Since the last pause, {nodes(done)} {'is' if len(done) == 1 else 'are'} done." if len(done) >= most else ""


def planned_pause(why: str) -> Condition:
    """Return the unmet condition of a pause of the plan. `why`: of `find_due_pause`."""
    return Condition(name="planned pause", is_met=False, evidence=f"{why} An approver must continue the run")
