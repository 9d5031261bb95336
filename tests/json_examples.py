"""One value of each type that has a JSON form, with every field set."""

from __future__ import annotations

from typing import Any

from kafka_rollout.coordinator_logs.comparison import VerdictChange
from kafka_rollout.coordinator_logs.contents import (
    GroupCount,
    GroupInventory,
    GroupSummary,
    TransactionalIdSummary,
)
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    DeletedWhilePending,
    Failure,
    LoadVerdict,
    LogCopy,
    LogSize,
    OutOfOrder,
    OwnerRecords,
    ReleaseVerdict,
    ScanResult,
    TaggedFields,
)
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateRef, GateWatch
from kafka_rollout.metadata_log.log_choice import ChosenLog
from kafka_rollout.metadata_log.losses import Loss, LossReport
from kafka_rollout.metadata_log.trim import TrimPlan
from kafka_rollout.model.configs import ConfigSource, ConfigTable, EffectiveConfigs, Setting
from kafka_rollout.model.contents import ClusterInventory
from kafka_rollout.model.retention import KeptRecords
from kafka_rollout.releases.facts import Release
from tests.acls import read_acl

OLD, NEW = Release(3, 4, 1), Release(4, 3, 1)
PLACE: dict[str, Any] = {"topic": "__consumer_offsets", "partition": 7}
KEYS: dict[str, Any] = {"key_version": 3, "value_version": None, "count": 5, "first_offset": 12}
FAILURE = Failure(offset=12, reason="key version 3 is unknown")

