"""Whether a run can begin its next node step now: pauses, the maintenance window, and conditions from outside.

A condition from outside is a Prometheus query or a command of the operator, in the gates of nodes. The value is read
elsewhere. Here it is evaluated, by the rule that an unknown value never meets a condition.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_rollout.base.durations import duration, iso
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Finding, FindingCode
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.maintenance import Maintenance
from kafka_rollout.base.outside_text import NAME_LIMIT, escape_invisible
from kafka_rollout.base.wording import nodes
from kafka_rollout.gates.gate import GateCheck, GateCondition
from kafka_rollout.model.topology import OutsideCondition

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
CONDITION_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
COMPARISON = rf"^(<|<=|>|>=|==|!=) *({_NUMBER})$"
_CORRECT_QUERY = "Correct the query in the inventory, so that it returns one number, for example with sum() or max()."

OUTSIDE_CONDITION = FindingCode(
    "OUTSIDE-CONDITION",
    (INFO, WARNING),
    "The value of a condition from outside now. A warning if the condition is not met: the run then waits for it.",
    "No action needed.",
)
OUTSIDE_UNKNOWN = FindingCode(
    "OUTSIDE-CONDITION-UNKNOWN", BLOCKER, "A condition from outside has no value, so no node can be stopped."
)
OUTSIDE_CHECK = Check(
    "outside-conditions",
    "Conditions from outside",
    "control.md#conditions-from-outside",
    (OUTSIDE_CONDITION, OUTSIDE_UNKNOWN),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART, CheckOf.INVENTORY),
    needs=(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a query or a command returned."""

    value: float | None = None
    """None if it is unknown; then `problem` is a sentence with a `remedy`."""
    text: str = ""
    """What a command printed, for the evidence."""
    problem: str = ""
    remedy: str = ""


def evaluate(outside: OutsideCondition, reading: Reading) -> GateCondition:
    """Return the condition with the value as its evidence."""
    if reading.value is None:
        evidence = f"unknown: {reading.problem} {reading.remedy}".rstrip()
        return GateCondition(name=outside.title, is_met=False, evidence=evidence)
    if not outside.requires:
        shown = f"exit code {reading.value:.0f}" + (f": {reading.text}" if reading.text else "")
        return GateCondition(name=outside.title, is_met=reading.value == 0, evidence=shown)
    sign, number = _comparison(outside.requires)
    evidence = f"{reading.value:.10g}, required {sign} {number:.10g}"
    return GateCondition(name=outside.title, is_met=_COMPARISONS[sign](reading.value, number), evidence=evidence)


def _comparison(text: str) -> tuple[str, float]:
    found = re.fullmatch(COMPARISON, text)
    if found is None:
        raise ValueError(f"'{text}' is not a comparison")
    return found[1], float(found[2])


def waits_for_outside_alone(seen: GateCheck, outside: Sequence[OutsideCondition]) -> bool:
    """Return whether conditions from outside, and no other ones, are not met."""
    titles = {one.title for one in outside}
    unmet = {condition.name for condition in seen.conditions if not condition.is_met}
    return bool(unmet) and unmet <= titles


def outside_finding(outside: OutsideCondition, reading: Reading) -> Finding:
    """Return what a plan shows about a condition: its value now, or why it is unknown."""
    if reading.value is None:
        sentence = f"The value of condition {outside.name} is unknown: {reading.problem}"
        return OUTSIDE_UNKNOWN.found(outside.title, sentence, reading.remedy)
    seen = evaluate(outside, reading)
    when = " and ".join(point.replace("_", " ") for point in outside.applies_to)
    sentence = f"Condition {outside.name} ({when}) is {'met' if seen.is_met else 'not met'} now: {seen.evidence}."
    if seen.is_met:
        return OUTSIDE_CONDITION.found(outside.title, sentence)
    remedy = (
        "Find the cause of the value. The run waits for the condition, and asks an approver after the gate timeout."
    )
    return OUTSIDE_CONDITION.found(outside.title, sentence, remedy, severity=WARNING)


def refuse_unknown_names(names: Sequence[str], known: Sequence[OutsideCondition]) -> None:
    """Raise UserError for a name of a condition that the inventory does not have."""
    listed = [one.name for one in known]
    if missing := [name for name in names if name not in listed]:
        raise UserError(
            f"The inventory has no condition {', '.join(missing)}.",
            remedy=f"Its conditions are {', '.join(listed)}." if listed else "It has no conditions: omit the names.",
        )


def read_query_answer(body: str) -> Reading:
    """Return the value in Prometheus's response to an instant query (HTTP API v1, `/api/v1/query`).

    A response with warnings, or with VictoriaMetrics' `isPartial`, is unknown: it has a part of the series.
    """
    try:
        answer = parse_json(body)
        status, data = answer["status"], answer.get("data") or {}
        kind, result = data.get("resultType"), data.get("result")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Reading(
            problem="The server's response is not one of Prometheus's API.",
            remedy="Correct the URL: it is the address to which /api/v1/query is added.",
        )
    if status != "success":
        error = cut(str(answer.get("error", "no reason")))
        return Reading(problem=f"Prometheus rejects the query: {error}.", remedy="Correct the query in the inventory.")
    if warnings := answer.get("warnings"):
        shown = cut("; ".join(map(str, warnings)) if isinstance(warnings, list) else str(warnings))
        return Reading(
            problem=f"Prometheus responded with a warning, so the value can be incomplete: {shown}.",
            remedy="Correct the query or the data source that the warning names.",
        )
    if answer.get("isPartial"):
        return Reading(
            problem="The server responded with a part of the series (isPartial), so the value can be incomplete.",
            remedy="Start the storage nodes of the server that do not respond.",
        )
    return _value_of(kind, result)


