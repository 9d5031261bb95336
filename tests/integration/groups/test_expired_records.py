"""What an idempotent producer stores twice: the records of a batch whose request expires while it is under way.

librdkafka gives a produce request the remaining time of its oldest record. When it passes, the client does not know
whether the batch was stored. It takes the next producer epoch and sends the records that have not expired again, with
new sequence numbers, so that the broker does not recognize them (KIP-98 deduplicates within one epoch). The cluster
does nothing wrong. The test traffic therefore lets no record expire during an outage.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.formats.record_batch import batches, payload, records
from kafka_rollout.traffic.processes.main import read_marks
from kafka_rollout.traffic.processes.traffic import producer_settings
from kafka_rollout.traffic.traffic_check import LOG, Position, TrafficRecord, compare
from tests.integration.conftest import MakeCluster
from tests.integration.harness.faults.proxy import Proxy

pytestmark = [pytest.mark.integration, pytest.mark.full]

PRODUCE = struct.pack(">h", 0)


class SlowAnswers(Proxy):
    """Delays the responses to the next Produce requests by `delays`, seconds each."""

    def __init__(self, upstream: str) -> None:
        self.delays: list[float] = []
        super().__init__(upstream)

    def serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.upstream) as broker:
            requests, responses = client.makefile("rb"), broker.makefile("rb")
            while (request := _frame(requests)) is not None:
                broker.sendall(struct.pack(">i", len(request)) + request)
                if (response := _frame(responses)) is None:
                    return
                if request[:2] == PRODUCE and self.delays:
                    time.sleep(self.delays.pop(0))
                client.sendall(struct.pack(">i", len(response)) + response)


def _frame(stream: Any) -> bytes | None:
    size = stream.read(4)
    return stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else None


@pytest.mark.parametrize("expires", [True, False])
def test_a_batch_that_expires_under_way_is_stored_twice_and_none_of_the_test_traffic_expires(
    make_cluster: MakeCluster, expires: bool
) -> None:
    cluster = make_cluster("4.3.1", layout="combined", size=1, start=False)
    (node,) = cluster.spec.nodes
    proxy = SlowAnswers(str(node.broker_address))
    config = Path(str(node.directory)) / "server.properties"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("advertised.listeners=")]
    listener = f"advertised.listeners=PLAINTEXT://{proxy.address}"
    write_whole(config, "\n".join([*lines, listener, ""]).encode(), mode=0o644)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": proxy.address})
    admin.create_topics([NewTopic("expired", 1, 1)])["expired"].result(60)
    shorter = {"delivery.timeout.ms": 5_000} if expires else {}
    producer = Producer({**producer_settings({"bootstrap.servers": proxy.address}), **shorter})
    results: Counter[str] = Counter()
    acknowledged: list[TrafficRecord] = []

    def delivered(error: Any, message: Any) -> None:
        results["stored" if error is None else error.name()] += 1
        if error is None:
            acknowledged.append(TrafficRecord(position(message.offset()), message.key().decode()))

    def produce_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            producer.produce("expired", key=f"{time.monotonic_ns()}", value=b"x" * 64, on_delivery=delivered)
            producer.poll(0)
            time.sleep(0.01)

    produce_for(1.0)
    proxy.delays = [3.0, 6.0]  # one response while the queue grows, then the response to the whole queue
    produce_for(12.0)
    assert producer.flush(60) == 0

    stored: list[TrafficRecord] = []
    epochs = set()
    (segment,) = (Path(cluster.runtime.config(node)["log.dirs"]) / "expired-0").glob("*.log")
    for batch in batches(segment.read_bytes()):
        epochs.add(batch.producer_epoch)
        print(batch.base_offset, batch.record_count, batch.producer_epoch, batch.base_sequence)
        data = payload(batch)
        keys = ((r.offset, data[r.key_at : r.key_at + r.key_length].decode()) for r in records(batch, data))
        stored += [TrafficRecord(position(offset), key) for offset, key in keys]
    marks = partial(read_marks, proxy.address, ClientSecurity())
    found = compare(acknowledged, {}, {LOG: stored}, {}, marks).discrepancies
    print(f"{found}; {results}; producer epochs {sorted(epochs)}")
    if expires:
        assert [one.kind for one in found] == ["resent"], "nothing is lost, and the cluster doubled nothing"
        assert len(epochs) > 1, "the same producer, with a new epoch"
    else:
        assert (found, len(epochs)) == ((), 1)


def position(offset: int) -> Position:
    return Position("expired", 0, offset)
