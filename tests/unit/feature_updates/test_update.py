"""Features outside a roll: planned, approved, applied once, looked at again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_rollout.base.errors import (
    LockHeldError,
    NotObservableError,
    RefusedError,
    TransientError,
    UserError,
)
from kafka_rollout.base.findings import CheckResult, CheckState, unknown
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import check_for_narrower_nodes, ensure_levels
from kafka_rollout.feature_updates.update import apply_features, plan_features, planned_outcomes, requires_approval
from kafka_rollout.features.requests import (
    FeatureAction,
    FeatureOrder,
    FeatureOutcome,
    FeatureUpdateResult,
    FeatureUpdateStatus,
    exit_code,
    parse_requests,
)
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.counters import METADATA_APPLY_ERRORS, OFFLINE_LOG_DIRECTORIES
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.model.state import GroupState, NodeFeatures, NodeMetrics
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.log_directories import JBOD, with_directories
from tests.fakes.ports import FakeAdmin, FakeMetrics, fake_ports
from tests.fakes.runtime import FakeRuntime

R421 = Release(4, 2, 1)
LEVELS = {"metadata.version": 30, "group.version": 1, "transaction.version": 2, "share.version": 1}
Answer = Callable[[Mapping[str, int], bool], tuple[FeatureUpdateResult, ...] | None]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(R431, finalized=LEVELS)


def plan_for(
    ports: ClusterPorts, *, up: str = "", down: str = "", delete: str = "", unsafe: bool = False, approve: bool = True
) -> Plan:
    order = FeatureOrder(
        action=FeatureAction.UPDATE, named=parse_requests([up], [down, f"{delete}:0" if delete else ""])
    )
    plan = plan_features(ports, order, unsafe=unsafe)
    if approve and not plan.blockers:
        record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "maintenance")
    return plan


def sent(cluster: FakeCluster) -> list[dict[str, int]]:
    return [targets for targets, validate_only in cluster.updates if not validate_only]


def results(outcomes: tuple[FeatureOutcome, ...]) -> dict[str, FeatureUpdateStatus]:
    return {outcome.feature: outcome.result for outcome in outcomes}


class Scripted(FakeAdmin):
    """`answer` speaks for the controller; None leaves it to the fake cluster."""

    def __init__(self, cluster: FakeCluster, answer: Answer) -> None:
        super().__init__(cluster)
        self.answer = answer
        self.asked: list[bool] = []

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        self.asked.append(unsafe)
        told = self.answer(targets, validate_only)
        return super().update_features(targets, validate_only=validate_only) if told is None else told


def test_no_level_is_sent_that_the_next_start_of_a_node_does_not_support(tmp_path: Path) -> None:
    """The link or the package was changed back, by software that manages it, while the new release runs."""
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    ports = fake_ports(cluster, tmp_path)
    plan = plan_for(ports, up="metadata.version:30")
    assert plan.blockers == ()
    for node in cluster.nodes.values():
        node.installed = R391
    with pytest.raises(RefusedError, match=r"The next start of nodes .* is on Kafka 3\.9\.1"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []
    (blocker,) = plan_for(fake_ports(cluster, tmp_path / "second"), up="metadata.version:30").blockers
    assert blocker.code == "NEXT-START-UNSUPPORTED"


def test_bad_input_is_an_error_and_leaves_no_plan(ports: ClusterPorts, cluster: FakeCluster) -> None:
    with pytest.raises(UserError, match=r"metadata\.version 99 does not exist"):
        plan_for(ports, up="metadata.version:99")
    with pytest.raises(UserError, match="no plan"):
        ports.run.load_plan()
    assert cluster.updates == []


def test_every_feature_is_planned_and_the_controller_asked_for_a_second_opinion(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    plan = plan_for(ports, down="transaction.version:1", delete="group.version")
    assert plan.direction is Direction.DOWNGRADE
    assert cluster.updates == [({"transaction.version": 1, "group.version": 0}, True)]
    assert [o.action for o in planned_outcomes(plan)] == ["Downgrade", "Delete"]
    assert set(results(planned_outcomes(plan)).values()) == {FeatureUpdateStatus.ACCEPTED}


def test_ranges_that_a_registration_lacks_refuse_the_whole_plan(ports: ClusterPorts, cluster: FakeCluster) -> None:
    def lacks(targets: Mapping[str, int], _: bool) -> tuple[FeatureUpdateResult, ...]:
        error = "INVALID_UPDATE_VERSION" if "group.version" in targets else "NONE"
        said = "Broker 11 does not support this feature."
        return tuple(FeatureUpdateResult(feature=name, error=error, message=said) for name in targets)

    cluster.finalized = {"metadata.version": 20}
    plan = plan_for(replace(ports, admin=Scripted(cluster, lacks)), up="metadata.version:30,group.version:1")
    assert [(f.code, f.subject) for f in plan.blockers] == [("REGISTRATION-DROPPED-RANGES", "broker registrations")]
    shown = planned_outcomes(plan)
    assert results(shown) == {
        "metadata.version": FeatureUpdateStatus.NOT_SENT,
        "group.version": FeatureUpdateStatus.FAILED,
    }
    assert all("REGISTRATION-DROPPED-RANGES" in one.sentence for one in shown)
    assert "KAFKA-17492" not in " ".join(one.sentence for one in shown), "the finding says it once"


def test_levels_fall_before_metadata_version_does(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={**LEVELS, "metadata.version": 29})
    admin = Scripted(cluster, lambda targets, _: None)
    admin._refusal = lambda feature, level: ""  # type: ignore[method-assign]  # it lowers metadata.version too
    ports = replace(fake_ports(cluster, tmp_path), admin=admin)
    to_391 = FeatureOrder(action=FeatureAction.DOWNGRADE_ALL, release=R391)
    plan = plan_features(ports, to_391, unsafe=False)
    assert any(f.code == "FEATURE-DOWNGRADE-REFUSED" for f in plan.blockers), "29 → 21 crosses a level that changed"
    plan = plan_for(ports, down="metadata.version:26,transaction.version:1")
    assert results(apply_features(Run(ports, plan))) == dict.fromkeys(
        ("metadata.version", "transaction.version"), FeatureUpdateStatus.OK
    )
    assert sent(cluster) == [{"transaction.version": 1}, {"metadata.version": 26}]


def test_unsafe_is_what_the_controller_is_asked_for_each_time(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.groups = [GroupState(group_id="billing", type="consumer", state="Stable", members=2)]
    assert [f.code for f in plan_for(ports, delete="group.version").blockers] == ["GROUPS-LOSE-THEIR-PROTOCOL"]
    admin = Scripted(cluster, lambda targets, _: None)
    ports = replace(ports, admin=admin)
    plan = plan_for(ports, delete="group.version", unsafe=True)
    assert results(apply_features(Run(ports, plan))) == {"group.version": FeatureUpdateStatus.OK}
    assert admin.asked == [True, True, True]


def test_what_falls_or_cannot_be_taken_back_needs_a_named_approval_and_the_rest_does_not(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    cluster.finalized = {"metadata.version": 29, "transaction.version": 2}
    assert requires_approval(plan_for(ports, down="transaction.version:1", approve=False))
    assert requires_approval(plan_for(ports, up="metadata.version:30", approve=False))
    elr = plan_for(ports, up="eligible.leader.replicas.version:1", approve=False)
    assert elr.default_changes, "the controller writes a default of min.insync.replicas, which stays"
    assert requires_approval(elr)
    assert not requires_approval(plan_for(ports, up="metadata.version:29,transaction.version:2", approve=False))
    plan = plan_for(ports, up="group.version:1", approve=False)
    assert not requires_approval(plan)
    hides = CheckResult(
        check="ACLs", state=CheckState.NOT_OBSERVABLE, id="acls", can_block=True, unknowns=unknown("ACLs", "No right.")
    )
    assert requires_approval(replace(plan, checks=(hides,))), "an approver reads what can hide a blocker"
    assert results(apply_features(Run(ports, plan))) == {"group.version": FeatureUpdateStatus.OK}
    with pytest.raises(RefusedError, match="is not approved"):
        apply_features(Run(ports, plan_for(ports, delete="group.version", approve=False)))


def test_a_resumed_run_finds_its_levels_and_sends_nothing(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = plan_for(ports, down="transaction.version:1", delete="group.version")
    apply_features(Run(ports, plan))
    before = len(cluster.updates)
    assert set(results(apply_features(Run(ports, plan))).values()) == {FeatureUpdateStatus.ALREADY_THERE}
    assert len(cluster.updates) == before
    again = plan_for(ports, down="transaction.version:1")
    assert again.blockers[0].code == "FEATURE-NOT-LOWER", "a new request is another thing than a resumed one"


def test_a_downgrade_that_became_an_upgrade_meanwhile_is_refused(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = plan_for(ports, down="transaction.version:1")
    cluster.finalized.pop("transaction.version")
    with pytest.raises(RefusedError, match="now go in the opposite direction"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []


def test_users_that_came_after_the_approval_stop_it(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = plan_for(ports, delete="group.version")
    cluster.groups = [GroupState(group_id="late", type="consumer", state="Stable", members=1)]
    with pytest.raises(RefusedError, match="late"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []


@pytest.mark.parametrize(
    ("counter", "code"),
    [(METADATA_APPLY_ERRORS, "METADATA-ERRORS"), (OFFLINE_LOG_DIRECTORIES, "LOG-DIRECTORY-OFFLINE")],
)
def test_a_fault_of_a_node_that_came_after_the_approval_stops_it(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, counter: str, code: str
) -> None:
    plan = plan_for(ports, down="transaction.version:1")
    with_counter(monkeypatch, counter, 12)
    with pytest.raises(RefusedError, match=rf"no longer valid.*{code} node 12"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []


def test_metrics_that_are_not_read_any_more_are_no_evidence(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(ports, down="transaction.version:1")
    assert "error-counters=metrics" not in plan.unknowns

    def is_gone(_: FakeMetrics, node: NodeSpec) -> NoReturn:
        raise TransientError(f"The agent of {node.name} does not respond.")

    monkeypatch.setattr(FakeMetrics, "read", is_gone)
    with pytest.raises(TransientError, match=r"The metrics of nodes 1, .* are unknown"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []


def with_counter(monkeypatch: pytest.MonkeyPatch, counter: str, node_id: int) -> None:
    read = FakeMetrics.read

    def counted(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        found = read(metrics, node)
        return replace(found, counters={**found.counters, counter: float(node.node_id == node_id)})

    monkeypatch.setattr(FakeMetrics, "read", counted)


def test_no_level_is_planned_or_sent_while_a_run_of_another_database_changes_a_node(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    theirs = Claim(cluster_id="x", node_id=12, run_id="theirs", nonce="ab" * 16, at=1.0, database="theirs.db")
    plan = plan_for(ports, down="transaction.version=1")
    cluster.claims[12] = Claims(open=(theirs,))
    with pytest.raises(LockHeldError, match=r"Run theirs of another database \(theirs\.db\) has claimed node 12"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []
    assert [one.code for one in plan_for(ports, down="transaction.version=1").blockers] == ["OTHER-DATABASE"]


def test_the_cluster_s_lock_keeps_a_second_update_out(
    ports: ClusterPorts, cluster: FakeCluster, tmp_path: Path
) -> None:
    plan = plan_for(ports, up="streams.version:1")
    ports.lock.acquire("fake", "another run", "downgrade", for_s=60)
    with pytest.raises(LockHeldError, match="another run"):
        apply_features(Run(ports, plan))
    assert sent(cluster) == []


@pytest.mark.usefixtures("each_database")
def test_a_lock_left_by_a_killed_task_blocks_only_until_its_lease_ends(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    plan = plan_for(ports, up="streams.version:1")
    ports.lock.acquire("fake", "a killed run", "features", for_s=-1)
    assert results(apply_features(Run(ports, plan))) == {"streams.version": FeatureUpdateStatus.OK}


def test_what_an_older_controller_applied_of_a_request_is_told_apart_from_what_it_refused(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    cluster.finalized = {"metadata.version": 30}

    def partly(targets: Mapping[str, int], validate_only: bool) -> tuple[FeatureUpdateResult, ...] | None:
        if validate_only:
            return tuple(FeatureUpdateResult(feature=f, error="NONE") for f in targets)
        cluster.finalized["group.version"] = 1
        said = {"group.version": "NONE", "share.version": "FEATURE_UPDATE_FAILED"}
        return tuple(FeatureUpdateResult(feature=f, error=said[f], message="said") for f in targets)

    ports = replace(ports, admin=Scripted(cluster, partly))
    outcomes = apply_features(Run(ports, plan_for(ports, up="group.version:1,share.version:1")))
    assert results(outcomes) == {"group.version": FeatureUpdateStatus.OK, "share.version": FeatureUpdateStatus.FAILED}
    assert "FEATURE_UPDATE_FAILED said" in outcomes[1].sentence
    assert "Read the level" in outcomes[1].sentence
    assert exit_code(outcomes) == 1


def test_a_refused_request_stops_those_after_it(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.finalized = {"metadata.version": 29}
    bench_ = replace(ports, admin=Scripted(cluster, lambda targets, _: None))
    plan = plan_for(bench_, up="metadata.version:30,group.version:1")

    def refuses(targets: Mapping[str, int], _: bool) -> tuple[FeatureUpdateResult, ...]:
        return tuple(FeatureUpdateResult(feature=f, error="INVALID_UPDATE_VERSION", message="no") for f in targets)

    outcomes = apply_features(Run(replace(ports, admin=Scripted(cluster, refuses)), plan))
    assert results(outcomes) == {
        "metadata.version": FeatureUpdateStatus.FAILED,
        "group.version": FeatureUpdateStatus.NOT_SENT,
    }
    assert exit_code(outcomes) == 3


def test_an_answer_that_nobody_heard_of_is_unknown_and_said_so(ports: ClusterPorts, cluster: FakeCluster) -> None:
    def loses(targets: Mapping[str, int], validate_only: bool) -> None:
        if not validate_only:
            raise TransientError("The answer was lost.")

    ports = replace(ports, admin=Scripted(cluster, loses))
    outcomes = apply_features(Run(ports, plan_for(ports, up="streams.version:1")))
    assert results(outcomes) == {"streams.version": FeatureUpdateStatus.UNKNOWN}
    assert "reads the current level before it sends anything" in outcomes[0].sentence
    assert exit_code(outcomes) == 1


@pytest.mark.parametrize("lost", [1, 2])
def test_an_answer_lost_after_the_act_is_found_by_looking(ports: ClusterPorts, cluster: FakeCluster, lost: int) -> None:
    left = [lost]

    def loses(targets: Mapping[str, int], validate_only: bool) -> tuple[FeatureUpdateResult, ...] | None:
        if not validate_only:
            left[0] -= 1
            if left[0] == 0:
                cluster.finalized.update(targets)
            raise TransientError("The answer was lost.")
        return None

    ports = replace(ports, admin=Scripted(cluster, loses))
    outcomes = apply_features(Run(ports, plan_for(ports, up="streams.version:1")))
    assert (results(outcomes), left) == ({"streams.version": FeatureUpdateStatus.OK}, [0])


def test_a_lost_answer_is_waited_for_before_anything_is_sent_again(ports: ClusterPorts, cluster: FakeCluster) -> None:
    updates = []

    def loses(targets: Mapping[str, int], validate_only: bool) -> None:
        if not validate_only:
            updates.append(dict(targets))
            raise TransientError("The answer was lost.")

    plan = plan_for(ports, up="streams.version:1")
    # It arrives while we wait, and not before.
    cluster.clock.on_sleep = lambda _: cluster.finalized.update({"streams.version": 1})
    outcomes = apply_features(Run(replace(ports, admin=Scripted(cluster, loses)), plan))
    assert results(outcomes) == {"streams.version": FeatureUpdateStatus.OK}
    assert updates == [{"streams.version": 1}]


class Lagging(FakeAdmin):
    """One broker tells what it knew before, until `hears`."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        super().__init__(cluster)
        self.node_id, self.knew, self.hears = node_id, dict(cluster.finalized), False

    def features(self, node: NodeSpec) -> NodeFeatures:
        told = super().features(node)
        if node.node_id != self.node_id or self.hears:
            return told
        return replace(told, finalized=self.knew, epoch=(told.epoch or 0) - 1)


