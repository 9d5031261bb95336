"""The ledger as a process of its own: it runs through every stop of a roll and outlives the task that started it.

    python -m kafka_rollout.processes.traffic --folder F

The folder holds `settings.json` (bootstrap servers, rates; no credentials), the journals, `status.json` (renewed
every second) and in the end `verdict.json`. SIGTERM ends the producers, lets the consumers read to the end, compares
and exits. A ledger that was killed is started again with `--drain`: it only reads to the end and compares.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError

from kafka_rollout.adapters.background import detached
from kafka_rollout.adapters.background.journal import VERDICT, Journal, compare_journals, end_stretch
from kafka_rollout.adapters.background.traffic import (
    TOPICS,
    Client,
    consumer,
    plain_producer,
    transactional_producer,
)
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.domain.model.errors import FatalError, TransientError
from kafka_rollout.domain.traffic_check import LedgerVerdict

log = logging.getLogger(__name__)

MODULE = "kafka_rollout.processes.traffic"
PARTITIONS = 6
RATE_RECORDS = 30.0
RATE_TRANSACTIONS = 3.0
FIRST_RECORD_SECONDS = 120.0
DRAIN_SECONDS = 90.0
PROBE_SECONDS = 5.0


def start_ledger(
    *, bootstrap_servers: str, folder: Path, group: str, replication_factor: int, security_file: Path | None = None
) -> int:
    """Start the ledger's process, detached, unless the folder has one running; returns its pid.

    `group` is the prefix of its consumer groups. Returns once records are being acknowledged and consumed. One that was
    stopped and compared begins a new stretch; its verdict will be about all of them.
    """
    running = find_process(folder)
    if running is not None:
        return running.pid
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "status.json").unlink(missing_ok=True)
    end_stretch(folder)
    settings = {
        "bootstrap_servers": bootstrap_servers,
        "group": group,
        "replication_factor": replication_factor,
        "security_file": str(security_file) if security_file else None,
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=2))
    process = _spawn(folder)
    deadline = time.monotonic() + FIRST_RECORD_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        status = read_status(folder)
        if status and status["acknowledged"] and status["consumed"]:
            return process.pid
        time.sleep(0.3)
    stop_process(folder)
    tail = (folder / "ledger.log").read_text(errors="replace").strip().splitlines()[-1:]
    raise FatalError(
        f"The ledger did not get its first record through: {' '.join(tail) or 'no word from it'}",
        remedy=f"See {folder / 'ledger.log'}; the cluster must take and give records before it is rolled.",
    )


def _spawn(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return detached.spawn(MODULE, folder, *arguments, log_name="ledger.log")


def find_process(folder: Path) -> psutil.Process | None:
    """The running ledger of a folder."""
    return detached.find_process(MODULE, folder)


def stop_process(folder: Path, deadline_s: float = 10.0) -> None:
    """End a ledger without a verdict (it never got going)."""
    process = find_process(folder)
    if process is not None:
        process.kill()
        process.wait(deadline_s)


def stop_ledger(folder: Path) -> LedgerVerdict:
    """End the traffic, read to the end, compare. May be called again: the verdict is made anew from the journals.

    Raises FatalError when the consumers cannot reach the end of the logs.
    """
    process = find_process(folder)
    if process is not None:
        process.send_signal(signal.SIGTERM)
    elif not (folder / VERDICT).exists():
        process = psutil.Process(_spawn(folder, "--drain").pid)
    if process is not None:
        try:
            process.wait(DRAIN_SECONDS + 90)
        except psutil.TimeoutExpired:
            raise FatalError(
                f"The ledger (process {process.pid}) did not end.", remedy=f"See {folder / 'ledger.log'}."
            ) from None
    if not (folder / VERDICT).exists():
        tail = (folder / "ledger.log").read_text(errors="replace").strip().splitlines()[-1:]
        raise FatalError(
            f"The ledger ended without a verdict: {' '.join(tail)}",
            remedy="Look at the cluster, then stop the ledger again: its journals are kept.",
        )
    return compare_journals(folder)


def read_status(folder: Path) -> Mapping[str, Any] | None:
    try:
        status: Mapping[str, Any] = json.loads((folder / "status.json").read_text())
    except (OSError, ValueError):
        return None
    return status


class Ledger:
    """The traffic of one folder."""

    def __init__(self, folder: Path) -> None:
        settings = json.loads((folder / "settings.json").read_text())
        security = ClientSecurity.from_file(Path(settings["security_file"])) if settings["security_file"] else None
        self._folder = folder
        self._group: str = settings["group"]
        self._replication_factor: int = settings["replication_factor"]
        self._client_settings: dict[str, Any] = {
            "bootstrap.servers": settings["bootstrap_servers"],
            **(security.confluent() if security else {}),
            "log_level": 3,
        }
        self._bootstrap_servers: str = settings["bootstrap_servers"]
        self._kafka_python_settings: dict[str, Any] = security.kafka_python() if security else {}
        self._session = str(time.time_ns())
        self._producers: list[Client] = []
        self._consumers: list[Client] = []

    def create_topics(self) -> None:
        admin = AdminClient(self._client_settings)
        topics = [
            NewTopic(
                topic,
                num_partitions=PARTITIONS,
                replication_factor=self._replication_factor,
                config={"min.insync.replicas": str(max(1, self._replication_factor - 1))},
            )
            for topic in TOPICS
        ]
        for future in admin.create_topics(topics, operation_timeout=20).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise

    def delete_traces(self) -> None:
        """Take the ledger's topics and groups out of the cluster."""
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
                log.warning("%s stays behind: %s", name, error.args[0])

    def run(self, stop: Event) -> None:
        """Produce and consume until `stop` is set."""
        self.create_topics()
        self._producers = [
            plain_producer(self._folder, self._client_settings, self._session, RATE_RECORDS),
            transactional_producer(self._folder, self._client_settings, self._session, RATE_TRANSACTIONS),
        ]
        self._consumers = [consumer(self._folder, self._client_settings, self._group, "classic")]
        for client in (*self._consumers, *self._producers):
            client.start()
        probed_at = 0.0
        while not stop.wait(1.0):
            if len(self._consumers) == 1 and time.monotonic() - probed_at > PROBE_SECONDS:
                probed_at = time.monotonic()
                self._join_consumer_protocol()
            self._write_status("running")
        for client in self._producers:
            client.join(60)

    def _join_consumer_protocol(self) -> None:
        """The second group begins as soon as the cluster offers KIP-848's protocol (group.version 1 finalized)."""
        if self._offers_consumer_protocol():
            client = consumer(self._folder, self._client_settings, self._group, "consumer")
            self._consumers.append(client)
            client.start()

    def _offers_consumer_protocol(self) -> bool:
        """group.version 1 is finalized. Asked of the features, because a trial member would leave records behind."""
        try:
            admin = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers, **self._kafka_python_settings)
            try:
                # Keyed by feature (kafka-python's docstring says otherwise); a feature at level 0 has no "finalized".
                finalized = admin.describe_features().get("group.version", {}).get("finalized", (0, 0))
            finally:
                admin.close()
        except KafkaPythonError as error:
            log.info("features not seen: %s", error)
            return False
        return bool(finalized[1] >= 1)

    def drain(self) -> None:
        """Let every group read to the end of the logs as they are now; raises TransientError if one cannot."""
        if not self._consumers:
            protocols = [path.stem.removeprefix("consumed-") for path in self._folder.glob("consumed-*.tsv")]
            self._consumers = [consumer(self._folder, self._client_settings, self._group, p) for p in protocols]
            for client in self._consumers:
                client.start()
        deadline = time.monotonic() + DRAIN_SECONDS
        ends = self._end_offsets()
        for client in self._consumers:
            while behind := [f"{t}-{p}" for (t, p), end in ends.items() if client.read_to.get((t, p), 0) < end]:
                self._write_status("draining")
                if time.monotonic() > deadline:
                    raise TransientError(f"{client.name} did not reach the end of {', '.join(behind)}.")
                time.sleep(0.2)
        for client in self._consumers:
            client.join(30)

    def _end_offsets(self) -> dict[tuple[str, int], int]:
        reader = Consumer({**self._client_settings, "group.id": f"{self._group}-ends", "enable.auto.commit": False})
        try:
            ends = {}
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=20, cached=False)
                    ends[topic, partition] = end
            return ends
        finally:
            reader.close()

    def finish(self) -> LedgerVerdict:
        """Compare, write the verdict; topics and groups go when all is well, and stay as evidence when not."""
        gaps = Journal(self._folder / f"gaps-{self._session}.tsv")
        for client in (*self._producers, *self._consumers):
            gaps.write(client.name, round(client.gap.longest_s, 3))
        gaps.close()
        verdict = compare_journals(self._folder)
        temporary = self._folder / f"{VERDICT}.new"
        temporary.write_text(json.dumps({"ok": verdict.ok, **asdict(verdict)}, indent=2))
        temporary.replace(self._folder / VERDICT)
        if verdict.ok:
            self.delete_traces()
        return verdict

    def _write_status(self, phase: str) -> None:
        status = {
            "phase": phase,
            "at": time.time(),
            "acknowledged": sum(client.count for client in self._producers),
            "consumed": {client.name: client.count for client in self._consumers if client.count},
            "longest_gap_s": {c.name: round(c.gap.longest_s, 2) for c in (*self._producers, *self._consumers)},
        }
        temporary = self._folder / "status.json.new"
        temporary.write_text(json.dumps(status))
        temporary.replace(self._folder / "status.json")
