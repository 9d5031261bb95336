from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import Severity
from kafka_rollout.formats.files.server_properties import parse
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, ServiceSpec
from kafka_rollout.planning.findings.configuration import SNAPSHOT_INTERVAL, effective_config
from kafka_rollout.planning.findings.starts import ObservedStarts
from kafka_rollout.planning.plans import make_plan
from kafka_rollout.releases.facts import Release
from tests.plans import upgrade_request
from tests.unit.builders import (
    R340,
    R341,
    R391,
    R421,
    R431,
    SEPARATE,
    dynamic,
    node_state,
    observation,
    partition,
    replace_node,
    state,
)

IDS = [n.node_id for n in SEPARATE.nodes]


def _plan(
    seen: ClusterState,
    target: Release = R431,
    *,
    finalize: bool = False,
    snapshot_interval_s: float = 0.0,
    cluster: ClusterSpec = SEPARATE,
    **observed: Any,
) -> Plan:
    spec = replace(cluster, snapshot_interval_s=snapshot_interval_s)
    return make_plan(
        observation(seen, cluster=spec, **observed), upgrade_request(target, finalize=finalize), RunOf.UPGRADE
    )


def _old(release: Release = R340, **other: Any) -> ClusterState:
    nodes = {
        i: node_state(i, release, supported={"metadata.version": (1, 8)}, finalized={"metadata.version": 8})
        for i in IDS
    }
    return state(nodes=nodes, **other)


def _codes(plan: Plan) -> set[tuple[str, str]]:
    return {f.identity for f in plan.findings}


def test_a_well_cluster_is_planned_in_one_release_step_without_findings() -> None:
    plan = _plan(state(), finalize=True)
    assert plan.findings == ()
    assert (plan.direction, plan.source, plan.target) == (Direction.UPGRADE, R391, R431)
    assert [h.key for h in plan.release_steps] == ["3.9.1-to-4.3.1"]
    assert [t.node_id for t in plan.release_steps[0].order] == [1, 2, 3, 4, 5, 6]
    assert plan.release_steps[0].order[2].active_controller
    assert plan.feature_changes[0].feature == "metadata.version"
    assert plan.config_changes == ()


def test_an_intolerant_cluster_is_planned_by_way_of_the_tolerant_release_with_the_reason() -> None:
    plan = _plan(_old())
    assert [h.key for h in plan.release_steps] == ["3.4.0-to-3.4.1", "3.4.1-to-4.3.1"]
    assert "KIP-915" in plan.release_steps[0].reason
    assert plan.blockers == ()


def test_without_finalizing_no_feature_is_changed_and_a_rolled_cluster_has_no_release_steps() -> None:
    assert _plan(state()).feature_changes == ()
    rolled = _plan(state(release=R431), finalize=True, configs={}, java={})
    assert rolled.release_steps == ()
    assert rolled.feature_changes
    assert rolled.blockers == ()


def test_an_interrupted_roll_goes_on_from_the_lowest_release() -> None:
    seen = state()
    seen = replace(seen, nodes=replace_node(seen, node_state(1, R431)))
    plan = _plan(seen)
    assert [h.key for h in plan.release_steps] == ["3.9.1-to-4.3.1"]
    assert plan.blockers == ()


def test_a_node_beyond_the_first_release_step_blocks() -> None:
    seen = _old()
    seen = replace(seen, nodes=replace_node(seen, node_state(1, R431, finalized={"metadata.version": 8})))
    assert ("NODE-AHEAD", "node 1") in {f.identity for f in _plan(seen).blockers}


