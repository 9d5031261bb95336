"""What no node reports is not level 0: what acts on finalized levels asks for known ones (FinalizedLevels)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from kafka_rollout.model.finalized_levels import FinalizedLevels
from tests.architecture.rooms import PACKAGE, nodes_of

# Module → why empty levels do no harm there.
SHOWN = {
    "cli/feature_table.py": "a page",
    "console/downgrade_options.py": "an unknown level is a reason of its own (_not_fresh)",
    "feature_updates/levels.py": "the sentence of a refusal",
    "feature_updates/update.py": "a plan, which is refused without a metadata.version",
    "features/requests.py": "a plan; range_findings reports the unknown",
    "features/rules.py": "a plan; what acts asks for known levels first",
    "features/support.py": "a plan; what acts asks for known levels first",
    "groups/findings.py": "without a level no group is served, which is a finding",
    "planning/downgrade.py": "a plan",
    "planning/findings/cluster_state.py": "the remedy of a finding",
    "planning/plan_checks.py": "a plan, which reports Need.LEVELS",
    "planning/registration.py": "a plan",
    "preparation/metadata_errors.py": "without a level no error is expected",
    "preparation/plan_making.py": "a plan",
    "procedure/actions.py": "the log of a task",
    "report/builders.py": "a page",
    "report/feature_levels.py": "a table",
    "report/check_registry.py": "a check, which reports Need.LEVELS",
    "run/projections/observations.py": "the history, in which no levels are unknown ones",
}
MAPPING = {"get", "items", "keys", "values", "__getitem__", "__contains__", "__iter__", "__len__", "__eq__"}


def readers(source: str) -> Iterator[int]:
    """Yield the lines that read levels which can be empty because they are unknown."""
    for node in nodes_of(source):
        value = node.value if isinstance(node, ast.Attribute) and node.attr == "reported" else None
        if isinstance(value, ast.Attribute) and value.attr == "finalized":
            yield value.lineno


def test_only_plans_and_pages_read_levels_that_can_be_unknown() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if list(readers(path.read_text()))}
    assert found == SHOWN.keys(), "ask for known levels"


@pytest.mark.parametrize("source", ["state.finalized.reported.get(a, 0)", "levels_now(p).finalized.reported"])
def test_such_a_reader_is_seen(source: str) -> None:
    assert list(readers(source)) == [1]


def test_levels_that_can_be_unknown_are_no_mapping() -> None:
    own = {name for name in MAPPING if name in vars(FinalizedLevels)}
    assert own <= {"__eq__"}
    assert {name for name in MAPPING if hasattr(FinalizedLevels, name)} <= {"__eq__"}