INVENTORY = GroupInventory(
    groups=(
        GroupSummary(
            name="billing",
            type="consumer",
            state="Stable",
            members=2,
            partition=7,
            protocol="consumer",
            assignor="uniform",
            classic_members=1,
            share_partitions=0,
        ),
        GroupSummary(name="tool", type="classic", state="Empty", members=0, partition=8, offsets_only=True),
    ),
    transactional_ids=(
        TransactionalIdSummary(name="pay-1", state="Ongoing", partition=3, partitions=2, updated_at=1_763_000_000_000),
    ),
    group_counts=(GroupCount(type="consumer", state="Stable", groups=1, members=2),),
    transactional_id_counts={"Ongoing": 1},
    commits={"orders": 40},
    groups_left_out=3,
    transactional_ids_left_out=4,
)
CLEANING = CleaningConfig(segment_ms=60_000, min_cleanable_dirty_ratio=0.1, known=True, own=("segment.ms",))
VALUES: dict[str, Any] = {
    "scan": ScanResult(
        cluster="orders",
        scanned_at=1_763_697_600.25,
        logs=(LogRange(**PLACE, start=0, end=50),),
        classes=(
            RecordKind(**PLACE, **KEYS),
            RecordKind(**PLACE, key_version=None, value_version=-1, count=1, first_offset=0, live=1),
        ),
        verdicts=(
            ReleaseVerdict(
                **PLACE,
                release=OLD,
                verdict=LoadVerdict.FAILS,
                ignored=2,
                first_failure=FAILURE,
                replicas=("broker 2",),
            ),
            ReleaseVerdict(**PLACE, release=NEW, verdict=LoadVerdict.NOT_LOADED),
        ),
        sizes=(
            LogSize(
                **PLACE,
                records=50,
                batches=9,
                control_batches=1,
                log_bytes=4096,
                first_timestamp=-1,
                last_timestamp=1_763_000_000_000,
            ),
        ),
        broken=(
            BrokenRecords(**PLACE, **KEYS, part="value", releases=(OLD, NEW), reason="it ends within x", live=1),
            BrokenRecords(**PLACE, **KEYS, part="end", releases=(OLD,), reason="no known key follows"),
        ),
        tagged=(
            TaggedFields(
                **PLACE,
                **(KEYS | {"value_version": 0}),
                path="topics[].partitions[]",
                tag=4,
                name="topicId",
                known_by=(NEW,),
            ),
        ),
        owners=(OwnerRecords(**PLACE, **KEYS, owner="group", name="billing", live=2),),
        owners_left_out=6,
        copies=(
            LogCopy(**PLACE, directory="copies/1", start=0, end=50, log_bytes=4096, chosen=True, why="It is longest."),
        ),
        damage=(Damage(**PLACE, file="0.log", position=4096, log_bytes=512, sentence="The CRC does not match."),),
        deleted_while_pending=(DeletedWhilePending(**PLACE, offset=20, group="gone", producers=(4000, 4001)),),
        out_of_order=(
            OutOfOrder(
                **PLACE,
                offset=21,
                group="mixed",
                key_version=8,
                value_version=None,
                releases=(NEW,),
                complaint="Group mixed not found",
            ),
        ),
        inventory=INVENTORY,
        cleaning={"__consumer_offsets": CLEANING},
        new_group_coordinator=True,
    ),
    "scan without contents": ScanResult(cluster="orders", scanned_at=0.0, logs=(), classes=(), verdicts=()),
    "group inventory": INVENTORY,
    "cleaning": CLEANING,
    "verdict change": VerdictChange(
        **PLACE, release=OLD, before=None, after=LoadVerdict.LOADS_IGNORING, first_failure=FAILURE
    ),
    "gate": GateRef(kind=GateKind.AFTER_START, release_step="3.9.1-to-4.3.1", node_id=3),
    "gate of the cluster": GateRef(kind=GateKind.GROUPS),
    "gate policy": GatePolicy(checks=5, interval_s=0.5, timeout_s=60.0, soak_s=3600.0),
    "gate watch": GateWatch(
        policy=GatePolicy(), checked_at=100.0, seconds=4.5, consecutive_passes=2, passed_since=3.5, gone_since=None
    ),
    "losses": LossReport(
        from_level=30,
        to_level=14,
        from_name="4.3-IV0",
        to_name="3.7-IV0",
        release="4.3.1",
        readers=("3.9.1",),
        below_floor=False,
        losses=(Loss(kind="ACL", subject="User:a on orders (x)", sentence="The ACL of User:a is lost."),),
        default_only=(Loss(kind="logDirs", subject="broker 1", sentence="Broker 1 loses its logDirs."),),
        kafka_said=("the cordoned log directories of one or more brokers",),
        notes=("One note.",),
    ),
    "trim plan": TrimPlan(
        snapshot="00000000000000000100-0000000002.checkpoint",
        old_start_offset=0,
        start_offset=90,
        end_offset=200,
        source="00000000000000000000.log",
        position=812,
        removed=("00000000000000000000.log", "00000000000000000000.index"),
    ),
    "cluster inventory": ClusterInventory(
        topics={"orders": {"id": "abc", "replicas": {"0": [1, 2, 3]}}},
        ends={"orders-0": 12},
        read_at=1_790_000_000.5,
        starts={"orders-0": 3},
        kept={"orders-0": KeptRecords(start=3, from_offset=9, until=1_790_100_000.5)},
        groups={"billing": {"type": "classic", "offsets": {"orders-0": 9}}},
        configs={"topic orders": {"retention.ms": "1000"}},
        acls=(read_acl("User:a"),),
        scram={"alice": {"SCRAM-SHA-256": 4096}},
        quotas={"user alice": {"producer_byte_rate": 1000.5}},
        unasked={"subscriptions": "3.4.1 does not support it"},
        group_configs={"billing": {"consumer.session.timeout.ms": "45000"}},
        subscriptions={"s": {"metrics": "*"}},
        effective=EffectiveConfigs(
            brokers=ConfigTable(
                common={"min.insync.replicas": Setting("2", ConfigSource.FILE)}, deviations={"1": {}, "2": {"x": None}}
            ),
            topics=ConfigTable(deviations={"orders": {"retention.ms": Setting("1000", ConfigSource.TOPIC)}}),
        ),
    ),
    "chosen log": ChosenLog(
        node_id=2, end_offset=900, epoch=7, snapshot_epoch=9, voters=(1, 2, 3), read=(1, 2), not_read=("node 3: gone",)
    ),
}
