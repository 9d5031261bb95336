"""Feature runs that set the default levels of a release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.releases.facts import Catalogue
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports


def test_levels_of_a_release_whose_defaults_are_unknown_are_refused(tmp_path: Path) -> None:
    cluster = FakeCluster(R431)
    facts = cluster.catalogue.get(R431)
    unknown = replace(facts, gaps={"feature_defaults": "The class was moved."})
    catalogue = Catalogue({**cluster.catalogue.releases, R431: unknown})
    ports = replace(fake_ports(cluster, tmp_path), catalogue=catalogue)
    for order in (
        FeatureOrder(action=FeatureAction.UPGRADE_ALL),
        FeatureOrder(action=FeatureAction.UPDATE, release=R431),
    ):
        (found,) = plan_features(ports, order, unsafe=False).blockers
        assert (found.code, found.subject) == ("CATALOGUE-GAP", "release 4.3.1, feature_defaults")
    named = FeatureOrder(action=FeatureAction.UPDATE, named=parse_requests(["group.version:1"]))
    assert plan_features(ports, named, unsafe=False).blockers == ()
