"""What the steps rely on, claimed of the cluster in memory and of a real one alike (ClusterAdmin and NodeRuntime)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, coordinator_partition
from kafka_rollout.gates.coordinators import CoordinatorAnswers
from kafka_rollout.model.broker_views import BrokerView, find_disagreements
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import ConfigSource
from kafka_rollout.model.starts import PluginClass
from kafka_rollout.model.state import ClusterState, NodeState, ProcessState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.findings.agreement import NextStart, agreement_findings
from kafka_rollout.planning.findings.pending import SinceStart, pending_findings
from kafka_rollout.releases.facts import METADATA_VERSION
from tests.contract.conftest import RELEASE, TOPIC, World


def _in_full(world: World) -> bool:
    return all(set(p.isr) == set(p.replicas) for p in world.orders())


def _led_as_preferred(world: World) -> bool:
    return all(p.leader == p.preferred_leader for p in world.orders())


def _settle(world: World) -> None:
    """Every node runs, every partition is in full and led by its preferred leader."""
    for node in world.spec.nodes:
        world.runtime.start(node)
    assert world.until(lambda: len(world.orders()) == 3 and _in_full(world))

    def led_well() -> bool:
        world.admin.elect_preferred_leaders(world.orders())
        return _led_as_preferred(world)

    assert world.until(led_well)
    # A leader knows observers once they have fetched from it, and controllers register once they have found it.
    nodes = {node.node_id for node in world.spec.nodes}
    assert world.until(lambda: _told_by_the_quorum(world) == nodes)
    assert world.until(lambda: world.admin.registered().controllers == {n.node_id for n in world.spec.controllers})


def _told_by_the_quorum(world: World) -> set[int]:
    quorum = world.admin.quorum()
    return {replica.replica_id for replica in (*quorum.voters, *quorum.observers)} if quorum.leader_id > 0 else set()


@pytest.fixture(autouse=True)
def _settled(world: World) -> None:
    _settle(world)


def _stop(world: World, node: NodeSpec) -> None:
    world.runtime.stop(node, deadline_s=180)


def test_a_cluster_wide_default_is_set_and_is_an_effective_value(world: World) -> None:
    name, value = "log.retention.ms", "123456789"
    brokers = {node.node_id for node in world.spec.brokers}
    world.admin.set_default_config(name, value, validate_only=True)
    assert world.admin.setting(name).default is None
    world.admin.set_default_config(name, value, validate_only=False)
    world.admin.set_default_config(name, value, validate_only=False)
    assert world.until(lambda: world.admin.setting(name).brokers == dict.fromkeys(brokers, value))
    assert world.admin.setting(name).default == value
    found = world.admin.inventory(leaderless=True)
    assert found.configs["brokers"][name] == value
    effective = [found.effective.brokers.settings(str(node_id))[name] for node_id in brokers]
    assert {(one.value, one.source) for one in effective} == {(value, ConfigSource.ALL_BROKERS)}
    assert "min.insync.replicas" in found.effective.topics.settings(TOPIC)


def test_every_broker_reports_its_own_view_of_the_metadata(world: World) -> None:
    def views() -> Mapping[int, BrokerView]:
        return world.admin.views(groups=["payments"], topic_settings={"retention.ms"})

    assert world.until(lambda: views().keys() == {node.node_id for node in world.spec.brokers})
    assert world.until(lambda: not find_disagreements(views()))
    assert "ACL" in next(iter(views().values()))


def test_a_claim_is_seen_at_the_process_of_its_node_until_it_ends(world: World) -> None:
    """Of runs of two databases: neither hides the other's."""
    one, other = world.spec.brokers[:2]

    def claim_of(run_id: str, at: float) -> Claim:
        nonce = f"{int(at):032x}"
        return Claim(cluster_id="", node_id=one.node_id, run_id=run_id, nonce=nonce, at=at, database=f"{run_id}.db")

    ours, theirs = claim_of("ours", 1.0), claim_of("theirs", 2.0)
    assert world.runtime.process(one).claims == Claims()
    assert world.runtime.claim(one, ours) == Claims(open=(ours,))
    assert world.runtime.claim(one, theirs) == Claims(open=(ours, theirs))
    assert world.runtime.process(one).claims == Claims(open=(ours, theirs))
    assert world.runtime.process(other).claims == Claims()
    world.runtime.end_claims(one, [ours], changed=True)
    assert world.runtime.process(one).claims == Claims(open=(theirs,), closed=ours)
    world.runtime.end_claims(one, [theirs], changed=False)
    assert world.runtime.process(one).claims == Claims(closed=ours)


