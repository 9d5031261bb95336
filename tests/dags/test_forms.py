"""A field of a request is in the trigger form with the type of its values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.last_seen import LastSeen, write_last_seen
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.fields import Field
from kafka_rollout.planning.request import SELDOM
from tests.fakes.cluster import R391, make_spec
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

    form = form_of(kind, make_spec(), ["3.9.1", "4.3.1"], "")
    assert len([name for name, param in form.items() if "section" not in param.schema]) == SHOWN[kind]
    assert {param.schema["section"] for param in form.values() if "section" in param.schema} == {SELDOM}


@pytest.mark.parametrize("kind", list(RunOf))
def test_a_form_chooses_nothing_that_a_person_must_choose(kind: RunOf) -> None:
    from kafka_rollout.airflow.graphs.forms import form_of

    form = form_of(kind, make_spec(), ["3.9.1", "4.3.1"], "")
    safe = {"target_release": None, "finalize": "later", "downgrade_type": "SAFE", "lowering": "online"}
    assert {name: form[name].value for name in safe if name in form}.items() <= safe.items()
    assert not any(form[name].value for name in ("accept_unavailable", "skip_conditions") if name in form)


def test_a_pace_shows_the_numbers_of_its_cluster() -> None:
    from kafka_rollout.airflow.graphs.forms import form_of

    form = form_of(RunOf.UPGRADE, with_pace(replace(make_spec(), paces={}), soak_s=300.0), ["4.3.1"], "")
    assert form["pace"].schema["values_display"] == {
        "careful": "careful: 5 consecutive checks, 2 s apart, then a soak of 10 min 00 s",
        "normal": "normal: 3 consecutive checks, 1 s apart, then a soak of 5 min 00 s",
        "fast": "fast: 3 consecutive checks, 1 s apart, then a soak of 10 s",
    }


MORNING = 1764460800.0  # 2025-11-30T00:00:00Z


def test_each_form_shows_the_release_that_was_last_seen_and_its_date(inventory: Path) -> None:
    """A form that changes at every parse would be a new version of its DAG each time."""
    from airflow.serialization.serialized_objects import DagSerialization

    from kafka_rollout.airflow.graphs.cluster_dags import dags_of_changes

    def shown() -> dict[str, str]:
        dags = dags_of_changes(Settings.from_environment())
        kept.append({dag_id: DagSerialization.to_dict(dag) for dag_id, dag in dags.items()})
        return {
            dag_id: next(iter(dag.params.get_param(name) for name in dag.params)).description or ""
            for dag_id, dag in dags.items()
        }

    kept: list[dict[str, Any]] = []
    assert {text.split(".")[0] for text in shown().values()} == {"The running release has not been seen yet"}
    for hour in (3, 15):
        seen = LastSeen(at=MORNING + hour * 3600, releases={R391: 6}, unknown=0, metadata_version="3.9-IV0")
        write_last_seen("fake", seen, Settings.from_environment())
        begin = "Running when last seen, on 2025-11-30 (UTC): 3.9.1, metadata.version 3.9-IV0. "
        assert all(text.startswith(begin) for text in shown().values())
    assert len(shown()) == len(RunOf)
    assert kept[1] == kept[2] != kept[0]
