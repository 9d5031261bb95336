"""A TransientError says what passes by itself: an error that stays is refused, with a remedy, and blocks no plan."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import by_function, parsed

ROOMS = ("nodes", "client", "metadata_log", "releases")
# Function → what passes.
PASSES = {
    "client/admin.py:_read_finalized": "a broker that does not respond",
    "client/admin.py:_target": "a node that is down registers when it starts",
    "client/admin.py:_through": "brokers fetch the metadata",
    "client/admin.py:elect_preferred_leaders": "a replica returns to the ISR",
    "client/connection.py:ask": "a node that does not answer",
    "client/contents.py:offsets": "a leader that does not respond",
    "client/contents.py:_topics": "the election of a leader",
    "client/features.py:send_feature_updates": "the election of a controller",
    "client/fetch.py:__init__": "brokers that do not respond",
    "client/fetch.py:_ask": "the election of a leader, or brokers that do not respond",
    "client/fetch.py:_confirmed": "brokers that do not respond",
    "client/fetch.py:_fetch": "a new leader fetches",
    "client/fetch.py:_raise_for": "only names of TRANSIENT_ERRORS",
    "client/fetch.py:_start": "a broker that does not respond",
    "client/fetch.py:_until_answered": "after an error of TRANSIENT_ERRORS, or no answer",
    "client/requests.py:first_answer": "nodes that do not answer; what one refuses is raised instead",
    "client/requests.py:raise_for_error": "only names of TRANSIENT_ERRORS",
    "client/security/tokens.py:_request": "a server that is overloaded",
    "client/security/tokens.py:token": "what base.system.http.can_pass says",
    "metadata_log/changes/places.py:too_fast": "the node writes less",
    "nodes/metadata_places.py:stopped": "the files are read again",
    "nodes/metrics.py:read": "an agent that starts, also with an answer in part",
    "nodes/runtimes/hosts/commands.py:read_number": "a host that prints nothing; another text is refused",
    "nodes/runtimes/hosts/commands.py:run_fenced": "a time limit",
    "nodes/runtimes/hosts/commands.py:unusable": "decides for each command of a host",
    "nodes/runtimes/hosts/files_at_start.py:find_jvm_problems": "a time limit",
    "nodes/runtimes/hosts/next_java.py:_look": "a process that starts or ends",
    "nodes/runtimes/hosts/service.py:_install_package": "the software that manages the file restores it",
    "nodes/runtimes/hosts/service.py:install": "the software that manages the file changes it",
    "nodes/runtimes/hosts/service.py:start": "a process that systemd has given up still shuts down",
    "nodes/runtimes/hosts/shells.py:_connected": "a host that does not respond",
    "nodes/runtimes/hosts/shells.py:_transport": "a lost connection",
    "nodes/runtimes/hosts/shells.py:_unreachable": "a lost connection",
    "nodes/runtimes/hosts/shells.py:run": "a time limit",
    "nodes/runtimes/hosts/unit_state.py:read_unit_options": "a node that is down starts",
    "nodes/runtimes/local_process.py:_lock": "the other process ends",
    "releases/jars/cache.py:_fetch": "what is repeated",
    "releases/jars/maven.py:_no_response": "what base.system.http.can_pass says, or an overloaded server",
    "releases/jvm/java.py:refused_options": "a time limit",
}


def places(source: str) -> Iterator[tuple[str, int]]:
    """Yield the outermost function and the line of each use of TransientError that is no handler, base or type."""
    for top in parsed(source).body:
        for function in top.body if isinstance(top, ast.ClassDef) else [top]:
            name = getattr(function, "name", "")
            caught = {id(one) for node in ast.walk(function) for part in _others(node) for one in ast.walk(part)}
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id == "TransientError" and id(node) not in caught:
                    yield name, node.lineno


def _others(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield node.type
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    if isinstance(node, ast.ClassDef):
        yield from node.bases
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("suppress", "isinstance"):
        yield from node.args


def test_each_transient_error_names_what_passes() -> None:
    seen = by_function(ROOMS, places).keys()
    assert seen - PASSES.keys() == set(), "say what passes by itself; else raise RefusedError, UserError or FatalError"
    assert PASSES.keys() - seen == set(), "no such error"


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise TransientError('x')",
        "class A:\n    def f(self):\n        return (A if a else TransientError)('x')",
        "def f():\n    kind = TransientError",
    ],
)
def test_each_way_to_make_one_is_found(text: str) -> None:
    assert [function for function, _ in places(text)] == ["f"]


def test_a_handler_makes_none() -> None:
    text = "def f() -> TransientError:\n    try:\n        with suppress(TransientError):\n            g()\n"
    text += "    except TransientError:\n        pass"
    assert list(places(text)) == []