def test_the_cluster_has_one_id(world: World) -> None:
    assert len(world.admin.cluster_id()) == 22
    assert world.admin.cluster_id() == world.admin.cluster_id()


def test_every_node_answers_for_its_own_features(world: World) -> None:
    for node in world.spec.nodes:
        features = world.admin.features(node)
        assert features.finalized[METADATA_VERSION] in features.supported[METADATA_VERSION]
        assert features.epoch is not None
        assert features.epoch >= 0
        assert features.supported["group.version"].min == 0


def test_every_node_reports_its_configuration_file(world: World) -> None:
    for node in world.spec.nodes:
        reported, file = world.admin.node_config(node), world.runtime.config(node)
        assert reported.items() <= file.items()
        assert reported.keys() >= {"node.id", "process.roles", "controller.quorum.voters"} & file.keys()


def test_a_process_that_has_read_its_file_uses_every_line_of_it(world: World) -> None:
    """Of brokers and of controllers alone: no line is shown as a change that a restart brings into effect."""
    ids = {node.node_id for node in world.spec.nodes}
    started = {node.node_id: world.runtime.process(node).started_at for node in world.spec.nodes}
    configs = {node.node_id: world.runtime.config(node) for node in world.spec.nodes}
    seen = SinceStart(
        configs=configs,
        in_use={node.node_id: world.admin.settings_in_use(node) for node in world.spec.nodes},
        files={node.node_id: world.runtime.start_files(node, configs[node.node_id]) for node in world.spec.nodes},
        started_at={node_id: at for node_id, at in started.items() if at is not None},
    )
    assert seen.started_at.keys() == ids
    # The SSH user cannot see every file.
    assert [one for one in pending_findings(ids, seen) if one.code != "FILE-CHANGE-UNKNOWN"] == []
    node = world.spec.controllers[0]
    new = {"num.io.threads": "3", "log.retention.bytes": "1", "allow.everyone.if.no.acl.found": "true"}
    lines = seen.configs[node.node_id] | new
    changed = pending_findings({node.node_id}, replace(seen, configs={node.node_id: lines}))
    assert {one.code for one in changed} - {"FILE-CHANGE-UNKNOWN"} == {
        "FILE-NOT-READ",
        "FILE-CHANGES-DATA",
        "FILE-CHANGES-ACCESS",
    }
    assert world.admin.settings_in_use(node, ["num.io.threads"]).keys() == {"num.io.threads"}


def test_a_text_of_a_file_that_means_what_the_process_uses_is_no_change(world: World) -> None:
    """By the type that the broker itself reports of a setting (KIP-569)."""
    node = world.spec.brokers[0]
    in_use = world.admin.settings_in_use(node)
    assert in_use["log.cleaner.min.cleanable.ratio"].type is ValueType.DOUBLE
    file = dict(world.runtime.config(node))
    alike = {
        "log.cleaner.min.cleanable.ratio": "0.500",
        "delete.topic.enable": "TRUE",
        "log.segment.bytes": "+1073741824",
    }
    alike = {name: text for name, text in alike.items() if name not in file}
    seen = SinceStart(configs={node.node_id: file | alike}, in_use={node.node_id: in_use})
    assert list(pending_findings({node.node_id}, seen)) == []


def test_the_files_and_options_of_a_start_are_those_of_the_host(world: World) -> None:
    """Of a broker and of a controller: a file that exists nowhere, one that exists, a class that no jar has."""
    world.show_environment()
    for node in (world.spec.brokers[0], world.spec.controllers[0]):
        assert world.runtime.jvm_problems(node, (RELEASE,)) == (), "it runs with these options"
        assert world.runtime.unresolved_names(node, ["localhost", "kafka.invalid"]) == ("kafka.invalid",)
        files = {"ssl.keystore.location": "/nowhere/node.p12", "ssl.truststore.location": "/etc/hostname"}
        absent, present = world.runtime.named_files(node, files) or ()
        assert [(one.setting, one.path) for one in (absent, present)] == list(files.items())
        assert (absent.is_absent, absent.changed_at) == (True, None)
        assert not present.is_absent
        assert present.changed_at is not None or present.problem
        plugin = PluginClass(setting="authorizer.class.name", name="com.example.Nowhere")
        places = world.runtime.find_classes(node, RELEASE, [plugin])
        assert places is not None
        assert plugin.name not in {**places.jars, **places.left_behind}


