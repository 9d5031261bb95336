"""An action takes a fact that the text of an approval lists from what its approver has read.

A check can run again after the approval, and then records what nobody has read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import PACKAGE, nodes_of

TEXTS = {"procedure/approval_requests.py", "report/builders.py"}  # they show the newest
LISTED = {"planned_trims", "LossesReported"}
"""Facts in the history that texts of approvals list: the projection, or the event."""
DOCUMENTS = {"LOSSES", "FACTS", "UNDOS", "OUTAGE_FACTS"}
"""The newest of each is what the next approver reads."""
SHOWN_ONCE = {"control/approval.py"}  # once per plan, so a repeated request shows it unchanged


def newest_facts(source: str) -> Iterator[int]:
    """Yield the line of each read of a listed fact that does not begin with `approved_events`."""
    for node in nodes_of(source):
        if not isinstance(node, ast.Call):
            continue
        names = {one.id for one in (node.func, *node.args) if isinstance(one, ast.Name)}
        if isinstance(node.func, ast.Attribute):
            names.add(node.func.attr)
        reads = {"newest", "events_of", "has", "planned_trims"} & names and LISTED & names
        frozen = any(
            isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "approved_events"
            for one in node.args
        )
        if (reads and not frozen) or ("attachment" in names and DOCUMENTS & names):
            yield node.lineno


def test_a_read_of_the_newest_fact_is_found() -> None:
    assert list(newest_facts("planned_trims(run.history.events())")) == [1]
    assert list(newest_facts("newest(run.history.events(), LossesReported)")) == [1]
    assert list(newest_facts("run.history.attachment(LOSSES)")) == [1]
    assert list(newest_facts("planned_trims(approved_events(run, ApprovalOf.ROLL))")) == []
    assert list(newest_facts("newest(approved_events(run, ApprovalOf.ROLL), LossesReported)")) == []


def test_no_action_takes_a_listed_fact_that_its_approver_may_not_have_read() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): list(newest_facts(path.read_text())) for path in PACKAGE.rglob("*.py")
    }
    assert {path for path, lines in found.items() if lines} == TEXTS | SHOWN_ONCE
