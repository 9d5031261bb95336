"""Whether a cluster acknowledges a record."""

from __future__ import annotations

from confluent_kafka import KafkaError, Producer


def error_with_acks_all(bootstrap_servers: str, topic: str) -> int | None:
    """The error code of one record with acks=all; None: it was acknowledged."""
    errors: list[int | None] = []
    settings = {"bootstrap.servers": bootstrap_servers, "acks": "all", "retries": 0, "message.timeout.ms": 120_000}
    producer = Producer({**settings, "log_level": 0})

    def delivered(error: KafkaError | None, _: object) -> None:
        errors.append(None if error is None else error.code())

    producer.produce(topic, b"a record", on_delivery=delivered)
    producer.flush(150)
    (error,) = errors
    return error
