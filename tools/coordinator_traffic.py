"""Traffic that fills the coordinator logs, records that are written into them directly, and an independent count.

For tests and for recording fixtures. Uses librdkafka alone, not the decoding of this project. librdkafka has no streams
groups (KIP-1071); they are joined by hand-made requests.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
ORDERS = "orders"

# topic partition, key version, value version → (count, first offset)
Counts = dict[tuple[int, int, int | None], tuple[int, int]]

_MESSAGES = 120
_DEADLINE_S = 180.0  # enough for a busy machine


def make_traffic(servers: str, *, consumer_protocol: bool, all_groups: bool = False) -> None:
    """Run groups of both protocols (if the cluster has them) that commit and leave, and transactions of all results.

    `all_groups` (4.2 and later): share groups and streams groups as well.
    """
    _create_topic(servers)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(_MESSAGES):
        producer.produce(ORDERS, b"order %d" % number, key=b"%d" % number)
    producer.flush(_DEADLINE_S)
    for name in ("tx-a", "tx-b", "tx-c"):
        _transactions(servers, name)
    protocols = ["classic", *(["consumer"] if consumer_protocol else [])]
    for protocol in protocols:
        for number in range(3):
            _consume(servers, f"{protocol}-{number}", protocol)
    _commit_in_transactions(servers)
    if all_groups:
        for number in range(2):
            _share(servers, f"share-{number}")
            _stream(servers, f"streams-{number}")


def plant(servers: str, topic: str, partition: int, records: list[tuple[bytes, bytes | None]], codec: str) -> None:
    """Write records into a coordinator log: brokers allow this for clients with the id __admin_client."""
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": servers, "client.id": "__admin_client", "compression.type": codec, "linger.ms": 50}
    )
    for key, value in records:
        producer.produce(
            topic, value, key=key, partition=partition, on_delivery=lambda error, _: failures.append(error)
        )
    producer.flush(_DEADLINE_S)
    if len(failures) != len(records) or any(failures):
        raise RuntimeError(f"records were not planted in {topic}-{partition}: {failures}")


def versioned(version: int, rest: bytes = b"") -> bytes:
    """Return a key or value that begins with this version."""
    return struct.pack(">h", version) + rest


def count_by_consumer(servers: str, topic: str) -> Counts:
    """Count the record kinds of a log with a plain consumer, which joins no group and commits nothing."""
    counts: Counts = {}
    for partition, offset, key, value in _consume_all(servers, topic):
        value_version = None if value is None else struct.unpack(">h", value[:2])[0]
        what = (partition, struct.unpack(">h", key[:2])[0], value_version)
        count, first = counts.get(what, (0, offset))
        counts[what] = (count + 1, first)
    return counts


def _consume_all(servers: str, topic: str) -> Iterator[tuple[int, int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ended: set[int] = set()
        deadline = time.monotonic() + _DEADLINE_S
        while len(ended) < len(partitions):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} was not consumed to its end in {_DEADLINE_S:g} s")
            message = consumer.poll(0.5)
            if message is None:
                continue
            place = cast(tuple[int, int], (message.partition(), message.offset()))
            if (error := message.error()) is None:
                yield *place, cast(bytes, message.key()), message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place[0])
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def _create_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        admin.create_topics([NewTopic(ORDERS, 3, 1)])[ORDERS].result(_DEADLINE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _transactions(servers: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(_DEADLINE_S)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(ORDERS, b"in a transaction")
        end(_DEADLINE_S)


def _consume(servers: str, group: str, protocol: str) -> None:
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.protocol": protocol, "enable.auto.commit": False})
    consumer.subscribe([ORDERS])
    seen, deadline = 0, time.monotonic() + _DEADLINE_S
    while seen < _MESSAGES:
        if time.monotonic() > deadline:
            raise RuntimeError(f"group {group} consumed {seen} of {_MESSAGES} records in {_DEADLINE_S:g} s")
        message = consumer.poll(0.5)
        if message is None or message.error():
            continue
        seen += 1
        if seen % 30 == 0:
            consumer.commit(message=message, asynchronous=False)
    consumer.close()


def _commit_in_transactions(servers: str) -> None:
    """Offsets committed and aborted in transactions: control batches in __consumer_offsets."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "in-tx", "enable.auto.commit": False})
    consumer.subscribe([ORDERS])
    deadline = time.monotonic() + _DEADLINE_S
    while not consumer.assignment():
        if time.monotonic() > deadline:
            raise RuntimeError(f"group in-tx was given no partition in {_DEADLINE_S:g} s")
        consumer.poll(0.2)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx-offsets"})
    producer.init_transactions(_DEADLINE_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        offsets = [TopicPartition(ORDERS, 0, 5)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _DEADLINE_S)
        end(_DEADLINE_S)
    consumer.close()


def _share(servers: str, group: str) -> None:
    """A share group (KIP-932) takes messages that are produced once its partitions are initialized, and leaves."""
    consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": group})
    producer = Producer({"bootstrap.servers": servers})
    consumer.subscribe([ORDERS])
    seen, deadline = 0, time.monotonic() + _DEADLINE_S
    while seen < _MESSAGES // 4:
        if time.monotonic() > deadline:
            raise RuntimeError(f"share group {group} was given {seen} messages in {_DEADLINE_S:g} s")
        producer.produce(ORDERS, b"to be shared")
        producer.flush(_DEADLINE_S)
        seen += len(consumer.poll(0.5))
    consumer.commit_sync()
    consumer.close()


def _stream(servers: str, group: str) -> None:
    """A streams group of one member that joins with a topology of one source topic, gets its tasks, and leaves."""
    epoch, deadline = 0, time.monotonic() + _DEADLINE_S
    while epoch < 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"streams group {group} gave its member no epoch in {_DEADLINE_S:g} s")
        epoch = _streams_heartbeat(servers, group, 0, joins=True)
    _streams_heartbeat(servers, group, epoch, joins=False)
    _streams_heartbeat(servers, group, -1, joins=False)


