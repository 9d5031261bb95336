"""The scan's verdicts on brokers that are not configured by default: 3.9 with its new group coordinator, 4.0 with the
preview of share groups.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_scan_oracle import what_happened
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.logs.load_oracle import Place, load
from tests.integration.harness.logs.planted_logs import PlantedLog, planted_logs, written_logs
from tests.integration.harness.logs.planted_orders import planted_orders
from tools.coordinator_traffic import CONSUMER_OFFSETS, SHARE_GROUP_STATE

pytestmark = [pytest.mark.integration, pytest.mark.full]

RELEASE_3_9, RELEASE_4_0 = Release(3, 9, 1), Release(4, 0, 1)
NEW_COORDINATOR = {"group.coordinator.rebalance.protocols": "classic,consumer"}
SHARE_PREVIEW = {
    "unstable.api.versions.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "group.share.enable": "true",
}


def places(logs: Sequence[PlantedLog]) -> dict[Place, PlantedLog]:
    found: dict[Place, PlantedLog] = {}
    for log in logs:
        found[log.topic, sum(topic == log.topic for topic, _ in found)] = log
    return found


def scanned(
    logs: Mapping[Place, PlantedLog], release: Release, folder: Path, *flags: str
) -> dict[Place, ReleaseVerdict]:
    for (topic, partition), log in logs.items():
        (folder / f"{topic}-{partition}").mkdir()
        (folder / f"{topic}-{partition}" / "00000000000000000000.log").write_bytes(log.data)
    command = [str(Path(sys.executable).with_name("kafka-rollout")), "scan", "--log-dir", str(folder), "--json"]
    done = subprocess.run(
        [*command, "--release", str(release), *flags], capture_output=True, text=True, timeout=600, check=True
    )
    result = from_json(ScanResult, json.loads(done.stdout))
    return {(verdict.topic, verdict.partition): verdict for verdict in result.verdicts}


def test_3_9_with_its_new_group_coordinator_does_what_the_scan_says(
    tmp_path: Path, release_cache: ReleaseCache
) -> None:
    logs = places(
        [log for log in (*written_logs(), *planted_logs(), *planted_orders()) if log.topic == CONSUMER_OFFSETS]
    )
    for name in ("default", "new", "broker"):
        (tmp_path / name).mkdir()
    default = scanned(logs, RELEASE_3_9, tmp_path / "default")
    new = scanned(logs, RELEASE_3_9, tmp_path / "new", "--new-group-coordinator")
    held = {place: (log.data, log.recovered) for place, log in logs.items()}
    outcomes = load(RELEASE_3_9, held, tmp_path / "broker", release_cache, extra_config=NEW_COORDINATOR)
    wrong = []
    for place, log in logs.items():
        if new[place].verdict is LoadVerdict.UNKNOWN:
            continue  # the log is damaged
        said = (new[place].verdict, 0 if new[place].first_failure else new[place].ignored)
        if said != what_happened(outcomes[place]):
            wrong.append(f"{log.name}: the scan says {said} {new[place].first_failure}, the broker {outcomes[place]}")
    assert wrong == []
    changed = {logs[place].name for place in logs if default[place].verdict is not new[place].verdict}
    assert {"broken consumer group member", "commit one too high"} < changed


def test_4_0_with_share_groups_does_not_parse_what_4_3_writes_of_them(
    tmp_path: Path, release_cache: ReleaseCache
) -> None:
    """Of the groups' log the scan says so; the log of share groups' state 4.0 loads only as this preview."""
    logs = places([log for log in written_logs() if log.topic in {CONSUMER_OFFSETS, SHARE_GROUP_STATE}])
    for name in ("scan", "broker"):
        (tmp_path / name).mkdir()
    verdicts = scanned(logs, RELEASE_4_0, tmp_path / "scan")
    held = {place: (log.data, log.recovered) for place, log in logs.items()}
    outcomes = load(RELEASE_4_0, held, tmp_path / "broker", release_cache, extra_config=SHARE_PREVIEW)
    of_groups = [place for place in logs if place[0] == CONSUMER_OFFSETS]
    assert {place: what_happened(outcomes[place])[0] for place in of_groups} == {
        place: verdicts[place].verdict for place in of_groups
    }
    failing = [
        place for place in of_groups if (found := verdicts[place].first_failure) and "ShareGroup" in found.reason
    ]
    assert failing
    for place in failing:
        assert "Could not read record with version 0 from value's buffer" in outcomes[place].words
    of_shares = {place: verdicts[place].verdict for place in logs if place[0] == SHARE_GROUP_STATE}
    assert set(of_shares.values()) == {LoadVerdict.NOT_LOADED}
    assert any(outcomes[place].failed for place in of_shares)


def test_a_live_cluster_is_asked_whether_it_starts_the_new_group_coordinator(make_cluster: MakeCluster) -> None:
    told = make_cluster("3.9.1", layout="combined", size=1, extra_config=NEW_COORDINATOR)
    by_default = make_cluster("4.3.1", layout="combined", size=1)
    for cluster, expected in ((told, True), (by_default, False)):
        servers = cluster.spec.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(CONSUMER_OFFSETS, 1, 1)]).values():
            made.result(60)
        wait_until_all_know(cluster.spec)
        with FetchSource(servers) as source:
            source.ranges([CONSUMER_OFFSETS])
            assert source.starts_new_group_coordinator() is expected
