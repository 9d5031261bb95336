"""A plan with more batches than Airflow can wait for is refused before the roll."""

from __future__ import annotations

import pytest

from kafka_rollout.airflow.operators.replace_batch import refuse_too_many
from kafka_rollout.base.errors import RefusedError


@pytest.mark.parametrize(
    ("variable", "value", "setting"),
    [
        ("AIRFLOW__CORE__MAX_MAP_LENGTH", "40", "max_map_length of [core] to 41"),
        (
            "AIRFLOW__TRIGGERER__CAPACITY",
            "122",
            "capacity of [triggerer] to 123",
        ),  # a trigger for each part
    ],
)
def test_each_limit_is_named_with_the_value_that_it_needs(
    variable: str, value: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_too_many(41)  # the defaults are above
    monkeypatch.setenv(variable, value)
    refuse_too_many(40)
    with pytest.raises(RefusedError, match="The plan has 41 batches") as refused:
        refuse_too_many(41)
    assert f"Set {setting} or more" in str(refused.value.remedy)
