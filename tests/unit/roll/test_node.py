"""A node step survives a kill at any point: run again, it ends on the release, started once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, LockHeldError, RefusedError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import ProcessState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.node_steps import (
    NodeStepState,
    last_started_release,
    node_step_state,
    rollback_release_steps,
)
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.report.builders import build_report
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.roll.loop import begin_rollback
from kafka_rollout.roll.node import needs_replacement, replace_node, restart_node
from kafka_rollout.run.events import ApprovalOf, Decision, Event, events_of
from kafka_rollout.run.step_events import InstalledWithError, Stopping
from tests.fakes.cluster import R340, R341, R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, gate_of, in_step
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade

RELEASE_STEP = "3.9.1-to-4.3.1"
NODE = 12  # a broker
PORTS = ("admin", "runtime", "metrics", "metadata_logs", "run", "lock")


class Killed(BaseException):
    """What a kill -9 looks like from inside: nothing after it runs."""


class KilledAfter:
    """A port whose `limit`-th call (counted over all wrapped ports) is the last thing that happens."""

    def __init__(self, port: Any, count: Callable[[], None]) -> None:
        self._port, self._count = port, count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            self._count()
            return answer

        return call


def killed_after(ports: ClusterPorts, calls: int) -> ClusterPorts:
    left, guard = [calls], Lock()

    def count() -> None:
        with guard:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed

    return replace(ports, **{name: KilledAfter(getattr(ports, name), count) for name in PORTS})


def starts_on(cluster: FakeCluster, node_id: int, release: Any) -> int:
    return sum(start.release == release for start in cluster.nodes[node_id].starts)


def count_calls(ports: ClusterPorts, act: Callable[[ClusterPorts], Any]) -> int:
    calls, guard = [0], Lock()

    def count() -> None:
        with guard:
            calls[0] += 1

    act(replace(ports, **{name: KilledAfter(getattr(ports, name), count) for name in PORTS}))
    return calls[0]


@pytest.mark.usefixtures("each_database")
def test_a_kill_after_any_call_ends_with_one_start_on_the_release(tmp_path: Path) -> None:
    def fresh(number: int) -> tuple[FakeCluster, ClusterPorts, Plan]:
        cluster = FakeCluster(R391)
        ports = fake_ports(cluster, tmp_path, run_id=f"run-{number}")
        plan = plan_upgrade(ports, R431, finalize=False)
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
        ports.lock.break_("fake", "the run before")
        return cluster, ports, plan

    _, ports, plan = fresh(0)
    total = count_calls(
        ports, lambda counted: replace_node(NodeRun(Run(counted, plan), *in_step(counted, plan, RELEASE_STEP, NODE)))
    )
    assert total > 20
    for calls in range(1, total + 1):
        cluster, ports, plan = fresh(calls)
        led = {name for name, p in cluster.topics.items() if p.leader == NODE}
        with pytest.raises(Killed):
            replace_node(NodeRun(Run(killed_after(ports, calls), plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
        assert cluster.release_of(NODE) == R431, calls
        assert starts_on(cluster, NODE, R431) == 1, calls
        assert cluster.stops == [NODE], calls
        before = ports.run.load_before_stop(RELEASE_STEP, NODE)
        assert before is not None
        assert before.leads == led, calls
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
        assert starts_on(cluster, NODE, R431) == 1, calls


@pytest.mark.usefixtures("each_database")
def test_of_a_stop_that_hung_for_long_the_first_record_counts(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    """A controlled shutdown that was interrupted has moved the leaderships away by then."""
    led = {name for name, partition in cluster.topics.items() if partition.leader == NODE}

    def stop_in_part(node_id: int) -> None:
        for name, partition in cluster.topics.items():
            if partition.leader == node_id:
                cluster.topics[name] = replace(partition, leader=partition.isr[1])
        raise Killed

    stop, cluster.stop = cluster.stop, stop_in_part  # type: ignore[method-assign]
    with pytest.raises(Killed):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    cluster.stop = stop  # type: ignore[method-assign]
    cluster.clock.sleep(3600.0)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    before = ports.run.load_before_stop(RELEASE_STEP, NODE)
    assert before is not None
    assert before.leads == led != set()


def test_a_node_on_the_release_is_left_alone(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    assert needs_replacement(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert not needs_replacement(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert not replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert starts_on(cluster, NODE, R431) == 1


def test_what_the_node_was_in_is_recorded_before_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    seen: list[Any] = []
    stop = cluster.stop
    cluster.stop = lambda node_id: (seen.append(ports.run.load_before_stop(RELEASE_STEP, node_id)), stop(node_id))[1]  # type: ignore[func-returns-value,assignment]
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert seen[0] is not None
    assert seen[0].in_isr == {"orders-0", "orders-1", "orders-2"}


@pytest.mark.usefixtures("each_database")
def test_a_stop_that_never_came_leaves_no_old_record_of_what_the_node_was_in(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    """Between two tries a day may pass, and partitions come that must be waited for as well."""
    record = ports.run.record

    def record_until_stop(event: Event) -> None:
        if isinstance(event, Stopping):
            raise Killed
        record(event)

    ports.run.record = record_until_stop  # type: ignore[method-assign]
    with pytest.raises(Killed):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    ports.run.record = record  # type: ignore[method-assign]
    cluster.add_partition("new", 0, [NODE, 13, 11], min_isr=2)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    before = ports.run.load_before_stop(RELEASE_STEP, NODE)
    assert before is not None
    assert "new-0" in before.leads


def test_the_gate_is_looked_at_right_before_the_stop(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    cluster.nodes[3].behind = 50
    with pytest.raises(TransientError, match=r"cannot be stopped safely yet: quorum without it"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2)))
    assert cluster.stops == []


def test_another_run_s_lock_refuses_the_turn(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    ports.lock.acquire("fake", "another run", "downgrade", for_s=60)
    with pytest.raises(LockHeldError, match="another run"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_an_inventory_edited_meanwhile_refuses_the_turn(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    edited = replace(ports, cluster=replace(ports.cluster, nodes=ports.cluster.nodes[:-1]))
    with pytest.raises(RefusedError, match=r"inventory .* changed .*13"):
        replace_node(NodeRun(Run(edited, plan), *in_step(edited, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_a_node_that_died_after_its_start_is_not_started_blindly_again(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.cannot_start.add((NODE, R431))
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    with pytest.raises(FatalError, match=r"cannot start on 4\.3\.1"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert starts_on(cluster, NODE, R431) == 1
    assert not check_gate(
        Run(ports, plan),
        gate_of(ports, plan, GateKind.AFTER_START, RELEASE_STEP, NODE),
    ).passes
    cluster.cannot_start.clear()
    restart_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.release_of(NODE) == R431


def test_a_start_before_this_run_s_stop_does_not_count(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier run started the node on this release, and an operator has started the older one since."""
    node = cluster.nodes[NODE]
    node.starts.append(StartRecord(release=R431, started_at=cluster.clock.now() - 3600, pid=node.pid + 1))
    assert last_started_release(ports, cluster.spec.node(NODE)) == R391

    def break_off(*_: object, **__: object) -> None:
        raise TransientError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(FakeRuntime, "install", break_off)
        with pytest.raises(TransientError):
            replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert not cluster.runs(NODE)
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.release_of(NODE) == R431