_STREAMS_GROUP_HEARTBEAT = 88
_RETRIABLE = (14, 15, 16)  # the coordinator loads, is not available, or is another broker


def _streams_heartbeat(servers: str, group: str, epoch: int, *, joins: bool) -> int:
    """StreamsGroupHeartbeat v0 to the only broker; the member's epoch, 0 when the coordinator is not ready yet."""
    nothing, no_struct, null = (
        b"\x01",
        b"\xff",
        b"\x00",
    )  # an empty array, an absent struct, a null of flexible versions
    subtopology = _compact("0") + b"\x02" + _compact(ORDERS) + nothing * 5 + b"\0"
    topology = b"\x01" + struct.pack(">i", 1) + b"\x02" + subtopology + b"\0"
    body = _compact(group) + _compact("member") + struct.pack(">ii", epoch, 0) + null * 2
    body += struct.pack(">i", 30_000) + (topology if joins else no_struct)
    body += nothing * 3 + _compact("process") + no_struct + (nothing if joins else null) + null * 2 + b"\0\0"
    header = struct.pack(">hhih", _STREAMS_GROUP_HEARTBEAT, 0, 1, -1) + b"\0"
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=_DEADLINE_S) as link, link.makefile("rb") as answers:
        link.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    (error,) = struct.unpack_from(">h", answer, 9)  # after the correlation id, no tagged fields, and the throttle time
    if error in _RETRIABLE:
        time.sleep(0.2)
        return 0
    if error:
        raise RuntimeError(f"StreamsGroupHeartbeat of {group} was answered {error}: {answer[11:80]!r}")
    at = 11
    for _ in ("error message", "member id"):
        at += max(1, answer[at])  # its length and one; a null is 0
    return int(struct.unpack_from(">i", answer, at)[0])


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
