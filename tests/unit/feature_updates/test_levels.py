"""Finalizing: asked before it is sent, looked up when the answer is lost, refused in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control import lock
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import (
    check_support,
    finalize,
    pending_changes,
    prove_snapshot,
    undo_by_controller,
)
from kafka_rollout.features.requests import FeatureUpdateResult
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.model.plan import Plan, Undo
from kafka_rollout.model.state import NodeFeatures
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.projections.observations import finalization
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import FakeAdmin
from tests.plans import pass_gates


@pytest.fixture
def rolled(cluster: FakeCluster, ports: ClusterPorts, plan: Plan) -> Plan:
    for node in cluster.nodes.values():
        node.running = node.installed = R431
    pass_gates(ports, plan)
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "soaked for a week")
    return plan


class LosesAnswers(FakeAdmin):
    """The controller does what it is asked, or not, and nobody hears of it."""

    def __init__(self, cluster: FakeCluster, *, done: bool) -> None:
        super().__init__(cluster)
        self.done, self.lost = done, 0

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        if validate_only:
            return super().update_features(targets, validate_only=True)
        self.lost += 1
        if self.done:
            super().update_features(targets, validate_only=False)
        raise TransientError("The answer was lost.")


def sent(cluster: FakeCluster) -> list[dict[str, int]]:
    return [targets for targets, validate_only in cluster.updates if not validate_only]


def test_metadata_version_goes_first_and_every_request_is_validated_before(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    finalize(Run(ports, rolled))
    assert cluster.finalized == {change.feature: change.target for change in rolled.feature_changes}
    assert list(sent(cluster)[0]) == ["metadata.version"]
    assert "metadata.version" not in sent(cluster)[1]
    for targets in sent(cluster):
        assert cluster.updates.index((targets, True)) < cluster.updates.index((targets, False))


def test_what_is_finalized_already_is_not_sent_again(ports: ClusterPorts, cluster: FakeCluster, rolled: Plan) -> None:
    finalize(Run(ports, rolled))
    before = len(cluster.updates)
    finalize(Run(ports, rolled))
    assert len(cluster.updates) == before
    assert pending_changes(Run(ports, rolled)) == ()


def test_a_lost_answer_is_looked_up_and_not_sent_again(ports: ClusterPorts, cluster: FakeCluster, rolled: Plan) -> None:
    losing = LosesAnswers(cluster, done=True)
    finalize(Run(replace(ports, admin=losing), rolled))
    assert losing.lost == 2  # one for each request
    assert cluster.finalized["metadata.version"] == 30


def test_an_update_that_never_arrives_ends_as_not_known(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    with pytest.raises(TransientError, match=r"It is unknown whether metadata\.version 30"):
        finalize(Run(replace(ports, admin=LosesAnswers(cluster, done=False)), rolled))


def test_finalizing_needs_its_own_approval(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    for node in cluster.nodes.values():
        node.running = node.installed = R431
    pass_gates(ports, plan)
    with pytest.raises(RefusedError, match=r"The feature change of run .* is not approved"):
        finalize(Run(ports, plan))
    assert sent(cluster) == []


def test_a_node_that_is_behind_refuses_the_levels_with_a_reason(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    cluster.nodes[13].running = rolled.source
    verdict = check_support(Run(ports, rolled))
    assert not verdict.ok
    assert any("node 13" in finding.sentence for finding in verdict.blockers)
    with pytest.raises(RefusedError, match="node 13"):  # no later try finds another release
        finalize(Run(ports, rolled))
    assert sent(cluster) == []


def test_a_controller_that_disagrees_with_the_nodes_is_a_finding(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    class Refuses(FakeAdmin):
        def update_features(self, targets: Mapping[str, int], **_: Any) -> tuple[FeatureUpdateResult, ...]:
            said = "Broker 11 does not support this feature."
            return tuple(FeatureUpdateResult(feature=f, error="INVALID_UPDATE_VERSION", message=said) for f in targets)

    verdict = check_support(Run(replace(ports, admin=Refuses(cluster)), rolled))
    codes = {finding.code for finding in verdict.findings}
    assert {"REGISTRATION-DROPPED-RANGES", "FEATURE-REFUSED", "CONTROLLER-DISAGREES"} <= codes
    assert not verdict.ok


@pytest.mark.parametrize(("level", "is_refused"), [(16, False), (20, True)])
def test_a_range_that_a_registration_lacks_is_refused_before_metadata_version_is_raised(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan, level: int, *, is_refused: bool
) -> None:
    """From 3.7-IV2 on, raising metadata.version does not make brokers re-register."""

    class Lacks(FakeAdmin):
        def update_features(self, targets: Mapping[str, int], **_: Any) -> tuple[FeatureUpdateResult, ...]:
            said = "Broker 11 does not support this feature."
            error = "INVALID_UPDATE_VERSION" if "group.version" in targets else "NONE"
            return tuple(FeatureUpdateResult(feature=f, error=error, message=said) for f in targets)

    cluster.finalized["metadata.version"] = level
    verdict = check_support(Run(replace(ports, admin=Lacks(cluster)), rolled))
    found = {finding.subject for finding in verdict.blockers if finding.code == "REGISTRATION-DROPPED-RANGES"}
    assert found == ({"broker registrations"} if is_refused else set())


def test_the_controller_says_whether_a_finalized_level_can_be_taken_back(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    finalize(Run(ports, rolled))
    undo = {change.feature: change for change in undo_by_controller(Run(ports, rolled))}
    assert undo["metadata.version"].undo is Undo.IMPOSSIBLE
    assert "validate-only" in undo["metadata.version"].undo_source
    assert undo["group.version"].undo is Undo.POSSIBLE


def test_the_record_tells_from_which_offset_on_the_level_is_in_the_log(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    finalize(Run(ports, rolled))
    seen = finalization(ports.run.events())
    assert seen is not None
    assert seen.epoch_before == 10
    assert seen.epoch_after == 11
    assert check_gate(Run(ports, rolled), Gate(kind=GateKind.FINALIZED)).passes


def test_a_controller_that_names_no_levels_holds_nothing_up_once_its_log_has_them(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    finalize(Run(ports, rolled))
    told = ports.admin.features
    nameless = NodeFeatures(supported={}, finalized={}, epoch=None)
    monkeypatch.setattr(ports.admin, "features", lambda node: told(node) if node.is_broker else nameless)
    assert check_gate(Run(ports, rolled), Gate(kind=GateKind.FINALIZED)).passes


def test_the_snapshot_gate_says_how_long_it_may_take(ports: ClusterPorts, cluster: FakeCluster, rolled: Plan) -> None:
    finalize(Run(ports, rolled))
    for node in cluster.nodes.values():
        node.config["metadata.log.max.snapshot.interval.ms"] = "7200000"
    facts = cluster.catalogue.get(R431)
    cluster.catalogue = type(cluster.catalogue)(
        releases={**cluster.catalogue.releases, R431: replace(facts, has_snapshot_emitter_metrics=False)}
    )
    seen = check_gate(Run(ports, rolled), Gate(kind=GateKind.SNAPSHOT))
    assert not seen.passes
    assert "7200 s" in seen.waits_for
    assert "UTC at the latest" in seen.waits_for
    cluster.nodes[1].config["metadata.max.idle.interval.ms"] = "0"
    seen = check_gate(Run(ports, rolled), Gate(kind=GateKind.SNAPSHOT))
    assert "needs a change of the metadata after" in seen.waits_for
    assert "at the latest" not in seen.waits_for
    cluster.nodes[12].config["metadata.log.max.snapshot.interval.ms"] = "0"
    seen = check_gate(Run(ports, rolled), Gate(kind=GateKind.SNAPSHOT))
    (never,) = [one for one in seen.conditions if one.name == "node 12 has a snapshot"]
    assert "not expected: metadata.log.max.snapshot.interval.ms is 0" in never.evidence


def test_finalizing_waits_for_the_process_that_acts(ports: ClusterPorts, cluster: FakeCluster, rolled: Plan) -> None:
    lock.acquire_lock(ports, "A twin.")
    with (
        ports.lock.acting("fake", ports.run_id, "A twin"),
        pytest.raises(TransientError, match="another process changes"),
    ):
        finalize(Run(ports, rolled))
    assert sent(cluster) == []


def test_what_blocks_after_the_approval_voids_it_also_when_it_is_gone_again(
    ports: ClusterPorts, cluster: FakeCluster, rolled: Plan
) -> None:
    cluster.find_unlisted_brokers.add(77)
    with pytest.raises(RefusedError, match="UNLISTED-BROKER"):
        finalize(Run(ports, rolled))
    cluster.find_unlisted_brokers.clear()
    with pytest.raises(RefusedError, match="approval of the feature change by alice is invalid"):
        finalize(Run(ports, rolled))
    assert sent(cluster) == []


def test_without_a_changed_level_a_cluster_needs_no_snapshot(ports: ClusterPorts, rolled: Plan) -> None:
    assert prove_snapshot(Run(ports, replace(rolled, feature_changes=()))) is None
    with pytest.raises(RefusedError, match="finds no metadata snapshot on any node"):
        prove_snapshot(Run(ports, rolled))