def test_a_node_that_somebody_else_stopped_is_not_started(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.stop(NODE)
    with pytest.raises(RefusedError, match="this run did not stop it"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.nodes[NODE].starts == []


def test_a_broken_node_is_rolled_back_from_where_the_roll_stopped(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 2)))
    check_gate(
        Run(ports, plan),
        gate_of(ports, plan, GateKind.AFTER_START, RELEASE_STEP, 2),
    )
    cluster.cannot_start.add((3, R431))
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 3)))
    node_steps = [key for batch in begin_rollback(Run(ports, plan)).batches for key in batch.key]
    assert node_steps == [("4.3.1-to-3.9.1", 3), ("4.3.1-to-3.9.1", 2)]
    with pytest.raises(RefusedError, match="rollback"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, *node_steps[0])))
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "node 3 does not start")
    for node_step in node_steps:
        assert check_gate(
            Run(ports, plan),
            gate_of(ports, plan, GateKind.BEFORE_STOP, node_step[0], node_step[1]),
        ).passes
        assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, *node_step)))
        after = GateRef(kind=GateKind.AFTER_START, release_step=node_step[0], node_id=node_step[1])
        check_gate(Run(ports, plan), after.resolve(plan, ports.cluster))
        assert check_gate(Run(ports, plan), after.resolve(plan, ports.cluster)).passes
    assert {node.running for node in cluster.nodes.values()} == {R391}


def test_a_roll_back_over_finalized_levels_is_refused(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    cluster.advance()
    cluster.finalized["metadata.version"] = 30
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "try")
    with pytest.raises(RefusedError, match=r"3\.9\.1 can no longer run this cluster"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "4.3.1-to-3.9.1", NODE)))
    assert cluster.stops == [NODE]


