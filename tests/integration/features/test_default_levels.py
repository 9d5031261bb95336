"""The default levels of the catalogue are those that a new cluster of the release has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder
from kafka_rollout.releases.facts import KRAFT_VERSION, Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import opened
from tests.releases import NEWEST

pytestmark = pytest.mark.integration

ABOVE_DEFAULT = {"4.0.1": "eligible.leader.replicas.version", "4.1.1": "share.version"}


@pytest.mark.parametrize(
    "name",
    ["4.0.1", *(pytest.param(name, marks=pytest.mark.full) for name in ("3.9.1", "4.1.1", "4.2.1", "4.3.1", NEWEST))],
)
def test_a_new_cluster_has_the_default_levels_and_upgrade_all_finds_nothing_to_raise(
    name: str, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(name, layout="combined", size=1)
    with opened(cluster, tmp_path / "home") as ports:
        features = ports.catalogue.get(Release.parse(name)).features
        plan = plan_features(ports, FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False)
        finalized = ports.admin.features(cluster.spec.node(1)).finalized
    # StorageTool finalizes kraft.version only for a dynamic quorum.
    defaults = {feature: one.default_level for feature, one in features.items() if feature != KRAFT_VERSION}
    assert dict(finalized) == {feature: level for feature, level in defaults.items() if level > 0}
    assert plan.feature_changes == ()
    if above := ABOVE_DEFAULT.get(name):
        assert features[above].latest_production > features[above].default_level
