"""A field of a request is in the trigger form with the type of its values."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.fields import Field
from kafka_rollout.planning.request import SELDOM
from tests.fakes.cluster import make_spec
from tests.of_cluster import with_pace

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize(
    ("default", "name"),
    [("", ["null", "string"]), ("x", "string"), (False, "boolean"), (1, "integer"), (1.0, "number")],
)
def test_a_field_of_each_type_has_a_parameter_and_an_empty_text_can_be_sent(default: Any, name: Any) -> None:
    from kafka_rollout.airflow.graphs.forms import _param

    field = Field(title="Note", text="A note.", of=frozenset(RunOf), type=type(default), default=default)
    param = _param(field, make_spec(), [])
    assert (param.value, param.schema["type"]) == (default, name)


SHOWN = {RunOf.UPGRADE: 5, RunOf.DOWNGRADE: 6, RunOf.RESTART: 4, RunOf.FEATURES: 5}


@pytest.mark.parametrize("kind", list(RunOf))
def test_a_form_shows_few_fields_and_folds_the_others_in_one_section(kind: RunOf) -> None:
    """Airflow shows what has no section, and folds each section."""
    from kafka_rollout.airflow.graphs.forms import form_of

    form = form_of(kind, make_spec(), ["3.9.1", "4.3.1"])
    assert len([name for name, param in form.items() if "section" not in param.schema]) == SHOWN[kind]
    assert {param.schema["section"] for param in form.values() if "section" in param.schema} == {SELDOM}


@pytest.mark.parametrize("kind", list(RunOf))
def test_a_form_chooses_nothing_that_a_person_must_choose(kind: RunOf) -> None:
    from kafka_rollout.airflow.graphs.forms import form_of

    form = form_of(kind, make_spec(), ["3.9.1", "4.3.1"])
    safe = {"target_release": None, "finalize": "later", "downgrade_type": "SAFE", "lowering": "online"}
    assert {name: form[name].value for name in safe if name in form}.items() <= safe.items()
    assert not any(form[name].value for name in ("accept_unavailable", "skip_conditions") if name in form)


def test_a_pace_shows_the_numbers_of_its_cluster() -> None:
    from kafka_rollout.airflow.graphs.forms import form_of

    form = form_of(RunOf.UPGRADE, with_pace(make_spec(), soak_s=300.0), ["4.3.1"])
    assert form["pace"].schema["values_display"] == {
        "careful": "careful: 5 consecutive checks, 2 s apart, then a soak of 10 min 00 s",
        "normal": "normal: 3 consecutive checks, 1 s apart, then a soak of 5 min 00 s",
        "fast": "fast: 2 consecutive checks, 0.5 s apart, then no soak",
    }
