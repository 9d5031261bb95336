"""Dynamic configuration as brokers report it: batches, own values, secrets, several resources."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.client.contents import read_configs, read_effective
from kafka_rollout.client.requests import ClusterConnections, ResourceType, Target
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import HIDDEN, ConfigSource, Setting

BROKER = Target(node_id=1, address="broker-1:9092", who="Broker 1")
TOPIC_SOURCE, DEFAULT_SOURCE, ALL_BROKERS_SOURCE, FILE_SOURCE = 1, 5, 3, 4


class Nodes:
    """Answers every DescribeConfigs by a function of the resource's name."""

    def __init__(self, answer: Callable[[str], tuple[int, list[Any]]]) -> None:
        self.sizes: list[int] = []
        self._answer = answer

    def ask(self, target: Target, request: Any) -> Any:
        self.sizes.append(len(request.resources))
        results = []
        for resource in request.resources:
            code, configs = self._answer(resource.resource_name)
            results.append(
                SimpleNamespace(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=code,
                    error_message="",
                    configs=configs,
                )
            )
        return SimpleNamespace(results=results)


def setting(name: str, value: str, source: int = TOPIC_SOURCE, *, secret: bool = False, of: int = 0) -> SimpleNamespace:
    """`of`: DescribeConfigsResponse.ConfigType, by its number."""
    return SimpleNamespace(name=name, value=value, config_source=source, is_sensitive=secret, config_type=of)


def read(nodes: Nodes, kind: ResourceType, names: list[str]) -> dict[str, dict[str, str]]:
    return read_configs(cast(ClusterConnections, nodes), BROKER, kind, names)


def test_many_topics_are_read_in_batches_and_only_their_own_values_are_kept() -> None:
    nodes = Nodes(
        lambda name: (
            0,
            [setting("retention.ms", "1")] * name.endswith("7") + [setting("segment.ms", "2", DEFAULT_SOURCE)],
        )
    )
    found = read(nodes, ResourceType.TOPIC, [f"orders-{number}" for number in range(1201)])
    assert nodes.sizes == [500, 500, 201]
    assert len(found) == 120
    assert found["orders-7"] == {"retention.ms": "1"}


def test_the_default_of_all_brokers_is_not_the_value_of_one_broker() -> None:
    nodes = Nodes(lambda name: (0, [setting("log.retention.ms", "1", ALL_BROKERS_SOURCE)]))
    assert read(nodes, ResourceType.BROKER, [""]) == {"": {"log.retention.ms": "1"}}
    assert read(nodes, ResourceType.BROKER, ["1"]) == {}


def test_all_effective_values_are_read_with_their_sources_and_without_secrets() -> None:
    nodes = Nodes(
        lambda name: (
            0,
            [
                setting("min.insync.replicas", "1", ALL_BROKERS_SOURCE, of=3),
                setting("segment.ms", "2", DEFAULT_SOURCE, of=5),
                setting("ratio", "0.5", DEFAULT_SOURCE, of=6),
                setting("ssl.key.password", "geheim", FILE_SOURCE, secret=True),
                setting("delegation.token.secret.key", "geheim", DEFAULT_SOURCE, secret=True),
            ],
        )
    )
    found = read_effective(cast(ClusterConnections, nodes), BROKER, ResourceType.BROKER, ["1"])
    assert found == {
        "1": {
            "min.insync.replicas": Setting("1", ConfigSource.ALL_BROKERS, ValueType.INT),
            "segment.ms": Setting("2", ConfigSource.DEFAULT, ValueType.LONG),
            "ratio": Setting("0.5", ConfigSource.DEFAULT, ValueType.DOUBLE),
            "ssl.key.password": Setting(HIDDEN, ConfigSource.FILE),
            "delegation.token.secret.key": Setting(None, ConfigSource.DEFAULT),
        }
    }


def test_a_secret_is_hidden_and_a_deleted_topic_is_left_out() -> None:
    nodes = Nodes(lambda name: (3, []) if name == "gone" else (0, [setting("ssl.key.password", "geheim", secret=True)]))
    assert read(nodes, ResourceType.TOPIC, ["gone", "kept"]) == {"kept": {"ssl.key.password": HIDDEN}}


def test_a_missing_right_names_the_resource() -> None:
    with pytest.raises(RefusedError, match="DESCRIBE_CONFIGS"):
        read(Nodes(lambda name: (29, [])), ResourceType.TOPIC, ["orders"])