@pytest.mark.parametrize("cut_off", [False, True])
def test_nodes_that_have_not_heard_of_a_level_are_waited_for_unless_they_never_hear(
    ports: ClusterPorts, cluster: FakeCluster, cut_off: bool
) -> None:
    admin = Lagging(cluster, ports.cluster.brokers[-1].node_id)
    ports, waited = replace(ports, admin=admin), cluster.clock.slept

    def hear_after_two_seconds(_: float) -> None:
        admin.hears = sum(waited) > 2 and not cut_off

    plan = plan_for(ports, up="streams.version:1")
    cluster.clock.on_sleep = hear_after_two_seconds
    assert results(apply_features(Run(ports, plan))) == {"streams.version": FeatureUpdateStatus.OK}
    told = {ports.admin.features(node).finalized.get("streams.version", 0) for node in ports.cluster.nodes}
    assert told == ({0, 1} if cut_off else {1})
    assert (sum(waited) < 3) is not cut_off


def test_a_controller_that_cannot_validate_only_leaves_our_own_checks_alone(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    def old(targets: Mapping[str, int], validate_only: bool) -> tuple[FeatureUpdateResult, ...] | None:
        if not validate_only:
            return None
        return tuple(FeatureUpdateResult(feature=f, error="UNSUPPORTED_VERSION", message="v0") for f in targets)

    ports = replace(ports, admin=Scripted(cluster, old))
    plan = plan_for(ports, up="streams.version:1")
    assert [f.code for f in plan.findings] == ["CONTROLLER-CANNOT-VALIDATE"]
    assert results(apply_features(Run(ports, plan))) == {"streams.version": FeatureUpdateStatus.OK}


def test_a_controller_that_would_accept_what_we_refuse_is_a_finding(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.groups = [GroupState(group_id="billing", type="consumer", state="Stable", members=2)]
    plan = plan_for(ports, delete="group.version")
    assert [f.code for f in plan.findings] == ["GROUPS-LOSE-THEIR-PROTOCOL", "CONTROLLER-WOULD-ACCEPT"]
    assert results(planned_outcomes(plan)) == {"group.version": FeatureUpdateStatus.FAILED}


def test_a_silent_controller_is_a_blocker_and_not_a_yes(ports: ClusterPorts, cluster: FakeCluster) -> None:
    def silent(targets: Mapping[str, int], validate_only: bool) -> None:
        raise TransientError("No answer.")

    plan = plan_for(replace(ports, admin=Scripted(cluster, silent)), up="streams.version:1")
    assert [f.code for f in plan.blockers] == ["CONTROLLER-UNANSWERED"]
    assert results(planned_outcomes(plan)) == {"streams.version": FeatureUpdateStatus.NOT_SENT}


def test_a_broker_with_a_narrower_range_that_joined_meanwhile_is_found_with_a_remedy(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    assert check_for_narrower_nodes(ports).ok
    cluster.nodes[13].running = R421
    (found,) = check_for_narrower_nodes(ports).blockers
    assert (found.code, found.subject) == ("NARROWER-NODE-JOINED", "feature metadata.version")
    assert "node 13 supports 7-29" in found.sentence
    assert "--downgrade metadata.version" in found.remedy


def test_a_broker_that_ended_because_of_the_new_level_is_found_with_its_last_words(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    cluster.stop(13)
    cluster.nodes[13].log.append("ERROR Unable to register because the broker does not support metadata.version 30")
    (found,) = check_for_narrower_nodes(ports).blockers
    assert (found.code, found.subject) == ("NODE-GONE-AFTER-FINALIZING", "node 13")
    assert "does not support metadata.version 30" in found.sentence, "the last words of its log"
    assert "its installed release 4.3.1 supports every level" in found.sentence
    assert found.remedy == "Read in its log why it is down, and start it."


def test_a_broker_that_is_down_and_whose_release_supports_less_is_told_by_the_catalogue(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    cluster.stop(13)
    cluster.nodes[13].installed = R421
    (found,) = check_for_narrower_nodes(ports).blockers
    assert (found.code, found.subject) == ("NODE-GONE-AFTER-FINALIZING", "node 13")
    assert "its installed release 4.2.1 does not support metadata.version 30: " in found.sentence
    assert "upgrade it to a release that supports the level" in found.remedy
    cluster.nodes[13].installed = None
    (found,) = check_for_narrower_nodes(ports).blockers
    assert "may support less than" in found.sentence


def test_a_stranger_that_registered_meanwhile_is_found(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.find_unlisted_brokers.add(99)
    (found,) = check_for_narrower_nodes(ports).blockers
    assert found.subject == "broker 99"


def test_upgrade_all_of_a_cluster_that_has_everything_plans_nothing(ports: ClusterPorts, cluster: FakeCluster) -> None:
    order = FeatureOrder(action=FeatureAction.UPGRADE_ALL)
    facts = cluster.catalogue.get(R431).features
    cluster.finalized = {name: f.latest_production for name, f in facts.items() if name != "kraft.version"}
    plan = plan_features(ports, order, unsafe=False)
    assert (plan.feature_changes, apply_features(Run(ports, plan))) == ((), ())
    cluster.finalized = {}
    with pytest.raises(TransientError, match="reports the finalized levels"):
        plan_features(ports, order, unsafe=False)


def test_make_true_asks_nothing_when_the_level_is_there(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = plan_for(ports, up="streams.version:1")
    cluster.finalized["streams.version"] = 1
    before = len(cluster.updates)
    assert ensure_levels(ports, plan.feature_changes)[0].accepted
    assert len(cluster.updates) == before


def test_a_missing_right_ends_the_plan_with_its_name_and_changes_nothing(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    def refuses(targets: Mapping[str, int], validate_only: bool) -> None:
        raise RefusedError("CLUSTER_AUTHORIZATION_FAILED.", remedy="Allow ALTER on CLUSTER.")

    with pytest.raises(RefusedError, match="ALTER on CLUSTER"):
        plan_for(replace(ports, admin=Scripted(cluster, refuses)), up="streams.version:1")
    assert cluster.updates == []


def test_brokers_with_several_log_directories_can_finalize_the_level_that_supports_them(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start counts the error again until then: as a blocker it would never end."""
    with_directories(cluster, monkeypatch, errors=1)
    cluster.nodes[12].log.extend(JBOD)
    plan = plan_for(ports, up="metadata.version:30", approve=False)
    found = {finding.code: finding for finding in plan.findings}
    assert plan.blockers == (), plan.blockers
    assert found["LOG-DIRECTORY-FAILURES-UNSEEN"].remedy.startswith("Let this run finalize metadata.version 30 soon")
    assert "log directories at metadata.version 3.6-IV2" in found["METADATA-ERRORS"].sentence
    assert plan.hidden == {}


@pytest.mark.parametrize(("errors", "lines"), [(2, JBOD), (1, JBOD[:1]), (1, ())], ids=["two", "no cause", "no line"])
def test_other_metadata_errors_of_such_a_broker_block(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, errors: int, lines: tuple[str, ...]
) -> None:
    with_directories(cluster, monkeypatch, errors=errors)
    cluster.nodes[12].log.extend(lines)
    plan = plan_for(ports, up="metadata.version:30", approve=False)
    assert [(found.code, found.subject) for found in plan.blockers] == [("METADATA-ERRORS", "node 12")]


def test_an_error_of_such_a_broker_whose_log_proves_nothing_needs_an_approval(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_directories(cluster, monkeypatch, errors=1)
    monkeypatch.setattr(FakeRuntime, "process_log", lambda runtime, node, after="": None)
    plan = plan_for(ports, up="metadata.version:15", approve=False)
    assert plan.blockers == ()
    assert list(plan.hidden) == ["error-counters=metadata errors of node 12"]
    assert requires_approval(plan)


def test_brokers_whose_files_no_runtime_shows_are_named_if_they_count_an_error(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_directories(cluster, monkeypatch, errors=1)

    def not_observable(runtime: FakeRuntime, node: NodeSpec) -> Mapping[str, str]:
        raise NotObservableError("The runtime sees no files of nodes.", remedy="None.")

    monkeypatch.setattr(FakeRuntime, "config", not_observable)
    monkeypatch.setattr(FakeRuntime, "process_log", lambda runtime, node, after="": None)
    plan = plan_for(ports, up="metadata.version:30", approve=False)
    found = {finding.code: finding for finding in plan.findings}
    assert found["LOG-DIRECTORY-FAILURES-UNSEEN"].covers == ("node 12",)
    assert plan.blockers == ()
