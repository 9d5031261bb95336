"""Real brokers on coordinator logs that 4.3.1 wrote: the gate after a start sees exactly the loads that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.coordinators import CoordinatorAnswers, coordinators_condition
from kafka_rollout.gates.gate import BeforeStop, GateCheck, GateCondition, GateKind, GatePolicy, GateRef
from kafka_rollout.model.node_log import SeenLog, read_part
from kafka_rollout.model.state import PartitionState
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.preparation.proved_roll import check_running_nodes
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.ports import in_step
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import opened
from tests.integration.harness.logs.load_oracle import Outcome, Place, coordinator_config, plant, started_on
from tests.paths import FIXTURES
from tests.plans import plan_downgrade, plan_upgrade
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

WROTE = Release(4, 3, 1)
GROUPS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


@dataclass(frozen=True)
class Seen:
    """What one broker answers and counts after its start, and what its own log says of each load."""

    outcomes: dict[Place, Outcome]
    answers: CoordinatorAnswers
    log: SeenLog
    condition: GateCondition
    partitions: tuple[PartitionState, ...]
    counters: Mapping[str, float]
    running: GateCheck  # of a run that finds the process, and only finalizes


def logs_for(release: Release) -> dict[Place, tuple[bytes, bool]]:
    logs = {}
    for path in sorted((FIXTURES / f"coordinator-logs-{WROTE}-all-groups").glob("*.fetch")):
        topic, _, number = path.stem.rpartition("-")
        if topic != SHARES or release.major > 3:
            logs[topic, int(number)] = (path.read_bytes(), False)
    return logs


def seen_on(release: Release, folder: Path, cache: ReleaseCache, before: BeforeStop | None = None) -> Seen:
    started = started_on(release, logs_for(release), folder, cache)
    with started as (cluster, outcomes), KafkaAdmin(cluster.spec) as admin:
        (node,) = cluster.spec.nodes
        partitions = admin.partitions()
        answers = admin.coordinators(node, partitions)
        part = cluster.runtime.process_log(node)
        assert part is not None
        log = read_part(None, part)
        assert log.why_unknown == "", "the log of this process, from its start"
        condition = coordinators_condition(partitions, node.node_id, answers, before, log)
        counters = NodeMetricsReader(timeout_s=60).read(node).counters
        with opened(cluster, folder / "home") as ports:
            running = check_running_nodes(Run(ports, plan_upgrade(ports, release, finalize=True)))
        return Seen(outcomes, answers, log, condition, partitions, counters, running)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory, release_cache: ReleaseCache) -> Seen:
    return seen_on(WROTE, tmp_path_factory.mktemp("newest"), release_cache)


def test_the_release_that_wrote_the_logs_loads_them(newest: Seen) -> None:
    assert newest.condition.is_met, newest.condition.evidence
    assert newest.running.passes, newest.running.waits_for
    assert {*newest.log.loaded} >= {f"{topic}-{n}" for topic in (GROUPS, TRANSACTIONS, SHARES) for n in range(4)}
    assert newest.log.failed == {}
    assert newest.answers.groups
    assert newest.answers.transactional_ids
    assert newest.answers.by_partition.keys() == {f"{topic}-{n}" for topic in (GROUPS, TRANSACTIONS) for n in range(4)}


def test_the_counters_of_the_newest_release_explain_a_group_that_is_gone_without_a_log(newest: Seen) -> None:
    before = BeforeStop(
        node_id=1,
        release=str(WROTE),
        at=0.0,
        in_isr=frozenset(),
        leads=frozenset(),
        was_active_controller=False,
        groups=frozenset({"deleted"}),
    )

    def is_met(counters: Mapping[str, float]) -> bool:
        return coordinators_condition(newest.partitions, 1, newest.answers, before, None, counters=counters).is_met

    assert is_met(newest.counters)
    assert not is_met({})


@pytest.mark.parametrize("name", ["3.4.0", *(pytest.param(n, marks=pytest.mark.full) for n in ("3.4.1", "3.9.1"))])
def test_an_older_release_fails_the_gate_where_its_log_says_so(
    name: str, newest: Seen, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    before = BeforeStop(
        node_id=1,
        release=str(WROTE),
        at=0.0,
        in_isr=frozenset(),
        leads=frozenset(),
        was_active_controller=False,
        groups=newest.answers.groups or frozenset(),
        transactional_ids=newest.answers.transactional_ids or frozenset(),
    )
    older = seen_on(Release.parse(name), tmp_path, release_cache, before)
    failed = {f"{topic}-{number}" for (topic, number), outcome in older.outcomes.items() if outcome.failed}
    assert bool(failed) == (name == "3.4.0")  # KIP-915: from 3.4.1 on they ignore what they do not know
    assert older.log.failed.keys() == failed
    assert set(older.answers.by_partition.values()) <= {
        "NONE",
        "TRANSACTIONAL_ID_NOT_FOUND",
    }  # a failed load is no error of the request
    assert older.condition.is_met == (not failed), older.condition.evidence
    assert older.running.passes == (not failed), older.running.waits_for
    shown = {doubt.partition("a failed load of ")[2] for doubt in older.running.doubts}
    assert shown == failed, "an approver reads each of them, also in a run that has not started the process"
    assert "from before the stop are gone" in older.condition.evidence
    if failed:
        assert f"Error loading offsets from {GROUPS}-" in older.condition.evidence
        assert "java.lang.IllegalStateException" in older.condition.evidence
    else:
        assert "ignored by this release" in older.condition.evidence


@pytest.mark.full
def test_a_downgrade_stops_at_the_first_node_whose_coordinators_did_not_load(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """The plan has no scan, which would refuse the downgrade. 3.4.1 loads the logs, because it ignores the records."""
    logs = logs_for(Release(3, 4, 1))
    cluster = make_cluster("3.4.1", layout="combined", extra_config=coordinator_config(Release(3, 4, 1), logs))
    plant(cluster, logs, deadline_s=20)
    cluster.start()
    with opened(cluster, tmp_path / "home") as ports:
        wait_until(lambda: all(len(partition.isr) == 3 for partition in ports.admin.partitions()), 240)
        # The node that started first leads everything; a node that led nothing need not lead after its start.
        ports.admin.elect_preferred_leaders(ports.admin.partitions())
        wait_until(lambda: all(found.leader == found.preferred_leader for found in ports.admin.partitions()), 120)
        plan = plan_downgrade(ports, Release(3, 4, 0))
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
        (release_step,) = plan.release_steps
        node_id = release_step.order[0].node_id
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, release_step.key, node_id)))
        after_start = GateRef(kind=GateKind.AFTER_START, release_step=release_step.key, node_id=node_id)
        policy = GatePolicy(checks=1, interval_s=0.5, timeout_s=60, soak_s=0)
        with pytest.raises(RefusedError, match=f"could not load . partitions: Error loading offsets from {GROUPS}-"):
            wait_for_gate(Run(ports, plan), after_start.resolve(plan, ports.cluster), policy)