def test_levels_outside_a_releases_range_block_and_the_way_back_warns() -> None:
    low = state(nodes={i: node_state(i, R340, finalized={"metadata.version": 6}) for i in IDS})
    assert {f.identity for f in _plan(low).blockers} == {
        ("FINALIZED-LEVEL-OUT-OF-RANGE", "feature metadata.version on 4.3.1")
    }
    one_release_step = state(nodes={i: node_state(i, R391, finalized={"metadata.version": 6}) for i in IDS})
    assert [f.code for f in _plan(one_release_step).blockers] == ["FINALIZED-LEVEL-OUT-OF-RANGE"]
    nodes = {i: node_state(i, R421, finalized={"metadata.version": 29}) for i in IDS}
    nodes[1] = node_state(1, R391, finalized={"metadata.version": 29})
    assert ("NO-ROLLBACK", "feature metadata.version on 3.9.1") in _codes(_plan(state(nodes=nodes)))


def test_what_the_target_refuses_is_found() -> None:
    plan = _plan(state(), starts=ObservedStarts(rejected={4: ("old.thing is gone",), 5: ()}))
    assert {f.identity for f in plan.blockers} == {("CONFIG-REJECTED", "node 4")}


def test_a_file_with_a_byte_order_mark_is_named_with_the_setting_that_kafka_does_not_read() -> None:
    marked = parse("\ufeffnum.io.threads=9\nlog.dirs=/data\n".encode())
    plan = _plan(state(), configs={i: marked if i == 4 else {"log.dirs": "/data"} for i in IDS})
    (found,) = [f for f in plan.findings if f.code == "FIRST-SETTING-UNREAD"]
    assert (found.subject, found.sentence) == (
        *("node 4", "Node 4 does not read num.io.threads: its file begins with a byte order mark."),
    )


BOOTSTRAP_ONLY = {"controller.quorum.bootstrap.servers": "c1:9093"}
VOTERS = "1@c1:9093,2@c2:9093,3@c3:9093"


def test_a_node_without_the_voters_of_a_static_quorum_is_a_blocker() -> None:
    configs = {i: {"controller.quorum.voters": VOTERS, **BOOTSTRAP_ONLY} for i in IDS}
    assert _plan(state(), configs=configs).blockers == ()
    (found,) = _plan(state(), configs={**configs, 5: BOOTSTRAP_ONLY}).blockers
    assert found.identity == ("QUORUM-VOTERS-MISSING", "node 5")
    levels = {"metadata.version": 21, "kraft.version": 1}
    nodes = {i: node_state(i, R391, finalized=levels if i > 3 else {"metadata.version": 21}) for i in IDS}
    seen = state(nodes=nodes)  # controllers leave the level out
    assert seen.quorum is not None
    seen = replace(seen, quorum=dynamic(seen.quorum))
    assert _plan(seen, configs=dict.fromkeys(IDS, BOOTSTRAP_ONLY)).blockers == ()


def test_release_overrides_that_remove_the_voters_are_found() -> None:
    configs = {i: {"controller.quorum.voters": VOTERS} for i in IDS}
    cluster = replace(SEPARATE, release_overrides={"4.3.1": {**BOOTSTRAP_ONLY, "controller.quorum.voters": ""}})
    assert {f.code for f in _plan(state(), cluster=cluster, configs=configs).blockers} == {"QUORUM-VOTERS-MISSING"}


def test_java_that_is_too_old_or_unknown_blocks_with_what_is_needed() -> None:
    plan = _plan(state(), java={1: 11, **dict.fromkeys([2, 3, 4, 5], 21)})
    by = {f.identity: f for f in plan.blockers}
    assert set(by) == {("JAVA-TOO-OLD", "node 1"), ("JAVA-UNKNOWN", "node 6")}
    assert "requires Java 17" in by["JAVA-TOO-OLD", "node 1"].sentence
    assert "Java 11" in by["JAVA-TOO-OLD", "node 1"].sentence
    assert _plan(state(), target=R391, java={}).blockers == ()


def test_the_clusters_own_findings_are_in_the_plan() -> None:
    plan = _plan(state(partitions=(partition("single", 0, [4], min_isr=1),)))
    assert {f.identity for f in plan.blockers} == {("RF-ONE-TOPIC", "topic single")}


