"""A gate waits for the load of share groups' state only where the process has a share coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.internal_topics import SHARE_TOPIC
from kafka_rollout.model.node_log import LogPart, read_part
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.observation.node_steps import check_coordinators
from kafka_rollout.releases.facts import Release, gap_of_log, starts_share_coordinator
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports

PROTOCOLS, ENABLED = "group.coordinator.rebalance.protocols", "group.share.enable"
R391, R401, R411 = Release(3, 9, 1), Release(4, 0, 1), Release(4, 1, 1)


@pytest.mark.parametrize(
    ("release", "settings", "starts"),
    [
        (R391, {ENABLED: "true"}, False),
        (R401, {}, False),
        (R401, {PROTOCOLS: "classic, consumer,streams"}, False),
        (R401, {PROTOCOLS: "classic,consumer,share"}, True),
        (R401, {ENABLED: "true"}, True),
        (R401, {ENABLED: "${file:/etc/kafka/x:y}"}, True),
        (R411, {}, True),
        (Release(4, 3, 1), {}, True),
    ],
)
def test_a_broker_has_one_by_its_release_and_in_4_0_by_its_file(
    release: Release, settings: Mapping[str, str], starts: bool, tmp_path: Path
) -> None:
    cluster = FakeCluster(release)
    for number in range(3):
        cluster.add_partition(SHARE_TOPIC, number, [11, 12, 13])
    cluster.nodes[11].config.update(settings)
    ports = fake_ports(cluster, tmp_path)
    log = read_part(None, LogPart(pid=111, started_at=1.0, lines=(), is_first=True, problem=""))
    found = check_coordinators(ports, observe(ports), ports.cluster.node(11), None, log=log)
    shown = "the load of __share_group_state-0" in found.evidence
    assert (found.is_met, shown) == (not starts, starts)


def test_a_release_of_which_nothing_is_known_counts_as_one_that_has_it(tmp_path: Path) -> None:
    facts = fake_ports(FakeCluster(R391), tmp_path).catalogue.get(R391)
    unknown = replace(facts, gaps={gap_of_log(SHARE_TOPIC): "The class is not in the jar."})
    assert (starts_share_coordinator(facts, dict), starts_share_coordinator(unknown, dict)) == (False, True)
