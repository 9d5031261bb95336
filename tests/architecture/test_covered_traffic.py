"""Whether test traffic passed is decided with the node steps that it covers, in one place: `cover_node_steps`.

Traffic that acknowledged nothing since a batch has lost nothing either. Only a `CoveredVerdict` has `ok` and
`unproved`, so mypy holds that nobody reads them of a verdict without its coverage.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from kafka_rollout.run.traffic import CoveredVerdict, TrafficVerdict
from tests.architecture.rooms import PACKAGE, nodes_of

# Files that read whether the records alone passed → why the node steps do not count there.
BY_RECORDS_ALONE = {
    "run/traffic.py": "the rest of the decision",
    "traffic/processes/main.py": "keeps journals and topics as evidence; it knows no node steps",
    "cli/commands/traffic.py": "test traffic outside a run, without node steps",
}


def users_of(name: str, source: str) -> Iterator[int]:
    """Yield the lines that call a function or class of this name, or read such an attribute."""
    for node in nodes_of(source):
        is_called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        if is_called or (isinstance(node, ast.Attribute) and node.attr == name):
            yield getattr(node, "lineno", 0)


def files(find: Callable[[str], Iterator[int]]) -> set[str]:
    return {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if list(find(path.read_text()))}


def test_a_verdict_without_coverage_cannot_pass() -> None:
    for name in ("ok", "unproved"):
        assert not hasattr(TrafficVerdict, name)
        assert hasattr(CoveredVerdict, name)


def test_a_covered_verdict_is_made_in_one_place() -> None:
    assert files(lambda source: users_of("CoveredVerdict", source)) == {"run/traffic.py"}
    assert files(lambda source: users_of("with_coverage", source)) == {"run/projections/nodes.py"}


def test_only_these_decide_by_the_records_alone() -> None:
    assert files(lambda source: users_of("is_clean", source)) == BY_RECORDS_ALONE.keys()


def test_a_user_is_found() -> None:
    assert list(users_of("is_clean", "if verdict.is_clean: pass")) == [1]
    assert list(users_of("CoveredVerdict", "CoveredVerdict(series=())")) == [1]
