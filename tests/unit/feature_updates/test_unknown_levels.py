"""What nobody reports is no level: not 0, either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import ensure_levels, pending_changes, undo_by_controller
from kafka_rollout.feature_updates.update import apply_features, plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests, range_findings
from kafka_rollout.model.finalized_levels import UNKNOWN_LEVELS, FinalizedLevels
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.observation.cluster_ports import ClusterPorts, levels_now, observe
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.frozen_plan import refuse_new_blockers
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.stop import files_once, refuse_closed
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.step_events import FeatureResults, Finalized
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.plans import plan_downgrade, plan_upgrade

LEVELS = {"metadata.version": 30, "group.version": 1, "transaction.version": 2, "share.version": 1}


def lowering(tmp_path: Path) -> tuple[FakeCluster, ClusterPorts, Plan]:
    cluster = FakeCluster(R431, finalized=LEVELS)
    ports = fake_ports(cluster, tmp_path)
    order = FeatureOrder(action=FeatureAction.UPDATE, named=parse_requests([], ["group.version:0"]))
    return cluster, ports, plan_features(ports, order, unsafe=False)


def silence(cluster: FakeCluster) -> None:
    cluster.silent |= set(cluster.nodes)


def cut_off(cluster: FakeCluster) -> None:
    """Every broker responds, with the metadata that it had before it was cut off."""
    for node in cluster.spec.brokers:
        cluster.nodes[node.node_id].behind = 50


def test_no_plan_takes_unknown_levels_for_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes respond, and none knows the levels."""
    monkeypatch.setattr(ClusterState, "finalized", property(lambda _: UNKNOWN_LEVELS))

    def ports_of(name: str, release: Release) -> ClusterPorts:
        return fake_ports(FakeCluster(release), tmp_path / name)

    plans = {
        "levels": plan_upgrade(ports_of("levels", R391), R431, finalize=True),
        "nodes": plan_upgrade(ports_of("nodes", R391), R431, finalize=False),
        "levels alone": plan_upgrade(ports_of("levels alone", R431), R431, finalize=True),
        "downgrade": plan_downgrade(ports_of("downgrade", R431), R391),
        "restart": plan_change(ports_of("restart", R431), Request(), RunOf.RESTART),
    }
    for name, plan in plans.items():
        assert "FINALIZED-LEVELS-UNKNOWN" in {one.code for one in plan.blockers}, name
        assert plan.feature_changes == (), name
    with pytest.raises(TransientError, match="reports the finalized levels"):
        plan_features(ports_of("features", R431), FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False)


@pytest.mark.parametrize("lose", [silence, cut_off])
def test_a_level_to_delete_is_not_there_already_when_no_current_broker_responds(
    tmp_path: Path, lose: Callable[[FakeCluster], None]
) -> None:
    cluster, ports, plan = lowering(tmp_path)
    lose(cluster)
    assert not levels_now(ports).finalized.is_known
    for act in (
        lambda: apply_features(Run(ports, plan)),
        lambda: ensure_levels(ports, plan.feature_changes),
        lambda: pending_changes(Run(ports, plan)),
    ):
        with pytest.raises(TransientError, match="reports the finalized levels"):
            act()
    assert undo_by_controller(Run(ports, plan)) == plan.feature_changes
    assert not [event for event in ports.run.events() if isinstance(event, Finalized | FeatureResults)]
    assert not [update for update in cluster.updates if not update[1]]


def test_a_lost_response_is_no_success_when_the_nodes_do_not_respond_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, ports, plan = lowering(tmp_path)
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "planned maintenance")
    update = FakeAdmin.update_features

    def lose(admin: FakeAdmin, levels: dict[str, int], *, validate_only: bool, unsafe: bool = False) -> object:
        if validate_only:
            return update(admin, levels, validate_only=True, unsafe=unsafe)
        silence(cluster)
        raise TransientError("No broker answered UpdateFeatures.")

    monkeypatch.setattr(FakeAdmin, "update_features", lose)
    (outcome,) = apply_features(Run(ports, plan))
    assert "unknown" in str(outcome).lower()
    assert not [event for event in ports.run.events() if isinstance(event, Finalized)]


def test_unknown_levels_close_a_rollback_and_stop_the_next_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan = plan_upgrade(ports, R431, finalize=True)
    run = Run(ports, plan)
    features = FakeAdmin.features
    monkeypatch.setattr(FakeAdmin, "features", lambda *words: replace(features(*words), finalized={}, epoch=None))
    assert not range_findings(ports.catalogue, observe(ports), R391).ok
    with pytest.raises(RefusedError, match=r"it is unknown whether release 3\.9\.1 supports them"):
        refuse_closed(run, plan.release_steps[0].reversed(), files_once(run), reads_again=False)
    with pytest.raises(RefusedError, match=r"it is unknown whether release 4\.3\.1 supports them"):
        refuse_new_blockers(run)


def test_no_reader_can_take_unknown_levels_for_level_0() -> None:
    unknown = FinalizedLevels({})
    for ask in (unknown.known, lambda: unknown.lacking({"group.version": 0})):
        with pytest.raises(TransientError):
            ask()
    assert FinalizedLevels(LEVELS).lacking({"group.version": 0, "kraft.version": 0}) == {"group.version": 0}
