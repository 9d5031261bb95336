"""Groups that a run waits for at its gate: members through clients, and what people do while it waits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy import select

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.gates.gate import GateCheck, GateKind
from kafka_rollout.releases.jvm.jvm import Jvm
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import GateChecked
from kafka_rollout.run.store.event_json import decode
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.store.tables import events
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.groups.members import DEADLINE_S, wait_until
from tests.records import database_of
from tools.demo.local_cluster import LocalCluster

TOPIC, PARTITIONS, RECORDS = "orders", 6, 60
EAGER = {"partition.assignment.strategy": "range"}
CONSUMER = {"group.protocol": "consumer"}


class Members(threading.Thread):
    """Members of groups, all polled by one thread; what is done to them is done by that thread."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._members: dict[str, list[Any]] = {}
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self.start()

    def join_group(self, group: str, number: int, **settings: Any) -> None:
        base = {"bootstrap.servers": self._servers, "group.id": group, "auto.offset.reset": "earliest"}
        made = [Consumer({**base, **settings}) for _ in range(number)]
        self._add(group, made)

    def _add(self, group: str, made: list[Any]) -> None:
        for member in made:
            member.subscribe([TOPIC])
        with self._lock:
            self._members.setdefault(group, []).extend(made)

    def leave_group(self, group: str) -> None:
        with self._lock:
            for member in self._members.pop(group):
                member.close()

    def run(self) -> None:
        while not self._ending.is_set():
            with self._lock:
                for member in [one for members in self._members.values() for one in members]:
                    member.poll(0.01)
            time.sleep(0.01)

    def end(self) -> None:
        self._ending.set()
        self.join(DEADLINE_S)
        for group in list(self._members):
            self.leave_group(group)


@contextmanager
def members_of(cluster: LocalCluster) -> Iterator[Members]:
    """A topic with records, and members to come."""
    servers = cluster.spec.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    copies = len(cluster.spec.brokers)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, copies)])[TOPIC].result(DEADLINE_S)
    wait_until_all_know(cluster.spec)
    write(servers, RECORDS)
    members = Members(servers)
    try:
        yield members
    finally:
        members.end()


@contextmanager
def shared(servers: str, group: str) -> Iterator[None]:
    """A member of a share group, polling in a thread."""
    ending = threading.Event()
    consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": group, "client.id": "sharer"})
    consumer.subscribe([TOPIC])

    def poll() -> None:
        while not ending.is_set():
            consumer.poll(0.2)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(DEADLINE_S)
        consumer.close()


def write(servers: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(records):
        producer.produce(TOPIC, str(number))
    assert producer.flush(DEADLINE_S) == 0


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """What people do while the run waits; raises afterwards what went wrong there."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert not failed, failed


def wait_for_gate(home: Path, met: Mapping[str, bool] | None = None) -> dict[str, str]:
    """Until a run waits for groups: the check's evidence by condition. `met`: what must be reported of
    these conditions, by how their names begin."""
    found: dict[str, str] = {}

    def waits() -> bool:
        for check in _checks(home):
            seen = {name: each.is_met for each in check.conditions for name in met or () if each.name.startswith(name)}
            if seen == (met or {}) and not check.passes:
                found.update({each.name: each.evidence for each in check.conditions})
        return bool(found)

    wait_until(waits, "the gate of the groups waits", within_s=5 * DEADLINE_S)
    return found


def gate_holds(home: Path) -> bool:
    return any(check.passes for check in _checks(home))


def waits_for(home: Path, name: str) -> bool:
    """Whether the newest check waits for this condition alone."""
    checks = list(_checks(home))
    return bool(checks) and [each.name for each in checks[-1].conditions if not each.is_met] == [name]


def _checks(home: Path) -> Iterator[GateCheck]:
    with database_of(home).reading() as connection:
        bodies = [json.loads(body) for body in connection.execute(select(events.c.body)).scalars()]
    for event in events_of((decode(body["kind"], body["at"], body["data"]) for body in bodies), GateChecked):
        if event.ref.kind is GateKind.GROUPS:
            yield event.check


def stable(cluster: LocalCluster, **members: int) -> bool:
    with KafkaAdmin(cluster.spec) as admin:
        try:
            found = {group.group_id: group for group in admin.groups()}
        except TransientError:  # a coordinator still loads
            return False
    return all(
        name in found and found[name].members == number and found[name].state.lower() == "stable"
        for name, number in members.items()
    )


def looks_at_groups(record: SqlRunStore) -> list[dict[str, str]]:
    """What each recorded check of the gate said, by condition."""
    (gate,) = [gate for gate in record.attachment("report.json")["gates"] if gate["kind"] == GateKind.GROUPS]
    assert gate["state"] == "passed"
    return [{each["name"]: each["evidence"] for each in check["conditions"]} for check in gate["checks"]]


def consumer_of_preview(jvm: Jvm, servers: str, group: str) -> Callable[..., bool]:
    """A consumer of the release's own: librdkafka speaks no protocol of a preview. Called, it polls, or leaves."""
    text = "org.apache.kafka.common.serialization.StringDeserializer"
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer",
        "key.deserializer": text,
        "value.deserializer": text,
    }
    properties = jvm.packages.java.util.Properties()
    for key, value in settings.items():
        properties.put(key, value)
    consumer = jvm.packages.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    topics = jvm.packages.java.util.ArrayList()
    topics.add(TOPIC)
    consumer.subscribe(topics)

    def poll(*, leave: bool = False) -> bool:
        if leave:
            consumer.close()
        else:
            consumer.poll(jvm.packages.java.time.Duration.ofMillis(200))
        return False

    return poll
