"""Committed offsets of groups that did not exist before."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.waiting import wait_until

_S = 180.0  # a busy machine
_NOT_YET = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


def commit(consumer: Consumer, *offsets: TopicPartition) -> None:
    """Commit these offsets. Repeat it while the partition of the group has no coordinator: its topic may be new."""

    def was_committed() -> bool:
        try:
            consumer.commit(offsets=list(offsets), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return False
        return True

    wait_until(was_committed, 120)


def write_group_and_transaction(servers: str, topic: str) -> None:
    """Write ten records in a transaction of `tx-1`, and commit an offset of the group `billing`."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx-1", "log_level": 0})
    producer.init_transactions(_S)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(topic, str(number))
    producer.commit_transaction(_S)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "billing", "enable.auto.commit": False})
    commit(consumer, TopicPartition(topic, 0, 7))
    consumer.close()