def test_a_listener_without_tls_presents_no_certificate_and_says_why(world: World) -> None:
    node = world.spec.brokers[0]
    assert node.broker_address is not None
    (found,) = world.admin.certificates(node, [node.broker_address])
    assert (found.address, found.ends_at, found.subject) == (node.broker_address, None, "")
    assert found.problem


def test_the_files_of_a_cluster_agree_and_one_wrong_line_of_voters_does_not(world: World) -> None:
    """A static quorum: the line of node 101 alone would let it elect itself."""
    world.until(lambda: _told_by_the_quorum(world) == {node.node_id for node in world.spec.nodes})
    nodes = {node.node_id: world.admin.features(node) for node in world.spec.nodes}
    state = ClusterState(
        cluster_id=world.admin.cluster_id(),
        observed_at=0.0,
        nodes={
            node_id: NodeState(node_id=node_id, process=ProcessState(pid=None), features=features, metrics=None)
            for node_id, features in nodes.items()
        },
        quorum=world.admin.quorum(),
        registered=world.admin.registered(),
        partitions=(),
    )
    configs = {node.node_id: dict(world.runtime.config(node)) for node in world.spec.nodes}
    formats = {node.node_id: world.runtime.directory_formats(node, configs[node.node_id]) for node in world.spec.nodes}
    directories = {
        node_id: tuple(one.identity for one in found.values() if one.identity is not None)
        for node_id, found in formats.items()
        if found is not None
    }

    def found() -> list[str]:
        files = NextStart(cluster=world.spec, state=state, configs=configs, directories=directories)
        return [one.code for one in agreement_findings(files)]

    assert found() == []
    first = world.spec.controllers[0]
    configs[first.node_id]["controller.quorum.voters"] = f"{first.node_id}@{first.controller_address}"
    assert found() == ["VOTERS-DIFFER"]


def test_the_quorum_names_leader_voters_and_observers(world: World) -> None:
    quorum = world.admin.quorum()
    assert {voter.replica_id for voter in quorum.voters} == {node.node_id for node in world.spec.controllers}
    assert {seen.replica_id for seen in quorum.observers} == {node.node_id for node in world.spec.brokers}
    assert quorum.leader_id in {voter.replica_id for voter in quorum.voters}
    assert quorum.lag(quorum.leader_id) == 0
    assert quorum.leader_epoch > 0


def test_registered_are_all_brokers_unfenced_and_all_controllers(world: World) -> None:
    registered = world.admin.registered()
    assert registered.brokers == {node.node_id for node in world.spec.brokers}
    assert registered.fenced == frozenset()
    assert registered.controllers == {node.node_id for node in world.spec.controllers}


def test_partitions_carry_their_effective_min_isr(world: World) -> None:
    orders = world.orders()
    assert [p.name for p in orders] == ["orders-0", "orders-1", "orders-2"]
    assert {p.min_isr for p in orders} == {2}
    assert all(len(p.replicas) == 3 for p in orders)


def test_a_broker_answers_for_the_coordinator_partitions_that_it_leads(world: World) -> None:
    world.use_group("readers")
    nodes = world.spec.brokers

    def answers() -> list[CoordinatorAnswers]:
        return [world.admin.coordinators(node, world.admin.partitions()) for node in nodes]

    def loaded() -> bool:
        return all(set(one.by_partition.values()) <= {"NONE", "GROUP_ID_NOT_FOUND"} for one in answers())

    assert world.until(loaded)
    partitions = [p for p in world.admin.partitions() if p.topic == GROUPS_TOPIC]
    number = coordinator_partition("readers", len(partitions))
    for node, one in zip(nodes, answers(), strict=True):
        assert one.by_partition.keys() == {p.name for p in partitions if p.leader == node.node_id}
        assert one.groups == (frozenset({"readers"}) if partitions[number].leader == node.node_id else frozenset())
        assert one.transactional_ids == frozenset()


def test_validate_only_changes_nothing(world: World) -> None:
    node = world.spec.brokers[0]
    before = world.admin.features(node).finalized
    level = before[METADATA_VERSION]
    results = world.admin.update_features({METADATA_VERSION: level, "group.version": 1}, validate_only=True)
    assert [(r.feature, r.error) for r in results] == [(METADATA_VERSION, "NONE"), ("group.version", "NONE")]
    assert world.admin.features(node).finalized == before
    assert world.admin.update_features({}, validate_only=False) == ()


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(
    "targets",
    [
        {METADATA_VERSION: 99},
        {METADATA_VERSION: 29},
        {"no.such.feature": 1},
        {METADATA_VERSION: 99, "group.version": 1},
    ],
)
def test_what_cannot_be_finalized_is_refused_for_every_feature(
    world: World, targets: dict[str, int], unsafe: bool
) -> None:
    before = world.admin.features(world.spec.brokers[0]).finalized
    results = world.admin.update_features(targets, validate_only=False, unsafe=unsafe)
    assert {r.feature for r in results} == set(targets)
    assert {r.error for r in results} == {"INVALID_UPDATE_VERSION"}
    assert all(r.message for r in results)
    assert world.admin.features(world.spec.brokers[0]).finalized == before


