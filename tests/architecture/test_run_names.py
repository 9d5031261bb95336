"""A text calls a run by its number. Its id is for Airflow, addresses, file names and keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import ORDER, by_function, name_of, outer_functions

_LOGS = {"debug", "info", "warning", "error", "exception"}
_IDS = {"run_id", "holder"}

ALLOWED = {
    "airflow/common/base.py:cluster_ports": "the id itself is the problem: another DAG has used it",
    "airflow/run_listener.py:_put": "the database that has the number may not respond",
    "airflow/views/records.py:_card": "a run whose number cannot be read",
    "cli/commands/unlock.py:unlock": "a run of another database, which has its number",
    "planning/findings/claims.py:_findings": "the same",
    "airflow/common/links.py:notification_page": "an address",
    "airflow/operators/notifications.py:_test": "a key",
    "notifications/due.py:of_scheduled_run": "a key",
    "notifications/due.py:make": "a key",
    "notifications/due.py:_not_finalized": "a key",
    "run/store/leases.py:_is_calling": "a key",
    "run/store/leases.py:_call_session": "a key",
    "run/store/leases.py:_call_path": "a file name",
    "traffic/processes/of_run.py:start_traffic": "the name of a consumer group",
}


def is_id(value: ast.expr) -> bool:
    """Whether a value that is shown is the id of a run: by its name, in a call such as `str`, or as a fallback."""
    match value:
        case ast.BoolOp():
            return any(map(is_id, value.values))
        case ast.Call(args=[first, *_]):
            return is_id(first)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key in _IDS
    return name_of(value) in _IDS


def shown_ids(source: str) -> Iterator[tuple[str, int]]:
    """Functions and lines that put the id of a run into a text or a line of a log."""
    for function in outer_functions(source):
        for node in (one for one in ast.walk(function) if isinstance(one, ast.JoinedStr | ast.Call)):
            parts: list[ast.expr] = []
            if isinstance(node, ast.JoinedStr):
                parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in _LOGS:
                parts = node.args
            if any(map(is_id, parts)):
                yield function.name, node.lineno


def test_a_text_names_a_run_by_its_number() -> None:
    assert by_function(ORDER, shown_ids).keys() == ALLOWED.keys()