def test_configuration_comes_with_its_release_and_goes_with_the_way_back() -> None:
    spec = replace(SEPARATE, release_overrides={"4.3.1": {"new.key": "5", "log.dirs": "/new"}})
    plan = _plan(_old(), cluster=spec, snapshot_interval_s=5)
    mine = {(c.release, c.key): c.value for c in plan.config_changes if c.node_id == 4}
    assert mine == {
        (R431, "new.key"): "5",
        (R431, "log.dirs"): "/new",
        (R431, SNAPSHOT_INTERVAL): "5000",
        (R341, "new.key"): None,
        (R341, "log.dirs"): "/data/4",
        (R341, SNAPSHOT_INTERVAL): None,
    }
    before = {"log.dirs": "/data/4", "other": "x"}
    forth = effective_config(4, before, plan.config_changes, R431)
    assert forth == {"log.dirs": "/new", "other": "x", "new.key": "5", SNAPSHOT_INTERVAL: "5000"}
    assert effective_config(4, forth, plan.config_changes, R341) == before


def test_the_snapshot_interval_is_left_alone_if_the_inventory_says_so_or_no_level_is_raised_later() -> None:
    assert SNAPSHOT_INTERVAL in str(_plan(state(), snapshot_interval_s=300).config_changes)
    assert SNAPSHOT_INTERVAL not in str(_plan(state()).config_changes)
    elsewhere = ServiceSpec(host="host", managed_elsewhere=True)
    spec = replace(SEPARATE, nodes=tuple(replace(node, service=elsewhere) for node in SEPARATE.nodes))
    assert _plan(state(), cluster=spec, snapshot_interval_s=300).config_changes == ()
    patch = _plan(_old(), R341, snapshot_interval_s=300)
    assert (patch.changes_release, patch.config_changes) == (True, ())
    assert _plan(state(release=R431), snapshot_interval_s=5).config_changes == ()


def test_the_snapshot_interval_is_lowered_never_raised() -> None:
    low = {node.node_id: {SNAPSHOT_INTERVAL: "5000"} for node in SEPARATE.nodes}
    assert _plan(_old(), configs=low, snapshot_interval_s=60).config_changes == ()


def test_the_hash_is_of_what_is_done_not_of_what_is_found() -> None:
    well, ill = _plan(state()), _plan(state(partitions=(partition("single", 0, [4], min_isr=1),)))
    assert well.hash == ill.hash
    assert well.hash != _plan(state(), finalize=True).hash


@pytest.mark.parametrize("target", [Release(9, 9, 9), R341])
def test_a_target_that_cannot_be_planned_for_is_sent_back(target: Release) -> None:
    with pytest.raises(UserError) as error:
        _plan(state(), target=target)
    assert error.value.remedy


def test_settings_of_config_providers_are_listed_and_block_nothing() -> None:
    configs = {i: {"log.dirs": f"/data/{i}", "ssl.keystore.password": "${vault:kafka:keystore}"} for i in IDS}
    configs[1] = {**configs[1], "log.dirs": "${env:DATA}"}
    plan = _plan(state(), configs=configs, snapshot_interval_s=60)
    found = [finding for finding in plan.findings if finding.code == "NOT-OBSERVABLE"]
    assert plan.blockers == ()
    assert [finding.severity for finding in found] == [Severity.WARNING, Severity.INFO]
    assert found[0].sentence == (
        "In the configuration of node 1, config providers supply log.dirs, ssl.keystore.password. Only the nodes "
        "resolve these values, so they are not observable. The rest of the configuration was validated. The formats of "
        "its directories are not checked, and its metadata log cannot be read."
    )
    assert "nodes 2, 3, 4" in found[1].subject


def test_an_unknown_snapshot_interval_is_replaced() -> None:
    configs = {i: {SNAPSHOT_INTERVAL: "${env:INTERVAL}"} for i in IDS}
    plan = _plan(state(), configs=configs, snapshot_interval_s=60)
    assert {change.value for change in plan.config_changes if change.release == R431} == {"60000"}
    assert {change.value for change in plan.config_changes if change.release == R391} == {"${env:INTERVAL}"}
