"""Whether an approver has read a finding is decided in one place: `find_new` compares what it covers too.

The key of a finding names an object. Two findings with one key can be about more or less of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import PACKAGE, nodes_of

DECIDES = "base/findings.py"


def compared_keys(source: str) -> Iterator[int]:
    """Yield the line of each `one.identity in …` and `… not in …`."""
    for node in nodes_of(source):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "identity"
            and isinstance(node.ops[0], (ast.In, ast.NotIn))
        ):
            yield node.lineno


def test_a_comparison_of_keys_is_found() -> None:
    assert list(compared_keys("new = [one for one in found if one.identity not in known]")) == [1]
    assert list(compared_keys("new = find_new(found, known)")) == []


def test_no_caller_decides_by_the_key_of_a_finding_what_was_approved() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): list(compared_keys(path.read_text())) for path in PACKAGE.rglob("*.py")
    }
    assert {path for path, lines in found.items() if lines} == {DECIDES}
