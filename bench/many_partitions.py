"""The time without an active controller in a live downgrade of a cluster with many partitions.

The partitions are added to the metadata log of a stopped cluster as a snapshot, with replicas on brokers that do not
exist, so that no broker creates files for them. These partitions are never in sync, and the gate before the stop of
the controllers does not see them.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.control.approval import record_approval
from kafka_rollout.formats.messages import encode
from kafka_rollout.gates.gate import Gate, GateCheck, GateKind, GatePolicy
from kafka_rollout.gates.whole_cluster import check_before_controllers_stop
from kafka_rollout.lowering.live import lower_live
from kafka_rollout.metadata_log.changes.install import install
from kafka_rollout.metadata_log.classes.known_releases import metadata_schemas
from kafka_rollout.metadata_log.classes.replay import load_log
from kafka_rollout.metadata_log.disk.folder import MetadataBatch, MetadataRecord, encode_batch, node_log, open_folder
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState, Movements
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.roll import gate_checks
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import LiveLowered, OfflineEvent
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
from tools.demo.local_cluster import LocalCluster, stop_nodes

PER_TOPIC, ABSENT = 100, (901, 902, 903)
GATE = GatePolicy(checks=2, interval_s=0.5, timeout_s=600, soak_s=0)
_TOPIC_RECORD, _PARTITION_RECORD = 2, 3


def measure(folder: Path, source: Release, target: Release, partitions: int) -> dict[str, Any]:
    """Lower the level live; return seconds by part. `brokers_s`: until every node has the level, after the switch."""
    settings = replace(Settings.from_environment(), clusters=folder / "clusters", home=folder / "home")
    cache = ReleaseCache.from_settings(settings)
    cache.libs(target)
    cluster = LocalCluster.create(folder, "bench", source, cache=cache, layout="separate")
    try:
        cluster.stop()
        size = _add_partitions(cluster, cache, source, partitions)
        cluster.start()
        with open_cluster_ports("bench", "run", None, settings) as ports:
            request = Request(target=target, lowering=Lowering.LIVE)
            plan = plan_change(ports, request, RunOf.DOWNGRADE)
            record_approval(ports, ApprovalOf.ROLL, "bench", Decision.APPROVED, "a benchmark")
            with mock.patch.object(gate_checks, "check_before_controllers_stop", _check_without_absent):
                wait_for_gate(Run(ports, plan), Gate(kind=GateKind.CONTROLLERS_STOP), GATE)
                lower_live(Run(ports, plan))
            wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)
            ended, events = time.time(), ports.run.events()
        (lowered,) = events_of(events, LiveLowered)
        steps = [event for event in events if isinstance(event, OfflineEvent)]
        return {
            "partitions": partitions,
            "snapshot_mib": round(size / (1 << 20), 1),
            "load": round(os.getloadavg()[0], 1),
            "level": plan.levels[METADATA_VERSION],
            "switch_s": lowered.without_controller_s,
            "brokers_s": round(ended - lowered.at, 1),
            "parts_s": {type(e).__name__: round(e.at - steps[0].at, 1) for e in steps},
        }
    finally:
        stop_nodes(folder, deadline_s=0.0)


def _check_without_absent(cluster: ClusterSpec, state: ClusterState, movements: Movements) -> GateCheck:
    real = tuple(partition for partition in state.partitions if set(partition.replicas).isdisjoint(ABSENT))
    return check_before_controllers_stop(cluster, replace(state, partitions=real), movements)


def _add_partitions(cluster: LocalCluster, cache: ReleaseCache, release: Release, count: int) -> int:
    """Replace the metadata logs of the stopped nodes by a snapshot with more partitions; return its size in bytes."""
    places = {node.node_id: cluster.runtime.metadata_log_dir(node) for node in cluster.spec.nodes}
    folders = {node_id: open_folder(place) for node_id, place in places.items() if place is not None}
    logs = [node_log(folders[node.node_id], node.node_id) for node in cluster.spec.controllers]
    longest = max(logs, key=lambda log: (log.epoch, log.end_offset))
    epoch = EPOCHS_ABOVE + max(log.known_epoch for log in logs)
    with (
        tempfile.TemporaryDirectory(prefix="bench-partitions-") as name,
        load_log(folders[longest.node_id], cache, release, Path(name)) as loaded,
    ):
        plain, end = Path(name) / "records", loaded.contents.end_offset
        with plain.open("wb") as file:
            for batch in _batches(cache, release, count, end):
                file.write(encode_batch(batch, list(batch.records)))
                end = batch.last_offset + 1
        image = loaded.classes.replay(loaded.image, plain, offsets=list(range(loaded.contents.end_offset, end)))
        written = loaded.classes.write(
            image,
            Path(name),
            level=loaded.level,
            end_offset=end,
            epoch=epoch,
            timestamp=loaded.contents.timestamp,
            kraft=loaded.contents.kraft,
        )
        for folder in folders.values():
            install(folder, written)
        return written.stat().st_size


def _batches(cache: ReleaseCache, release: Release, count: int, offset: int) -> Iterator[MetadataBatch]:
    """One batch for each topic, with its partitions."""
    schemas = metadata_schemas(release, *cache.catalogue_folders)

    def record(kind: int, at: int, fields: dict[str, Any]) -> MetadataRecord:
        body = encode(schemas[kind].layout(0), fields)
        return MetadataRecord(offset=at, frame=1, type=kind, version=0, value=bytes((1, kind, 0)) + body, body_at=3)

    for first in range(0, count, PER_TOPIC):
        topic = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        found = [record(_TOPIC_RECORD, offset, {"name": f"many-{first // PER_TOPIC}", "topicId": topic})]
        for number in range(min(PER_TOPIC, count - first)):
            fields = {"partitionId": number, "topicId": topic, "replicas": list(ABSENT), "isr": list(ABSENT)}
            found.append(record(_PARTITION_RECORD, offset + 1 + number, {**fields, "leader": ABSENT[0]}))
        yield MetadataBatch(
            position=0,
            base_offset=offset,
            last_offset=offset + len(found) - 1,
            epoch=1,
            timestamp=int(time.time() * 1000),
            is_control=False,
            records=tuple(found),
            data=b"",
        )
        offset += len(found)
