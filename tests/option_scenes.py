"""A cluster with downgrade options of each state, and a history of them, stored by the real store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.run.events import Planned
from kafka_rollout.run.step_events import Finalized
from kafka_rollout.run.store.opening import open_check_history
from tests.console_scenes import cluster_of
from tests.fleet_scenes import R391, R401, R431, Fleet, approved, dag, observed, planned
from tests.records import scan_history
from tests.unit.scan_examples import OFFSETS, TRANSACTIONS, records

DAY_S = 86_400.0
CLASSIC = records(OFFSETS, 0, 1, 3, 40, live=4, first=0)
CONSUMER = records(OFFSETS, 7, 3, 0, 5, live=1, first=61)
TRANSACTION = records(TRANSACTIONS, 3, 0, 1, 12, live=2, first=4)


def scan_of(cluster: str, age_s: float, *kinds: RecordKind) -> ScanResult:
    """A scan of both logs with these kinds of records."""
    catalogue = get_catalogue(Settings.from_environment())
    logs = [(OFFSETS, 0), (OFFSETS, 7), (TRANSACTIONS, 3)]
    return ScanResult(
        cluster=cluster,
        scanned_at=time.time() - age_s,
        logs=tuple(LogRange(topic=topic, partition=number, start=0, end=90) for topic, number in logs),
        classes=kinds,
        verdicts=evaluate_records(catalogue, kinds, list(catalogue), partitions=logs),
    )


def check_of(age_s: float, *subjects: str, observed: Any = None, lacks: Sequence[str] = ()) -> dict[str, Any]:
    """A document of a check with a blocker RF-ONE-TOPIC of each subject. `lacks`: what it did not observe."""
    objects = [{"subject": one, "sentence": f"{one} has one replica.", "remedy": "Add one."} for one in subjects]
    group = {"code": "RF-ONE-TOPIC", "severity": "blocker", "count": len(objects), "remedy": "", "objects": objects}
    result = "blocker" if objects else "unknown" if lacks else "ok"
    partitions = {"id": "partition-availability", "result": result, "reasons": list(lacks)}
    return {
        "target": "4.4.0",
        "checked_at": time.time() - age_s,
        "totals": {"blocker": len(objects), "warning": 0},
        "checks": [
            {**partitions, "findings": [group] if objects else []},
            {"id": "metadata-quorum", "result": "ok", "reasons": [], "findings": []},
        ],
        "observed": None if observed is None else to_json(observed),
    }


def make_options(
    root: Path, *, level: int = 30, scan_age_s: float = 7200.0, blocked: tuple[str, ...] = ()
) -> ClusterSpec:
    """Six nodes on 4.3.1, finalized at `level` five days ago. Two scans: one before the newest kinds were written, and
    one `scan_age_s` ago. Two checks, the newest with `blocked` topics. A dry run of a downgrade found a blocker.
    """
    fleet, spec = Fleet(root), cluster_of(3)
    name = spec.name
    (fleet.clusters / f"{name}.yaml").write_text(dump_cluster(spec))
    rolled = observed(spec, R431, 8)
    fleet.run(
        name, "manual__up", dag(name), rolled, planned(R391, R431), approved(),
        Finalized(levels={"metadata.version": level}, epoch_after=9), age_s=5 * DAY_S, outcome="finished",
    )  # fmt: skip
    lost = ("METADATA-LOST: a topic",)
    down = Planned(run_of=RunOf.DOWNGRADE, plan_hash="h", source=R431, target=R401, blockers=lost)
    now = observed(spec, R431, level)
    fleet.run(name, "manual__dry", dag(name, "downgrade"), now, down, age_s=4 * DAY_S, outcome="dry_run")
    scans = scan_history(fleet.home, name)
    scans.keep(scan_of(name, 3 * DAY_S, CLASSIC), "", run_id="scheduled__1")
    scans.keep(scan_of(name, scan_age_s, CLASSIC, CONSUMER, TRANSACTION), "<p>scan</p>", run_id="scheduled__2")
    checks = open_check_history(name, Settings.from_environment())
    checks.keep("scheduled__1", check_of(3 * DAY_S), "")
    checks.keep("scheduled__2", check_of(7200, *blocked, observed=replace(now, at=time.time() - 7200)), "")
    return spec