def test_a_feature_goes_up_and_down_with_its_epoch(world: World) -> None:
    node = world.spec.brokers[0]

    def finalize(level: int) -> int:
        assert all(r.accepted for r in world.admin.update_features({"group.version": level}, validate_only=False))
        assert world.until(lambda: world.admin.features(node).finalized.get("group.version", 0) == level)
        epoch = world.admin.features(node).epoch
        assert epoch is not None
        return epoch

    first = finalize(0)
    assert finalize(1) > first


def test_a_running_node_is_not_installed_over(world: World) -> None:
    with pytest.raises(FatalError, match=r"[Ss]top the node first"):
        world.runtime.install(world.spec.brokers[0], RELEASE)


def test_a_stopped_broker_is_seen_as_such_and_the_others_answer(world: World) -> None:
    node = world.spec.brokers[0]
    _stop(world, node)
    _stop(world, node)  # again is no error
    assert world.runtime.process(node).pid is None
    with pytest.raises(TransientError, match=rf"[Nn]ode {node.node_id}\b"):
        world.admin.features(node)
    assert world.until(lambda: all(node.node_id not in p.isr and p.leader != node.node_id for p in world.orders()))
    assert all(p.leader != -1 for p in world.orders())
    assert world.until(lambda: node.node_id in (world.admin.registered().fenced or ()))
    registered = world.admin.registered()
    assert node.node_id in registered.brokers
    world.admin.groups()
    world.admin.transactions()
    theirs = [p for p in world.orders() if p.preferred_leader == node.node_id]
    with pytest.raises(TransientError, match=theirs[0].name):
        world.admin.elect_preferred_leaders(theirs)


def test_a_started_broker_returns_to_its_isrs_but_leads_only_when_asked(world: World) -> None:
    node = world.spec.brokers[1]
    starts = len(world.runtime.starts(node))
    _stop(world, node)
    world.runtime.install(node, RELEASE)
    world.runtime.start(node)
    world.runtime.start(node)  # again is no second start
    assert len(world.runtime.starts(node)) == starts + 1
    assert world.runtime.starts(node)[-1].release == RELEASE
    assert world.runtime.process(node).installed == RELEASE
    assert world.until(lambda: _in_full(world))
    assert not _led_as_preferred(world)
    world.admin.elect_preferred_leaders(world.orders())
    assert world.until(lambda: _led_as_preferred(world))
    world.admin.elect_preferred_leaders(world.orders())  # nothing to elect is no error
    world.admin.elect_preferred_leaders(())


def test_without_the_active_controller_another_leads_and_it_stays_registered(world: World) -> None:
    """A registration outlives its process: that is how controllers scaled away long ago ("ghosts") are found."""
    before = world.admin.quorum()
    _stop(world, world.spec.node(before.leader_id))
    seen = [before]

    def another_leads() -> bool:
        seen.append(world.admin.quorum())
        return seen[-1].leader_id not in (before.leader_id, -1)

    assert world.until(another_leads)
    after = seen[-1]
    assert after.leader_epoch > before.leader_epoch
    assert before.leader_id in {voter.replica_id for voter in after.voters}
    assert world.until(lambda: before.leader_id in (world.admin.registered().controllers or ()))


def test_without_a_quorum_nobody_answers_for_it(world: World) -> None:
    leader = world.admin.quorum().leader_id
    for node in world.spec.controllers:
        if node.node_id != leader:
            world.runtime.stop(node, deadline_s=0, force=True)
    # A leader that is left alone answers until it resigns: its voters have not fetched for 1.5 fetch timeouts.
    assert world.until(lambda: _refused(world.admin.quorum))
    assert world.until(lambda: _refused(lambda: world.admin.update_features({"group.version": 1}, validate_only=True)))
    # What brokers know is old from now on: only who names the brokers is told it.
    assert _refused(world.orders)
    assert _refused(world.admin.registered)
    brokers = [node.node_id for node in world.spec.brokers]
    assert len([one for one in world.admin.partitions(through=brokers) if one.topic == TOPIC]) == 3


def _refused(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except TransientError:
        return True
    return False
