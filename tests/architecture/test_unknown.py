"""An error of a query is no answer: in the rooms that decide, no handler returns an empty value without a reason.

`return ()` after an error says that there is nothing, and nobody looked. A check has `unknown_by(error, …)` for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, by_function, nodes_of, parsed

ROOMS = ("gates", "preparation", "planning", "roll", "lowering", "observation", "feature_updates", "control")
ERRORS = {
    "RolloutError",
    "TransientError",
    "FatalError",
    "RefusedError",
    "NotObservableError",
    "UserError",
    "HeldError",
    "UnreadableLogError",
    "OSError",
    "Exception",
}
# Function → why an empty value is right after the error.
EMPTY = {
    "control/approval.py:_is_proved": "an acceptance that is not proved does not count, and the gate waits",
    "control/claims.py:_seen_by_plan": "a change without a plan rests on no earlier state",
    "control/claims.py:end_claims": "a claim that stays open refuses other databases",
    "control/lock.py:_cluster_id": "the next renewal reads it again",
    "lowering/live.py:_prepare": "the disk was lost after the stop, and the choice of the log reports it",
    "lowering/live.py:_readable_controller": "another controller is asked, and none is a RefusedError",
    "lowering/live.py:_restore": "a lost disk has nothing to restore",
    "lowering/offline.py:_raise_epochs": "a lost disk knows no epoch",
    "lowering/offline.py:_refuse_used": "without a log no file was replaced, and a majority must be read",
    "lowering/offline.py:_restore_node": "a lost disk has nothing to restore",
    "lowering/offline.py:has_fetched_snapshot": "without a log the node has not fetched",
    "lowering/outage_facts.py:log_sizes": "an estimate of the outage",
    "observation/cluster_ports.py:_active_controller": "the condition of the gate is not met without it",
    "observation/cluster_ports.py:_applied": "such a broker is not believed to be current",
    "observation/cluster_ports.py:_quorum_in_use": "the file of the node counts, as without these values",
    "observation/cluster_ports.py:_with_fetch_timeout": "the shorter default calls a replica silent sooner",
    "observation/cluster_ports.py:_with_joining_voters": "the operator replaces the voter then",
    "observation/cluster_ports.py:observe_without_groups": "a broker that does not respond is a finding (NODE-DOWN)",
    "observation/cluster_ports.py:read_current_levels": "another broker is asked, and none is a TransientError",
    "observation/cluster_ports.py:read_registrations": "None is unknown, which its finding reports",
    "observation/node_logs.py:read_broker_log": "without a log a condition is not met, or an approver decides",
    "observation/node_logs.py:read_logged_requests": "the log names clients; the counters of the metrics decide",
    "observation/node_logs.py:with_log_errors": "an excerpt for the reader of NODE-DOWN",
    "observation/node_registrations.py:observe_registrations": "the metadata log is read then",
    "observation/node_registrations.py:read_registered": "the log of any controller is read then",
    "observation/node_steps.py:check_written_lines": "the file of the node counts, as its evidence says",
    "observation/node_steps.py:_coordinated_by": "the gate after the start then needs the load of every partition",
    "observation/node_steps.py:running_release": "the record of the start counts, and none is a TransientError",
    "observation/outage.py:check_service": "no broker responds, so the outage goes on",
    "observation/planned_coordinators.py:planned_group_coordinator": "unknown; the running brokers are asked",
    "preparation/node_checks.py:_directories": "agreement with directories of other nodes needs the right to read them",
    "preparation/node_checks.py:_with_controllers": "unknown_unclean_elections reports a controller without a value",
    "preparation/node_checks.py:_read_addresses": "a cluster that does not respond has findings of its own",
    "preparation/node_checks.py:check_hosts": "it is added to what is unknown",
    "preparation/node_checks.py:check_jvm": "jvm_findings reports the arguments that are not known",
    "preparation/node_checks.py:java_versions": "a node without a version is a blocker of JAVA_CHECK",
    "preparation/node_checks.py:node_configs": "Need.CONFIGS reports a node without a configuration",
    "preparation/plan_making.py:observe_files": "the plan itself refuses the target",
    "roll/gate_checks.py:_is_past": "the conditions of the gate show what runs",
    "roll/log_starts.py:note_moved_starts": "the gate after the start reports that the state cannot be read",
    "roll/stop.py:_refuse_unloadable": "the approver of the rollback has accepted that the logs are unread",
}
EMPTY_CALLS = {"tuple", "list", "dict", "set", "frozenset"}


def swallowing(source: str) -> Iterator[tuple[str, int]]:
    """Yield function and line of each handler of an error of the project that returns an empty value or ends."""
    yield from _swallowing(parsed(source), "")


def _swallowing(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = function or child.name  # the outermost function or method
        if isinstance(child, ast.ExceptHandler) and _is_of_project(child.type) and _is_empty(child.body):
            yield inner, child.lineno
        if isinstance(child, ast.withitem) and isinstance(child.context_expr, ast.Call):
            call = child.context_expr
            if _name(call.func) == "suppress" and any(map(_is_of_project, call.args)):
                yield inner, call.lineno
        yield from _swallowing(child, inner)


def _is_of_project(types: ast.expr | None) -> bool:
    if types is None:
        return True
    named = types.elts if isinstance(types, ast.Tuple) else [types]
    return any(_name(one) in ERRORS for one in named)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_empty(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.Return):
        return _is_nothing(last.value)
    if isinstance(last, ast.Assign):
        return len(body) == 1 and _is_nothing(last.value)
    return len(body) == 1 and isinstance(last, (ast.Pass, ast.Continue))


def _is_nothing(value: ast.expr | None) -> bool:
    if value is None or (isinstance(value, ast.Constant) and not value.value):
        return True
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and _name(value.func) in EMPTY_CALLS and not value.args and not value.keywords


def test_no_error_of_a_query_becomes_an_empty_answer_without_a_reason() -> None:
    seen = by_function(ROOMS, swallowing)
    assert {name: lines for name, lines in seen.items() if name not in EMPTY} == {}, "say that it is unknown"
    assert EMPTY.keys() <= seen.keys(), "a reason without a handler"


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    try:\n        g()\n    except TransientError:\n        return ()",
        "def f():\n    try:\n        g()\n    except (KeyError, errors.RolloutError) as error:\n        return []",
        "def f():\n    try:\n        x = g()\n    except RefusedError:\n        x = None",
        "def f():\n    try:\n        g()\n    except:\n        pass",
        "def f():\n    with suppress(TransientError):\n        g()",
        "def f():\n    try:\n        g()\n    except NotObservableError:\n        log()\n        return frozenset()",
    ],
)
def test_each_way_to_take_an_error_for_nothing_is_found(text: str) -> None:
    assert [function for function, _ in swallowing(text)] == ["f"]


# These return no Checked, or their findings say what is unknown.
CHECKS = ("check_", "unapproved_", "unkept_", "find_")
VERDICTS = {"check_feature_support", "find_outside"}


def judgements(source: str) -> Iterator[int]:
    """Yield the line of each place that takes the findings of a check and drops what it left unknown."""
    for node in nodes_of(source):
        if isinstance(node, ast.Attribute) and node.attr == "findings" and isinstance(node.value, ast.Call):
            called = _name(node.value.func)
            if called == "ran" or (called.startswith(CHECKS) and called not in VERDICTS):
                yield node.lineno


# These read findings alone → what becomes of the unknown.
READ_ALONE = {
    "feature_updates/update.py": "the plan keeps the results of the same checks",
    "model/plan.py": "the plan keeps the results of the same checks",
    "planning/lowering.py": "the plan keeps the results of the same checks",
    "planning/plans.py": "the plan keeps the results of the same checks",
    "preparation/frozen_plan.py": "judged follows, after the blockers",
    "preparation/lost_metadata.py": "judged follows, after the blockers",
    "preparation/unknowns.py": "it refuses what is unknown",
    "procedure/actions.py": "a log before the plan, which checks again",
    "report/check_registry.py": "the exit code shows it",
    "roll/stop.py": "a rollback records it",
}


def test_only_these_read_the_findings_of_checks_alone() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(isinstance(one, ast.Name) and one.id == "all_findings" for one in nodes_of(path.read_text()))
    }
    assert found == READ_ALONE.keys(), "use judged(plan, checks)"


def test_no_caller_takes_the_findings_of_a_check_alone() -> None:
    dropped = [
        f"{path.relative_to(PACKAGE)}:{line}" for path in PACKAGE.rglob("*.py") for line in judgements(path.read_text())
    ]
    assert dropped == [], "use judged(plan, [check])"


@pytest.mark.parametrize("text", ["check_hosts(ports, ()).findings", "x = A_CHECK.ran(f()).findings"])
def test_a_judgement_without_the_unknown_is_found(text: str) -> None:
    assert list(judgements(text)) == [1]
