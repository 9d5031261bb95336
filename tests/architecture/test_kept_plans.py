"""Each way to store a plan makes approvals invalid that did not read what is in it: `keep_plan`."""

from __future__ import annotations

from tests.architecture.test_covered_traffic import files, users_of


def test_one_function_stores_plans() -> None:
    assert files(lambda source: users_of("save_plan", source)) == {"preparation/frozen_plan.py"}