def test_in_two_release_steps_a_node_is_needed_on_its_way_and_past_afterwards(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    first, second = (release_step.key for release_step in plan.release_steps)
    assert (first, second) == ("3.4.0-to-3.4.1", "3.4.1-to-4.3.1")
    cluster.nodes[1].running = cluster.nodes[1].installed = R431
    assert node_step_state(NodeRun(Run(ports, plan), *in_step(ports, plan, first, 1))) is NodeStepState.PAST
    assert node_step_state(NodeRun(Run(ports, plan), *in_step(ports, plan, second, 1))) is NodeStepState.RUNS_TARGET
    assert node_step_state(NodeRun(Run(ports, plan), *in_step(ports, plan, first, 2))) is NodeStepState.NEEDED
    with pytest.raises(RefusedError, match="Finish the earlier release step first"):
        node_step_state(NodeRun(Run(ports, plan), *in_step(ports, plan, second, 2)))
    assert [release_step.key for release_step in rollback_release_steps(plan)] == ["4.3.1-to-3.4.1", "3.4.1-to-3.4.0"]
    assert plan.release_steps[0].to_release == R341


def test_a_retry_does_not_stop_a_node_that_the_others_cannot_spare(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    cluster.advance()
    cluster.stop(13)  # another broker was killed, so the gate after the start fails
    with pytest.raises(
        TransientError, match=r"Node 12 cannot be stopped safely yet:.* all other nodes are up: node 13"
    ):
        restart_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == [NODE, 13]


def test_what_failed_in_an_installation_that_succeeded_is_a_warning_of_the_report(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.installation_warning = "Kafka 4.3.1 is installed, and linux-image-6.1 is half-configured."
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.nodes[NODE].running == R431
    (event,) = events_of(ports.run.events(), InstalledWithError)
    assert (event.node_id, event.sentence) == (NODE, cluster.installation_warning)
    assert build_report(Run(ports, plan)).warnings == (cluster.installation_warning,)


def test_a_shutdown_that_hangs_is_forced_by_a_persons_retry_alone(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.hangs_in_shutdown.add(NODE)
    for _ in range(2):
        with pytest.raises(FatalError, match="still shutting down"):
            replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.nodes[NODE].running == R391
    restart_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.nodes[NODE].running == R431


@pytest.mark.usefixtures("each_database")
def test_a_stop_under_way_is_not_repeated_while_another_node_is_down(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    stop, cluster.stop = cluster.stop, raise_killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    cluster.stop = stop  # type: ignore[method-assign]
    cluster.stop(13)
    with pytest.raises(TransientError, match="cannot be stopped safely yet"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == [13]


def raise_killed(node_id: int) -> None:
    raise Killed


def test_a_lock_lost_before_the_stop_leaves_no_stop_in_the_record(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    save = ports.run.save_before_stop

    def save_and_lose(release_step: str, before: Any, **more: Any) -> None:
        save(release_step, before, **more)
        cluster.clock.sleep(3600.0)
        ports.lock.acquire("fake", "another run", "downgrade", for_s=60)

    ports.run.save_before_stop = save_and_lose  # type: ignore[method-assign]
    with pytest.raises(LockHeldError):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []
    assert not events_of(ports.run.events(), Stopping)


def test_a_task_that_runs_twice_at_once_acts_once(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, tmp_path: Path
) -> None:
    twin, said = fake_ports(cluster, tmp_path, run_id=ports.run_id), []
    stop = cluster.stop

    def stop_with_twin(node_id: int) -> None:
        with pytest.raises(TransientError, match="another process changes cluster fake") as refused:
            replace_node(NodeRun(Run(twin, plan), *in_step(twin, plan, RELEASE_STEP, NODE)))
        said.append(refused)
        stop(node_id)

    cluster.stop = stop_with_twin  # type: ignore[method-assign]
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert said
    assert starts_on(cluster, NODE, R431) == 1


def test_a_node_that_did_not_come_up_on_the_via_release_is_taken_back_by_that_release_step_alone(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(R340)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    first = plan.release_steps[0].key
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, first, 2)))
    cluster.advance()
    cluster.cannot_start.add((3, R341))
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, first, 3)))
    node_steps = [key for batch in begin_rollback(Run(ports, plan)).batches for key in batch.key]
    assert node_steps == [("3.4.1-to-3.4.0", 3), ("3.4.1-to-3.4.0", 2)]
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "node 3 does not start")
    for node_step in node_steps:
        assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, *node_step)))
        cluster.advance()
    assert {node.running for node in cluster.nodes.values()} == {R340}


def test_a_process_that_a_package_started_before_a_kill_is_stopped_and_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    process, install, installs = FakeRuntime.process, FakeRuntime.install, list[int]()

    def seen(runtime: FakeRuntime, node: NodeSpec) -> ProcessState:
        return replace(process(runtime, node), is_unfinished=len(installs) == 1)

    def package(runtime: FakeRuntime, node: NodeSpec, *given: Any, **more: Any) -> None:
        install(runtime, node, *given, **more)
        installs.append(node.node_id)
        if len(installs) == 1:
            cluster.start(node.node_id)  # by a script of the package, with its own configuration
            raise Killed

    monkeypatch.setattr(FakeRuntime, "process", seen)
    monkeypatch.setattr(FakeRuntime, "install", package)
    with pytest.raises(Killed):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.release_of(NODE) == R431
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert (installs, cluster.stops) == ([NODE, NODE], [NODE, NODE])
    assert (
        node_step_state(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
        is NodeStepState.RUNS_TARGET
    )
