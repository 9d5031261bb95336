"""How each level can be undone, with the facts of the released catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.features.requests import feature_change
from kafka_rollout.model.plan import Direction, Lowering, Plan, Undo
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.lowering import LevelUndo, level_undo
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import INCLUDE
from tests.unit.builders import COMBINED, R341, R391, R421, R431, SEPARATE, node_state, partition, state

NOT_POSSIBLE = Undo.IMPOSSIBLE
UPGRADES = [
    (("group.version", (0, 1)), SEPARATE, (R391, R431), Lowering.ONLINE, "SAFE_DOWNGRADE"),
    (("metadata.version", (25, 29)), SEPARATE, (R421, R431), Lowering.ONLINE, "No level from 26 to 29"),
    (("metadata.version", (29, 30)), SEPARATE, (R421, R431), Lowering.LIVE, "kafka_downgrade to 4.2.1 lowers it"),
    (("metadata.version", (21, 30)), SEPARATE, (R391, R431), Lowering.LIVE, "a level above 21 is lost"),
    (("metadata.version", (29, 30)), COMBINED, (R421, R431), Lowering.OFFLINE, "would stop serving"),
    (("metadata.version", (14, 30)), SEPARATE, (R391, R431), NOT_POSSIBLE, "No downgrade goes below 15"),
    (("metadata.version", (1, 21)), SEPARATE, (R341, R391), NOT_POSSIBLE, "No downgrade goes below 15"),
    (("kraft.version", (0, 1)), SEPARATE, (R391, R431), NOT_POSSIBLE, "KIP-853"),
    (("a.new.feature", (0, 1)), SEPARATE, (R391, R431), Undo.UNKNOWN, "does not contain a.new.feature"),
    (("metadata.version", (29, 30)), SEPARATE, (R431, R431), Lowering.LIVE, "kafka_downgrade to 4.3.0 lowers it"),
]


@pytest.fixture(scope="module")
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


def undo(
    released: Catalogue,
    feature: str,
    levels: tuple[int, int],
    *,
    cluster: ClusterSpec = SEPARATE,
    path: tuple[Release, Release] = (R421, R431),
    seen: ClusterState | None = None,
) -> LevelUndo:
    source, target = path
    plan = Plan(
        cluster="orders",
        cluster_id="abc",
        direction=Direction.UPGRADE,
        source=source,
        target=target,
        release_steps=(),
        feature_changes=(),
        config_changes=(),
        findings=(),
    )
    change = feature_change(released.get(target), feature, *levels)
    return level_undo(cluster, released, seen or on_target(cluster, target), plan, change)


def on_target(cluster: ClusterSpec, release: Release) -> ClusterState:
    nodes = {node.node_id: node_state(node.node_id, release) for node in cluster.nodes}
    return state(cluster, nodes=nodes)


@pytest.mark.parametrize(("change", "cluster", "path", "way", "reason"), UPGRADES)
def test_the_least_disruptive_method_that_undoes_a_level(  # noqa: PLR0917
    released: Catalogue,
    change: tuple[str, tuple[int, int]],
    cluster: ClusterSpec,
    path: tuple[Release, Release],
    way: Lowering | Undo,
    reason: str,
) -> None:
    found = undo(released, *change, cluster=cluster, path=path)
    assert (found.lowering or found.undo) is way
    assert reason in found.reason


def test_a_topic_that_prevents_a_roll_leaves_the_offline_method(released: Catalogue) -> None:
    seen = replace(on_target(SEPARATE, R431), partitions=(partition("single", 0, [4], min_isr=1),))
    found = undo(released, "metadata.version", (29, 30), seen=seen)
    assert found.lowering is Lowering.OFFLINE
    assert "RF-ONE-TOPIC of topic single prevents a rolling downgrade" in found.reason


def test_a_node_of_an_unknown_release_leaves_the_offline_method(released: Catalogue) -> None:
    nodes = {**on_target(SEPARATE, R431).nodes, 4: node_state(4, None)}
    found = undo(released, "metadata.version", (29, 30), seen=state(SEPARATE, nodes=nodes))
    assert found.lowering is Lowering.OFFLINE
    assert "the release of node 4 is unknown" in found.reason


@pytest.mark.parametrize(
    ("can", "way", "words"),
    [
        (Undo.POSSIBLE, Lowering.ONLINE, "by the controller"),
        (Undo.POSSIBLE, Lowering.LIVE, "live"),
        (Undo.IMPOSSIBLE, None, "not possible"),
        (Undo.UNKNOWN, None, "unknown"),
    ],
)
def test_the_way_of_an_undo_in_words(can: Undo, way: Lowering | None, words: str) -> None:
    assert LevelUndo(feature="metadata.version", undo=can, lowering=way, reason="").way == words
