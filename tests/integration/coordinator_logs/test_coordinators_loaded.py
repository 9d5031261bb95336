"""Real brokers on coordinator logs that 4.3.1 wrote: the gate after a start sees exactly the loads that failed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_rollout.adapters.kafka.admin import KafkaAdmin
from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.domain.gates.check import BeforeStop, Condition
from kafka_rollout.domain.gates.coordinators import CoordinatorAnswers, coordinators_condition, find_load_errors
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.common.coordinators import LOG_LINES
from tests.integration.harness.load_oracle import Outcome, Place, started_on
from tests.paths import FIXTURES

pytestmark = pytest.mark.integration

WROTE = Release(4, 3, 1)
GROUPS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


@dataclass(frozen=True)
class Seen:
    """What one broker answers after its start, and what its own log says of each load."""

    outcomes: dict[Place, Outcome]
    answers: CoordinatorAnswers
    log: tuple[str, ...]
    condition: Condition


def seen_on(release: Release, folder: Path, cache: ReleaseCache, before: BeforeStop | None = None) -> Seen:
    logs = {}
    for path in sorted((FIXTURES / f"coordinator-logs-{WROTE}-all-groups").glob("*.fetch")):
        topic, _, number = path.stem.rpartition("-")
        if topic != SHARES or release.major > 3:
            logs[topic, int(number)] = (path.read_bytes(), False)
    with started_on(release, logs, folder, cache) as (cluster, outcomes), KafkaAdmin(cluster.spec) as admin:
        (node,) = cluster.spec.nodes
        partitions = admin.partitions()
        answers = admin.coordinators(node, partitions)
        log = cluster.runtime.log_tail(node, lines=LOG_LINES)
        return Seen(outcomes, answers, log, coordinators_condition(partitions, node.node_id, answers, before, log))


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory, release_cache: ReleaseCache) -> Seen:
    return seen_on(WROTE, tmp_path_factory.mktemp("newest"), release_cache)


def test_the_release_that_wrote_the_logs_loads_them(newest: Seen) -> None:
    assert newest.condition.holds, newest.condition.evidence
    assert newest.answers.groups
    assert newest.answers.transactional_ids
    assert newest.answers.by_partition.keys() == {f"{topic}-{n}" for topic in (GROUPS, TRANSACTIONS) for n in range(4)}


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
    assert find_load_errors(older.log).keys() == failed
    assert set(older.answers.by_partition.values()) <= {
        "NONE",
        "TRANSACTIONAL_ID_NOT_FOUND",
    }  # a failed load is no error of the request
    assert older.condition.holds == (not failed), older.condition.evidence
    assert "from before the stop are gone" in older.condition.evidence
    if failed:
        assert f"Error loading offsets from {GROUPS}-" in older.condition.evidence
        assert "java.lang.IllegalStateException" in older.condition.evidence
    else:
        assert "ignored by this release" in older.condition.evidence
