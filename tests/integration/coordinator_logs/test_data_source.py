"""The data source on a real broker with SCRAM and TLS: every record, a stream, and where its credentials are."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafka_rollout.base.errors import UserError
from pyspark_kafka_coordinator_log.schema import read_schema
from pyspark_kafka_coordinator_log.source import LogReader, LogStreamReader, Reading
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.committing import commit
from tests.integration.harness.security.secured import READER, ROOT, SecuredCluster, scram

pytestmark = [pytest.mark.integration, pytest.mark.full]

OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def secured(make_shared_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> SecuredCluster:
    folder = tmp_path_factory.mktemp("secured")
    found = SecuredCluster.create(make_shared_cluster, "4.3.1", folder, name="source", layout="combined", size=1)
    found.use_coordinators()
    return found


@pytest.fixture
def properties(secured: SecuredCluster, tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{READER}" password="{secured.passwords[READER]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.files}/ca.pem\n"
    )
    path.chmod(0o600)
    return path


def reading(secured: SecuredCluster, properties: Path) -> Reading:
    options = {"kafka.bootstrap.servers": secured.spec.bootstrap_servers, "client.properties": str(properties)}
    return Reading.of(options, read_schema())


def rows_of(reader: LogReader | LogStreamReader, splits: list[Any]) -> list[dict[str, Any]]:
    """Of splits that went through pickle, as Spark sends them."""
    carried = pickle.loads(pickle.dumps(splits))  # noqa: S301 - our own
    return [row for split in carried for batch in reader.read(split) for row in batch.to_pylist()]


def test_every_record_of_a_broker_is_a_row(secured: SecuredCluster, properties: Path) -> None:
    reader = LogReader(reading(secured, properties))
    found = rows_of(reader, reader.partitions())
    assert {row["topic"] for row in found} >= {OFFSETS, "__transaction_state"}
    assert {row["replica"] for row in found} == {"broker 1"}
    assert not any(row["damage"] or row["broken"] for row in found)
    assert {row["record"] for row in found} >= {"OffsetCommit", "TransactionLog"}
    logs = reading(secured, properties).find()
    read = Counter((row["topic"], row["partition"]) for row in found)
    assert all(read[log.topic, log.partition] <= log.end - log.start for log in logs.logs)
    assert set(read) == {(log.topic, log.partition) for log in logs.logs if log.end > log.start}


def test_a_stream_continues_with_new_commits(secured: SecuredCluster, properties: Path) -> None:
    reader = LogStreamReader(reading(secured, properties))
    begin = reader.initialOffset()
    at = reader.latestOffset(begin, ReadAllAvailable())
    whole = rows_of(reader, list(reader.partitions(begin, at)))
    assert {row["topic"] for row in whole} >= {OFFSETS, "__transaction_state"}
    root = scram(secured.files, ROOT, secured.passwords[ROOT]).confluent()
    servers = {"bootstrap.servers": secured.spec.bootstrap_servers, "group.id": "appended"}
    consumer = Consumer({**root, **servers, "enable.auto.commit": False})
    commit(consumer, TopicPartition("orders", 0, 7))
    consumer.close()
    end = reader.latestOffset(at, ReadAllAvailable())
    new = rows_of(reader, list(reader.partitions(at, end)))
    assert {row["group"] for row in new} == {"appended"}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_no_split_carries_a_password_and_others_cannot_read_the_file(secured: SecuredCluster, properties: Path) -> None:
    reader = LogReader(reading(secured, properties))
    carried = pickle.dumps((reader, reader.partitions()))
    assert secured.passwords[READER].encode() not in carried
    assert properties.name.encode() in carried
    properties.chmod(0o644)
    with pytest.raises(UserError, match=r"can be read by other users \(mode 0644\)"):
        reader.partitions()
