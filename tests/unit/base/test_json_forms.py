"""What an earlier version has stored can be read, and what is stored has the same form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_rollout.base.json_forms import from_json, to_json
from tests.json_examples import VALUES

STORED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "json-forms.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_the_stored_form(name: str) -> None:
    assert json.dumps(to_json(VALUES[name])) == json.dumps(STORED[name])


@pytest.mark.parametrize("name", VALUES)
def test_a_stored_form_is_read_as_the_value(name: str) -> None:
    assert from_json(type(VALUES[name]), STORED[name]) == VALUES[name]


def test_an_optional_field_that_an_earlier_version_did_not_store_has_its_default() -> None:
    stored = {name: STORED["scan without contents"][name] for name in ("cluster", "scanned_at", "logs", "classes")}
    assert from_json(type(VALUES["scan"]), {**stored, "verdicts": []}) == VALUES["scan without contents"]


@pytest.mark.parametrize("data", [{}, [], {"cluster": "orders"}, {**STORED["scan"], "logs": [{"topic": 3}]}])
def test_data_of_another_form_are_refused(data: Any) -> None:
    with pytest.raises(ValidationError):
        from_json(type(VALUES["scan"]), data)
