"""The text of a plan for a thousand brokers: short, complete remedies, and the same for the same plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import BLOCKER, FindingCode, group_by_kind
from kafka_rollout.control.approval import refuse_blockers
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.planning.plans import make_plan
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.approval_requests import approval_body, findings_part
from tests.unit.builders import R431, cluster, observation, partition, state

MOST = 20_000


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Java is too old everywhere, 300 topics have one replica, and every node gets a line of configuration."""
    spec = replace(cluster(controllers=range(1, 6), brokers=range(101, 1101)), snapshot_interval_s=600.0)
    alone = tuple(partition(f"topic-{number}", 0, [101 + number]) for number in range(300))
    old = {node.node_id: 11 for node in spec.nodes}
    seen = observation(state(spec, partitions=alone), cluster=spec, configs={n: {} for n in old}, java=old)
    return make_plan(seen, Request(target=R431), RunOf.UPGRADE)


def test_planning_looks_at_a_node_a_few_times_whatever_the_size_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, node = [], ClusterSpec.node

    def look(spec: ClusterSpec, node_id: int) -> NodeSpec:
        looked.append(node_id)
        return node(spec, node_id)

    monkeypatch.setattr(ClusterSpec, "node", look)
    spec = cluster(controllers=range(1, 6), brokers=range(101, 301))
    make_plan(observation(state(spec), cluster=spec), Request(target=R431), RunOf.UPGRADE)
    assert max(Counter(looked).values()) <= 10


def test_the_approval_of_a_thousand_brokers_is_short_and_has_each_remedy(plan: Plan) -> None:
    body = approval_body(plan)
    assert len(plan.findings) > 1_300
    assert len(body) < MOST
    assert body.count("Raise the replication factor with kafka-reassign-partitions.sh") == 1
    assert "300 topics (topic-0, topic-1, " in body
    assert "- 6 to 1,005: node-101 to node-1100 (101 to 1100)" in body
    assert "- 5: node-5 (5, active controller)" in body
    assert body.count("metadata.log.max.snapshot.interval.ms") == 2
    assert body == approval_body(plan)


def test_a_refusal_names_each_kind_once_and_its_remedy(plan: Plan) -> None:
    with pytest.raises(RefusedError) as refused:
        refuse_blockers(plan)
    said = str(refused.value)
    assert len(said) < 4_000
    for group in group_by_kind(plan.blockers):
        assert group.code in said
        assert group.remedy in said


def test_a_remedy_is_never_cut(plan: Plan) -> None:
    long = "Run: " + "x" * 9_000 + " end"
    finding = FindingCode("LONG", BLOCKER, "A long one.").found("node 1", "y" * 9_000, long)
    for text in (str(finding), str(RefusedError(finding.sentence, remedy=long)), findings_part(plan, (finding,))[-1]):
        assert text.endswith(long)
        assert "more characters)" in text
