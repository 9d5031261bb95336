"""The nodes of a local cluster are formatted by Kafka's own tool, which says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.formats.files.server_properties import local_format
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("release", [Release(3, 4, 1), Release(3, 9, 1), Release(4, 3, 1)], ids=str)
def test_each_node_is_formatted_as_itself(release_cache: ReleaseCache, tmp_path: Path, release: Release) -> None:
    cluster = LocalCluster.create(
        tmp_path, "formatted", release, cache=release_cache, layout="mixed", size=2, start=False
    )
    for node in cluster.spec.nodes:
        for folder in ("logs", "metadata"):
            found = local_format(Path(str(node.directory)) / "data" / folder)
            assert found.meta is not None
            lines = found.meta.decode().splitlines()
            assert f"cluster.id={cluster.cluster_id}" in lines
            assert f"node.id={node.node_id}" in lines
    with pytest.raises(FatalError, match=r"Formatting cluster wrong failed: controller-101: .*9\.9-IV9"):
        LocalCluster.create(
            tmp_path, "wrong", release, cache=release_cache, size=1, metadata_version="9.9-IV9", start=False
        )
