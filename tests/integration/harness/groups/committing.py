"""Committed offsets of groups that did not exist before."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.waiting import wait_until

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
