"""The finalized levels of a cluster are those that a broker with current metadata reports."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.observation.cluster_ports import read_current_levels
from kafka_rollout.releases.facts import METADATA_VERSION
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports


def test_a_broker_that_is_cut_off_or_does_not_respond_is_not_believed(tmp_path: Path) -> None:
    cluster = FakeCluster()
    ports = fake_ports(cluster, tmp_path)
    first, second, third = (node.node_id for node in ports.cluster.brokers)
    cluster.nodes[first].behind = 50
    cluster.silent.add(second)
    with patch.object(ports.admin, "features", wraps=ports.admin.features) as features:
        assert read_current_levels(ports)[METADATA_VERSION] == cluster.finalized[METADATA_VERSION]
    assert [call.args[0].node_id for call in features.call_args_list] == [second, third]


def test_without_a_current_broker_the_levels_are_unknown(tmp_path: Path) -> None:
    cluster = FakeCluster()
    for node in cluster.spec.brokers:
        cluster.nodes[node.node_id].behind = 50
    with pytest.raises(TransientError, match="has applied the newest metadata"):
        read_current_levels(fake_ports(cluster, tmp_path))
