"""Only `gates/reasons.py` makes a text of unmet conditions; other modules take its reason."""

from __future__ import annotations

import ast
import re

from tests.architecture.rooms import PACKAGE

# They show a condition that is met, or add to its evidence; none shows why a gate waits.
ALLOWED = {
    "control/holds.py": "values from outside in the text of a pause",
    "roll/gate_checks.py": "adds to the evidence",
}


def test_no_other_module_reads_the_evidence_of_a_condition() -> None:
    found = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        where = str(file.relative_to(PACKAGE))
        if where.startswith("gates/"):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(one, ast.Attribute) and one.attr == "evidence" for one in ast.walk(tree)):
            found.add(where)
    assert found == set(ALLOWED)


def test_what_stopped_a_run_is_read_from_its_view_alone() -> None:
    """Status, page, report and notifications have one sentence, `RunView.cause`."""
    found = {
        str(file.relative_to(PACKAGE))
        for room in ("console", "report", "notifications", "cli")
        for file in (PACKAGE / room).rglob("*.py")
        if re.search(r"\bview\.(problem|locked_out)\b", file.read_text(encoding="utf-8"))
    }
    assert found == set()
