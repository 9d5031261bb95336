"""The options of the data source: what it takes, and what it refuses in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from pyspark_kafka_coordinator_log.options import OPTIONS, PROPERTIES, SERVERS, Options


def test_paths_and_urls_are_the_arguments_of_load() -> None:
    assert Options.parse({"path": "/copies/1"}).places == ("/copies/1",)
    assert Options.parse({"paths": '["s3://copies/1","s3://copies/2"]'}).places == ("s3://copies/1", "s3://copies/2")


def test_the_case_of_an_option_does_not_count() -> None:
    given = {"Kafka.Bootstrap.Servers": "a:9092", "Client.Properties": "/etc/c.properties", "replicas": "All"}
    found = Options.parse(given)
    assert (found.servers, found.properties, found.all_replicas) == ("a:9092", Path("/etc/c.properties"), True)


def test_topics_are_separated_by_commas() -> None:
    assert Options.parse({"path": "/a", "topics": " __transaction_state, "}).topics == ("__transaction_state",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs either paths or the option kafka.bootstrap.servers"),
        ({"path": "/a", SERVERS: "a:9092"}, "needs either paths or the option kafka.bootstrap.servers"),
        ({"path": "/a", "topic": "x"}, f"no option topic. Its options: {', '.join(OPTIONS)}."),
        ({"path": "/a", "replicas": "some"}, "The option replicas cannot be 'some'. Use leader or all."),
        ({"path": "/a", "startingOffsets": "5"}, "Use earliest or latest."),
        ({"path": "/a", "maxOffsetsPerTrigger": "0"}, "Use a number of at least 1."),
    ],
)
def test_a_wrong_option_is_refused_with_a_remedy(given: dict[str, str], words: str) -> None:
    with pytest.raises(UserError) as refused:
        Options.parse(given)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["kafka.sasl.jaas.config", "sasl.password", "kafka.ssl.keystore.key", "jaas"])
def test_credentials_are_never_an_option_and_never_quoted(name: str) -> None:
    with pytest.raises(UserError) as refused:
        Options.parse({SERVERS: "a:9092", name: "very-secret"})
    assert "very-secret" not in str(refused.value)
    assert PROPERTIES in refused.value.remedy
    assert "0600" in refused.value.remedy
