from __future__ import annotations

import pytest

from kafka_rollout.model.configs import (
    is_reference,
    known_number,
    literal_settings,
    unresolved_settings,
    with_inventory_values,
)
from tests.unit.builders import COMBINED

CONFIG = {
    "node.id": "${env:ID}",
    "process.roles": "broker",
    "config.providers": "env,${x:y}",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "advertised.listeners": "PLAINTEXT://${env:HOST}:9092",
    "log.dirs": "/data/$name/{a:b}",
}


@pytest.mark.parametrize("value", ["${env:A}", "a ${file:/etc/kafka/x.properties:key} b", "${a\nb:c}", "${a:"])
def test_a_value_with_a_reference_is_unknown(value: str) -> None:
    assert is_reference(value)


@pytest.mark.parametrize("value", ["", "$env:A", "${HOME}", "{a:b}", "RULE:[1:$1](.*)s/@.*//"])
def test_other_values_are_literal(value: str) -> None:
    assert not is_reference(value)


def test_the_settings_of_providers_are_neither_literal_nor_unresolved() -> None:
    assert unresolved_settings(CONFIG) == ("advertised.listeners", "node.id")
    assert literal_settings(CONFIG) == {"process.roles": "broker", "log.dirs": "/data/$name/{a:b}"}


def test_the_inventory_has_the_id_and_the_roles() -> None:
    known = with_inventory_values(COMBINED.node(1), {**CONFIG, "process.roles": "${env:ROLES}"})
    assert (known["node.id"], known["process.roles"]) == ("1", "broker,controller")
    assert known["advertised.listeners"] == CONFIG["advertised.listeners"]
    # A value of the file is never replaced.
    assert with_inventory_values(COMBINED.node(1), {"node.id": "7"}) == {"node.id": "7"}


def test_a_number_can_be_unknown() -> None:
    assert known_number({}, "a", 5) == 5
    assert known_number({"a": "7"}, "a", 5) == 7
    assert known_number({"a": "${env:A}"}, "a", 5) is None
