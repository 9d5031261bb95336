"""Files of nodes on real brokers: the plan's prediction compared with a real start on the newer release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_rollout.adapters.system import server_properties
from kafka_rollout.domain.model.releases import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import Command
from tests.integration.harness.planted_configs import restart_on

pytestmark = [pytest.mark.integration, pytest.mark.full]

SOURCE, TARGET = Release(3, 9, 1), Release(4, 3, 1)
VOTERS, BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
CODES = {"CONFIG-REJECTED", "CONFIG-UNKNOWN-TO-TARGET", "QUORUM-VOTERS-MISSING"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """`lines`: settings that the file gets, None to remove one. Values VOTERS, BOOTSTRAP: of the cluster."""

    lines: Mapping[str, str | None]
    found: frozenset[str] = frozenset()
    starts: bool = True
    quorum: str = "static"


CASES = {
    "static-quorum-without-voters": Case(
        lines={VOTERS: None, BOOTSTRAP: BOOTSTRAP}, found=frozenset({"QUORUM-VOTERS-MISSING"}), starts=False
    ),
    "static-quorum-with-both": Case(lines={BOOTSTRAP: BOOTSTRAP}),
    "dynamic-quorum-with-voters": Case(lines={VOTERS: VOTERS, BOOTSTRAP: None}, quorum="dynamic"),
    "dynamic-quorum": Case(lines={}, quorum="dynamic"),
    "missing-reporter": Case(
        lines={"metric.reporters": "com.example.Missing"}, found=frozenset({"CONFIG-REJECTED"}), starts=False
    ),
    "removed-authorizer": Case(
        lines={"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
        found=frozenset({"CONFIG-REJECTED"}),
        starts=False,
    ),
    "leftover-versions": Case(
        lines={"inter.broker.protocol.version": "3.9", "log.message.format.version": "2.8"},
        found=frozenset({"CONFIG-UNKNOWN-TO-TARGET"}),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_starts_with_its_file_exactly_if_the_plan_does_not_refuse_it(
    make_cluster: MakeCluster, command: Command, case: Case
) -> None:
    cluster = make_cluster(str(SOURCE), layout="combined", size=1, quorum=case.quorum)
    (node,) = cluster.spec.nodes
    controllers = cluster.spec.bootstrap_controllers
    values = {VOTERS: f"{node.node_id}@{controllers}", BOOTSTRAP: controllers}
    path = Path(str(node.directory)) / "server.properties"
    lines = dict(server_properties.parse(path.read_text()))
    for name, value in case.lines.items():
        if value is None:
            lines.pop(name, None)
        else:
            lines[name] = values.get(value, value)
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    _, out, err = command(cluster, f"plan --to {TARGET} --json")
    assert out, err
    found = json.loads(out)["plan"]["findings"]
    assert {one["code"] for one in found} & CODES == case.found
    refused = any(one["severity"] == "blocker" for one in found if one["code"] in CODES)
    assert refused is not case.starts
    assert restart_on(cluster, TARGET, within_s=180 if case.starts else 40).runs is case.starts
