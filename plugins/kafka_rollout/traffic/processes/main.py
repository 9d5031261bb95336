"""A background process of a run: test traffic, or the group monitor.

It runs through every stop of a node, and outlives the task that starts it. Its credentials come through the standard
input; its settings, stop requests, progress and result go through the database.

A traffic period has a folder with journals on the machine of its process. At the end the producers stop, the consumers
read to the end, the whole log is read again, and the acknowledged records are compared with both. A killed process is
started again on its host with `--drain`: it only reads to the end and compares.

The group monitor describes a cluster's groups about once a second. It only reads. What it has seen goes to the database
every ten seconds and at the end.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import end_event
from kafka_rollout.client.connection import NodeConnection, ask_api_versions
from kafka_rollout.client.coordinators import groups_of_broker
from kafka_rollout.client.features import node_features
from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.client.requests import ClusterConnections
from kafka_rollout.client.security.carried_security import CarriedSecurity, remove_stale_files
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.features.rules import ends_consumer_groups, ends_transactional_producers
from kafka_rollout.formats.log_types import LogRange
from kafka_rollout.formats.record_batch import batches
from kafka_rollout.groups.monitor import MonitoredGroups
from kafka_rollout.model.groups import DescribedGroup
from kafka_rollout.releases.facts import GROUP_VERSION, TRANSACTION_VERSION
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.opening import database_of
from kafka_rollout.run.traffic import TrafficSeries, TrafficVerdict
from kafka_rollout.traffic.processes.of_run import SO_FAR, Heartbeat
from kafka_rollout.traffic.processes.traffic import (
    TOPICS,
    Client,
    Journal,
    Replication,
    Samples,
    compare_journals,
    consumer,
    copy_journals,
    list_places,
    place_replicas,
    plain_producer,
    read_log,
    remove_journals,
    transactional_producer,
)
from kafka_rollout.traffic.traffic_check import Position, ProducerMark, with_earlier

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_LOAD = 0.2  # at most this share of the time is spent on queries: many groups are described less often
_TIMEOUT_S = 3.0
REPORT_SECONDS = 10.0
RESULT_FILE = "verdict.json"
RATE_RECORDS = 30.0
RATE_TRANSACTIONS = 3.0
DRAIN_SECONDS = 90.0
PROBE_SECONDS = 5.0
_FILES = 65_536
_SEQUENCES = 1 << 31  # a sequence continues at 0 after the highest int32 (DefaultRecordBatch.incrementSequence)


def main() -> int:
    parser = argparse.ArgumentParser(description="A background process of a run. Credentials: standard input.")
    for option in ("--cluster", "--run", "--instance"):
        parser.add_argument(option, required=True)
    parser.add_argument("--kind", type=BackgroundKind, choices=list(BackgroundKind), required=True)
    parser.add_argument("--bootstrap-servers", default="", help="where the test traffic sends its credentials")
    parser.add_argument("--drain", action="store_true", help="produce nothing: read to the end and compare")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    stop = end_event()
    try:
        settings = Settings.from_environment()
        remove_stale_files(settings.home)
        security = CarriedSecurity.from_json(sys.stdin.read()).unpack()
        database = database_of(settings)
        record = SqlBackground(database)
        key = BackgroundKey(cluster=arguments.cluster, run_id=arguments.run, kind=arguments.kind)
        process = record.read(key)
        if process is None or process.instance != arguments.instance:
            print("Another process replaced this one.", file=sys.stderr)
            return 0
        unlocked_s = process.settings["unlocked_s"]
        heartbeat = Heartbeat(record, SqlChangeLock(database), process, stop, unlocked_s=unlocked_s)
        heartbeat.start()
        try:
            if arguments.kind is BackgroundKind.TRAFFIC:
                servers = arguments.bootstrap_servers
                _run_traffic(process, servers, security, heartbeat, stop, drain_only=arguments.drain)
            else:
                _monitor_groups(process, security, heartbeat, stop, settings)
        except Exception as error:
            heartbeat.finish(BackgroundState.FAILED, error=str(error))
            raise
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _monitor_groups(
    process: BackgroundProcess, security: ClientSecurity, heartbeat: Heartbeat, stop: Event, settings: Settings
) -> None:
    cluster = get_cluster(process.key.cluster, settings)
    connections = ClusterConnections(cluster, security, timeout_s=_TIMEOUT_S)
    watch = MonitoredGroups()
    silent: set[int] = set()
    reported, pause_s = time.monotonic(), 0.0
    while not stop.wait(pause_s):
        began = time.monotonic()
        watch.add(_describe(connections, silent), began)
        if began - reported > REPORT_SECONDS:
            heartbeat.beat(watch.to_dict())
            reported = began
        took = time.monotonic() - began
        pause_s = max(_EVERY_S - took, took * (1 / _LOAD - 1), 0.0)
    connections.close()
    heartbeat.finish(BackgroundState.STOPPED, result=watch.to_dict())


def _describe(connections: ClusterConnections, silent: set[int]) -> list[DescribedGroup]:
    """The groups of all brokers that respond. `silent`: the other brokers, each logged once."""
    found: list[DescribedGroup] = []
    for broker in connections.brokers:
        try:
            found += groups_of_broker(connections, broker)
            silent.discard(broker.node_id)
        except RolloutError as error:
            if broker.node_id not in silent:
                log.info("%s", error)
            silent.add(broker.node_id)
    return found


def _run_traffic(
    process: BackgroundProcess,
    bootstrap_servers: str,
    security: ClientSecurity,
    heartbeat: Heartbeat,
    stop: Event,
    *,
    drain_only: bool,
) -> None:
    _allow_connections()
    traffic = Traffic(process, bootstrap_servers, security)
    heartbeat.status = traffic.status
    try:
        if not drain_only:
            traffic.run(stop, lambda seen: heartbeat.beat(to_json(seen)), lambda: heartbeat.asked)
        if heartbeat.is_replaced:
            return
        heartbeat.state = BackgroundState.COMPARING
        traffic.drain()
        traffic.read_log()
        result = traffic.compare()
    except (RolloutError, KafkaException) as error:
        log.error("%s", error)
        heartbeat.finish(BackgroundState.FAILED, error=str(error))
        return
    for discrepancy in result.discrepancies:
        log.error("%s", discrepancy.sentence)
    heartbeat.finish(BackgroundState.STOPPED, result=to_json(result))


def _allow_connections() -> None:
    """Raise the limit of open files, usually 1,024: each client has a connection to each broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Traffic:
    """The clients of one traffic period."""

    def __init__(self, process: BackgroundProcess, bootstrap_servers: str, security: ClientSecurity) -> None:
        self._settings = process.settings
        self._folder = Path(process.folder)
        self._lowered: dict[str, int] = process.settings["lowered"]
        self._group: str = process.settings["group"]
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._client_settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            **security.confluent(),
            "log_level": 3,
        }
        self._session = str(time.time_ns())
        self._partitions = 0  # of each topic
        self._producers: list[Client] = []
        self._consumers: list[Client] = []
        self._read_again = self._compared = 0  # records of the log, and acknowledged ones, at the end
        self._log_starts: dict[tuple[str, int], int] = {}
        self._so_far: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        clients = (*self._producers, *self._consumers)
        return {
            "acknowledged": sum(client.count for client in self._producers),
            "consumed": {client.name: client.count for client in self._consumers if client.count},
            "longest_gap_s": {client.name: round(client.longest_s, 2) for client in clients},
            "read_again": self._read_again,
            "compared": self._compared,
            SO_FAR: self._so_far,
        }

    def create_topics(self) -> dict[str, int]:
        """Create the topics, and return as `_add_partitions`. Each broker of the inventory is the preferred leader of a
        partition of each.

        The controller refuses that if one is not registered, and a policy of the cluster can: then they choose.
        """
        admin, brokers = AdminClient(self._client_settings), self._settings["brokers"]
        copies = min(3, len(brokers))
        # Of its own, because a consumer can read the first record hours later, when its protocol is finalized.
        config = {
            "min.insync.replicas": str(max(1, copies - 1)),
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
        racks = {node.id: node.rack for node in admin.describe_cluster(request_timeout=20).result().nodes}
        placed = place_replicas({broker: racks.get(broker) for broker in brokers}, copies, self._settings["together"])
        partitions = {"num_partitions": len(placed), "config": config}
        if problem := self._create(admin, **partitions, replica_assignment=placed):
            log.warning("The cluster places the replicas: %s", problem.args[0])
            problem = self._create(admin, **partitions, replication_factor=copies)
        if problem:
            raise problem
        return self._add_partitions(admin, {broker: racks[broker] for broker in brokers if broker in racks})

    def _add_partitions(self, admin: AdminClient, racks: Mapping[int, str | None]) -> dict[str, int]:
        """Give a partition to each broker that leads none: topics of a failed run stay, because they are evidence.

        `racks`: of the brokers that run. Returns the new number of partitions of each topic that got some.
        """
        counts = {}
        for topic in TOPICS:
            partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
            leaders = {one.replicas[0] for one in partitions.values() if one.replicas}
            copies = min((len(one.replicas) for one in partitions.values()), default=0)
            if not 0 < copies <= len(racks):
                continue  # it was created just now, or too few brokers run
            placed = place_replicas(racks, copies, self._settings["together"])[: len(racks)]  # one of each leader
            added = [replicas for replicas in placed if replicas[0] not in leaders]
            if not added:
                continue
            more = NewPartitions(topic, len(partitions) + len(added), replica_assignment=added)
            try:
                admin.create_partitions([more], operation_timeout=20)[topic].result()
                counts[topic] = more.new_total_count
            except KafkaException as error:
                log.warning("%s has no partition for each broker: %s", topic, error.args[0])
        return counts

    def _create(self, admin: AdminClient, **how: Any) -> KafkaException | None:
        """Create the topics that do not exist; return an error."""
        topics = [NewTopic(topic, **how) for topic in TOPICS]
        problem = None
        for future in admin.create_topics(topics, operation_timeout=20).values():
            try:
                future.result()
            except KafkaException as error:
                problem = problem if error.args[0].name() == "TOPIC_ALREADY_EXISTS" else error
        return problem

    def delete_traces(self) -> None:
        """Delete the topics and groups of the test traffic."""
        admin = AdminClient(self._client_settings)
        groups = [f"{self._group}-{client.name.removeprefix('consumer-')}" for client in self._consumers]
        futures = {
            **admin.delete_topics(list(TOPICS), operation_timeout=20),
            **admin.delete_consumer_groups(groups, request_timeout=20),
        }
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                log.warning("%s was not deleted: %s", name, error.args[0])

    def run(
        self,
        stop: Event,
        report: Callable[[TrafficSeries], None],
        asked: Callable[[], str] = lambda: "",
    ) -> None:
        """Produce and consume until `stop` is set. `report` receives what was seen so far, every ten seconds. `asked`
        returns the newest request for a check.
        """
        self._partitions = self._count_partitions(self.create_topics())
        self._producers = [
            plain_producer(self._folder, self._client_settings, self._session, RATE_RECORDS, self._partitions)
        ]
        if not ends_transactional_producers(self._lowered):
            self._producers.append(self._transactional_producer())
        self._consumers = [self._consumer("classic")]
        for client in (*self._consumers, *self._producers):
            client.start()
        samples = Samples(self._folder, self._session)
        replication = Replication(AdminClient(self._client_settings), stop)
        replication.start()
        probed_at = reported_at = 0.0
        while not stop.wait(1.0):
            samples.take(self._producers, self._consumers, replication.under_replicated)
            if time.monotonic() - reported_at > REPORT_SECONDS:
                reported_at = time.monotonic()
                report(samples.seen(self._producers))
            if (request := asked()) and request != self._so_far.get("asked"):
                report(samples.seen(self._producers))  # a result without them covers no node step
                self._so_far = {"asked": request, **self._checked()}
            waits = len(self._producers) == 1 or (len(self._consumers) == 1 and not ends_consumer_groups(self._lowered))
            if waits and time.monotonic() - probed_at > PROBE_SECONDS:
                probed_at = time.monotonic()
                self._start_possible_clients()
        for client in self._producers:
            client.join(60)
        samples.seen(self._producers)

    def _start_possible_clients(self) -> None:
        """Start the clients that the finalized levels allow now, and that no planned level ends."""
        if (finalized := self._finalized()) is None:
            return
        if len(self._producers) == 1 and finalized.get(TRANSACTION_VERSION, 0) <= self._lowered[TRANSACTION_VERSION]:
            self._producers.append(self._transactional_producer())
            self._producers[-1].start()
        # A trial member would leave records in the log (KIP-848).
        is_served = finalized.get(GROUP_VERSION, 0) >= 1 and not ends_consumer_groups(self._lowered)
        if len(self._consumers) == 1 and is_served:
            self._consumers.append(self._consumer("consumer"))
            self._consumers[-1].start()

    def _transactional_producer(self) -> Client:
        partitions = self._partitions
        return transactional_producer(self._folder, self._client_settings, self._session, RATE_TRANSACTIONS, partitions)

    def _consumer(self, protocol: str) -> Client:
        return consumer(self._folder, self._client_settings, self._group, protocol)

    def _finalized(self) -> Mapping[str, int] | None:
        """The finalized levels; None if no broker reported them."""
        for address in self._bootstrap_servers.split(","):
            broker = NodeConnection(address.strip(), f"The broker at {address.strip()}", self._security)
            try:
                features = node_features(ask_api_versions(partial(broker.ask, timeout_s=PROBE_SECONDS)))
            except (RolloutError, ValueError) as error:
                log.info("The features were not reported: %s", error)
                continue
            finally:
                broker.close()
            if features.epoch is not None:
                return features.finalized
        return None

    def drain(self) -> None:
        """Let every group read to the present end of the logs. Raises TransientError if one cannot."""
        if not self._consumers:
            protocols = [path.stem.removeprefix("consumed-") for path in self._folder.glob("consumed-*.tsv")]
            self._consumers = [self._consumer(protocol) for protocol in protocols]
            for client in self._consumers:
                client.start()
        self._wait_for_consumers(self._end_offsets(), lambda client: client.read_to, DRAIN_SECONDS)
        for client in self._consumers:
            client.join(30)

    def _wait_for_consumers(
        self,
        ends: Mapping[tuple[str, int], int],
        reached: Callable[[Client], Mapping[tuple[str, int], int]],
        within_s: float,
    ) -> None:
        deadline = time.monotonic() + within_s
        for client in self._consumers:
            while behind := [f"{t}-{p}" for (t, p), end in ends.items() if reached(client).get((t, p), 0) < end]:
                if time.monotonic() > deadline:
                    raise TransientError(f"{client.name} did not reach the end of {', '.join(behind)}.")
                time.sleep(0.2)

    def _checked(self) -> dict[str, Any]:
        try:
            result = self.check()
        except (RolloutError, KafkaException, OSError) as error:
            log.error("The records so far were not compared: %s", error)
            return {"error": str(error)}
        for discrepancy in result.discrepancies:
            log.error("so far: %s", discrepancy.sentence)
        return {"result": to_json(result)}

    def check(self, within_s: float = DRAIN_SECONDS) -> TrafficVerdict:
        """Compare what was acknowledged until now, while the clients go on; without what is reported on its own.

        Raises TransientError if a group or the reader of the log does not reach what was the end when it
        began.

        Each record that is acknowledged now is below these ends. So its transaction is decided when all have read so
        far, and only then the outcomes are read.
        """
        folder = self._folder / SO_FAR
        folder.mkdir(mode=0o700, exist_ok=True)
        remove_journals(folder)
        copy_journals(self._folder, folder, "acknowledged-*.tsv", "refused-*.tsv")
        ends = self._end_offsets()
        starts = read_log({**self._client_settings, "group.id": f"{self._group}-ends"}, folder, self._count_read)
        self._wait_for_consumers(ends, lambda client: client.reached, within_s)
        copy_journals(self._folder, folder, "transactions-*.tsv", "consumed-*.tsv")
        marks = partial(read_marks, self._bootstrap_servers, self._security)
        of_period = compare_journals(folder, marks, self._lowered, starts, period=self._settings["period"])
        result = replace(with_earlier(self._settings["before"], of_period), series=(), leaderships=())
        if result.is_clean:
            remove_journals(folder)
        return result

    def read_log(self) -> None:
        """Read the whole log again: what a consumer received before a node was replaced can be lost since."""
        settings = {**self._client_settings, "group.id": f"{self._group}-ends"}
        self._log_starts = read_log(settings, self._folder, self._count_read)

    def _count_read(self, number: int) -> None:
        self._read_again = number

    def _count_compared(self, number: int) -> None:
        self._compared = number

    def _reader(self) -> Consumer:
        """Return a consumer that joins no group."""
        return Consumer({**self._client_settings, "group.id": f"{self._group}-ends", "enable.auto.commit": False})

    def _count_partitions(self, counts: Mapping[str, int]) -> int:
        """Return how many partitions each of the topics has. `counts`: as in `list_places`."""
        with closing(self._reader()) as reader:
            return min(Counter(place.topic for place in list_places(reader, counts)).values())

    def _end_offsets(self) -> dict[tuple[str, int], int]:
        with closing(self._reader()) as reader:
            places = list_places(reader)
            ends = [reader.get_watermark_offsets(place, timeout=20, cached=False)[1] for place in places]
            return {(place.topic, place.partition): end for place, end in zip(places, ends, strict=True)}

    def compare(self) -> TrafficVerdict:
        """The result over all periods. Topics and groups are deleted if it passed, and stay as evidence if not."""
        gaps = Journal(self._folder / f"gaps-{self._session}.tsv")
        for client in (*self._producers, *self._consumers):
            gaps.write(client.name, round(client.longest_s, 3))
        for client in self._producers:
            gaps.write(f"{client.name}, one partition", round(client.longest_of_partition_s, 3))
        gaps.close()
        marks = partial(read_marks, self._bootstrap_servers, self._security)
        of_period = compare_journals(
            self._folder,
            marks,
            self._lowered,
            self._log_starts,
            self._count_compared,
            period=self._settings["period"],
        )
        result = with_earlier(self._settings["before"], of_period)
        plain = {"is_clean": result.is_clean, **to_json(result)}
        write_whole(self._folder / RESULT_FILE, json.dumps(plain, indent=2).encode())
        if result.is_clean:
            self.delete_traces()
        return result


def read_marks(
    bootstrap_servers: str, security: ClientSecurity, positions: Collection[Position]
) -> dict[Position, ProducerMark]:
    """Read the marks in the headers of batches. Positions of a partition that cannot be read are left out."""
    offsets: dict[tuple[str, int], set[int]] = defaultdict(set)
    for position in positions:
        offsets[position.topic, position.partition].add(position.offset)
    found: dict[Position, ProducerMark] = {}
    try:
        with FetchSource(bootstrap_servers, security) as source:
            for (topic, partition), wanted in offsets.items():
                what = LogRange(topic=topic, partition=partition, start=min(wanted), end=max(wanted) + 1)
                for fetched in source.read(what):
                    for batch in batches(fetched.data):
                        for offset in wanted & set(range(batch.base_offset, batch.last_offset + 1)):
                            sequence = (batch.base_sequence + offset - batch.base_offset) % _SEQUENCES
                            mark = ProducerMark(batch.producer_id, batch.producer_epoch, sequence)
                            found[Position(topic, partition, offset)] = mark
    except RolloutError as error:
        log.warning("Not every producer of a record at several positions is known: %s", error)
    return found


if __name__ == "__main__":
    sys.exit(main())
