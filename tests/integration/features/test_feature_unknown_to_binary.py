"""A finalized feature that a node's own binary does not know: no released Kafka runs on with one in its metadata."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafka_rollout.formats.record_batch import batches
from kafka_rollout.model.topology import NodeSpec
from tests.integration.conftest import MakeCluster
from tests.integration.harness.logs.planted_logs import batch
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_FEATURE_LEVEL_RECORD = 12  # its api key, in all releases


@pytest.mark.parametrize("release", ["3.4.1", "3.9.1", "4.0.1", "4.2.1", "4.3.1"])
def test_a_controller_ends_at_a_level_of_a_feature_that_it_does_not_know(
    make_cluster: MakeCluster, release: str
) -> None:
    cluster = make_cluster(release, layout="combined", size=1)
    (node,) = cluster.spec.nodes
    cluster.stop()
    plant(node, "no.such.version", level=1)

    cluster.runtime.start(node)

    wait_until(lambda: cluster.runtime.process(node).pid is None, 240)
    assert "FeatureLevelRecord(name='no.such.version', featureLevel=1)" in last_log(cluster, node)
    assert "only supports versions" in last_log(cluster, node)


def plant(node: NodeSpec, feature: str, *, level: int) -> None:
    """One more batch at the end of its metadata log, as the last leader would have written it."""
    (folder,) = Path(str(node.directory)).rglob("__cluster_metadata-0")
    segment = max(folder.glob("*.log"))
    *_, last = batches(segment.read_bytes())
    name = feature.encode()
    body = bytes([len(name) + 1]) + name + struct.pack(">h", level) + b"\x00"
    record = bytes([1, _FEATURE_LEVEL_RECORD, 0]) + body
    offset = last.last_offset + 1
    planted = bytearray(batch(offset, [(offset, (None, record))]))
    planted[12:16] = last.data[12:16]  # the leader's epoch, which the CRC does not cover
    with segment.open("ab") as file:
        file.write(planted)


def last_log(cluster: LocalCluster, node: NodeSpec) -> str:
    return "\n".join(cluster.runtime.log_tail(node, lines=400))
