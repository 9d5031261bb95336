"""A field of a request is in the trigger form with the type of its values."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.fields import Field

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize(
    ("default", "name"),
    [("", ["null", "string"]), ("x", "string"), (False, "boolean"), (1, "integer"), (1.0, "number")],
)
def test_a_field_of_each_type_has_a_parameter_and_an_empty_text_can_be_sent(default: Any, name: Any) -> None:
    from kafka_rollout.airflow.graphs.forms import _param

    field = Field(title="Note", text="A note.", of=frozenset(RunOf), type=type(default), default=default)
    param = _param(field, RunOf.UPGRADE, [])
    assert (param.value, param.schema["type"]) == (default, name)