def _value_of(kind: object, result: Any) -> Reading:
    if kind == "vector" and isinstance(result, list):
        if not result:
            return Reading(
                problem="The query returns no series.",
                remedy="Check that the metric is scraped. If no series means 0, add `or vector(0)` to the query.",
            )
        if len(result) > 1:
            return Reading(problem=f"The query returns {len(result)} series, not one.", remedy=_CORRECT_QUERY)
        sample = result[0].get("value") if isinstance(result[0], dict) else None
    else:
        sample = result if kind == "scalar" else None
    if not (isinstance(sample, list) and len(sample) == 2):
        return Reading(problem=f"The query returns no number ({cut(str(kind))}).", remedy=_CORRECT_QUERY)
    return _number(str(sample[1]), "The query returns", _CORRECT_QUERY)


def read_command_answer(outside: OutsideCondition, code: int, output: str, errors: str) -> Reading:
    """Return the value of a command that ended. `code`: its exit code, negative for a signal."""
    output, errors = output.strip(), errors.strip()
    if code not in ((0,) if outside.requires else (0, 1)):
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = f": {_first_line(errors or output)}" if errors or output else ""
        allowed = "0" if outside.requires else "0 (met) or 1 (not met)"
        return Reading(
            problem=f"The command {ended}{why}.",
            remedy=f"Run it on this machine as the user of this process, and correct it. It must end with {allowed}.",
        )
    if not outside.requires:
        return Reading(value=code, text=_first_line(output))
    return _number(output, "The command prints", "Correct the command: its standard output must be one number.")


def _number(text: str, what: str, remedy: str) -> Reading:
    try:
        value = float(text) if re.fullmatch(rf"{_NUMBER}|nan|[-+]?inf", text, re.IGNORECASE) else None
    except OverflowError:
        value = None
    if value is None or not math.isfinite(value):
        return Reading(problem=f"{what} {cut(text) or 'nothing'}, which is not a finite number.", remedy=remedy)
    return Reading(value=value)


def _first_line(text: str) -> str:
    return cut(text.partition("\n")[0].strip())


def cut(text: str) -> str:
    """Return text of a server or a command, short enough for one line of evidence."""
    return escape_invisible(text, limit=NAME_LIMIT)


NODE, RACK = "node", "rack"
FIRST_NODE, FIRST_BATCH = PAUSES_ONCE = ("first-node", "first-batch")  # one pause in the whole run


# A node step that is expected to take longer than every window begins in the first part of a window. Without the rest,
# a check some seconds after the opening would come too late.
_OF_LONGEST_WINDOW = 0.9


def window_condition(
    maintenance: Maintenance, now: float, expected_s: float, what: str = "a node step", *, commands_s: float = 0.0
) -> GateCondition:
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
    return GateCondition(name="maintenance window", is_met=left_s >= needed_s and state.is_open, evidence=evidence)


def pause_condition(text: str, since: float) -> GateCondition:
    """Return the unmet condition of a paused run. `text`: `paused by alice: a reason`; `since`: epoch seconds."""
    return GateCondition(name="no pause", is_met=False, evidence=f"{text} (since {iso(since)})")


def check_pause_after(pause_after: str) -> None:
    """Raise UserError unless it is empty, one of PAUSES_ONCE, `node`, `rack` or a number of nodes."""
    if pause_after not in {"", *PAUSES_ONCE, NODE, RACK} and not (pause_after.isdecimal() and int(pause_after)):
        raise UserError(
            f"The run cannot pause after '{pause_after}'.",
            remedy=f"Write {', '.join(PAUSES_ONCE)}, node, rack or a number of nodes.",
        )


def find_due_pause(
    pause_after: str, done: Sequence[int], next_node: int, racks: Mapping[int, str], *, first_batch: Collection[int]
) -> str:
    """Return why the run pauses before the next node, as a sentence; empty if it does not.

    `done`: the nodes since the last pause, in their order; for a pause that comes once, those of the run before it.
    `racks`: broker.rack of these nodes and of the next one, "" for none. `first_batch`: the nodes of the first batch of
    several; none if each restarts alone. A batch is never divided.
    """
    if not pause_after or not done:
        return ""
    if pause_after == FIRST_NODE:
        return f"The first node is done: {done[0]}."
    if pause_after == FIRST_BATCH:
        is_done = bool(first_batch) and set(first_batch) <= set(done)
        return f"The first batch is done, {nodes(sorted(first_batch))}, which restarted together." if is_done else ""
    if pause_after == RACK:
        rack = racks[done[-1]]
        ended = f"The nodes of rack {rack} are done." if rack else "The nodes without a rack are done."
        return "" if rack == racks[next_node] else ended
    most = 1 if pause_after == NODE else int(pause_after)
    return f"Since the last pause, {nodes(done)} {'is' if len(done) == 1 else 'are'} done." if len(done) >= most else ""


def planned_pause(why: str) -> GateCondition:
    """Return the unmet condition of a pause of the plan. `why`: of `find_due_pause`."""
    return GateCondition(name="planned pause", is_met=False, evidence=f"{why} An approver must continue the run")
