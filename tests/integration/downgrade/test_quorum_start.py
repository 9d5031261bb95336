"""Controllers that start together on the settings of the check: without a leader before, Kafka elects one or none."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kafka_rollout.formats.files import server_properties
from kafka_rollout.model.acls import STANDARD_AUTHORIZER
from kafka_rollout.planning.findings.quorum_start import QUORUM_CANNOT_START, QuorumStart, quorum_start_findings
from tests.integration.conftest import MakeCluster
from tests.unit.builders import state
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]
L = "listener.name.controller"
LINES = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"{L}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    f"{L}.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="pw" user_admin="pw";',
    f"{L}.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="admin" password="pw";',
}
RIGHTS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
# In this order, because the controllers keep their logs.
CASES: dict[str, dict[str, str]] = {
    "SCRAM": {"sasl.mechanism.controller.protocol": "SCRAM-SHA-512"},
    "no super user": {**RIGHTS, "super.users": "User:other", "allow.everyone.if.no.acl.found": "true"},
    "no early start": {**RIGHTS, "early.start.listeners": ""},
    "anonymous": {**RIGHTS, "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
    "super user": RIGHTS,
    "PLAIN": {},
}
ELECTS = {"super user", "PLAIN"}


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    return make_shared_cluster(
        "4.3.1",
        name="quorum-start",
        size=1,
        controllers=3,
        extra_config=LINES,
        format_options=["--add-scram", "SCRAM-SHA-512=[name=admin,password=pw]"],
        start=False,
    )


def leader(cluster: LocalCluster, *, within_s: float) -> int:
    """Return the leader that a controller knows; -1 without one after this time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for node in cluster.spec.controllers:
            for path in Path(str(node.directory)).rglob("quorum-state"):
                if (found := json.loads(path.read_text() or "{}").get("leaderId", -1)) >= 0:
                    return int(found)
        time.sleep(0.2)
    return -1


@pytest.mark.parametrize("case", CASES)
def test_what_the_check_says_is_what_kafka_does(cluster: LocalCluster, case: str) -> None:
    configs = {}
    for node in cluster.spec.controllers:
        path = Path(str(node.directory)) / "server.properties"
        before = path.read_bytes()
        path.write_bytes(before + "".join(f"\n{key}={value}" for key, value in CASES[case].items()).encode() + b"\n")
        configs[node.node_id] = server_properties.parse(path.read_bytes())
        for earlier in Path(str(node.directory)).rglob("quorum-state"):
            earlier.unlink()  # of the case before
        cluster.runtime.start(node)
        path.with_suffix(".before").write_bytes(before)
    try:
        elected = leader(cluster, within_s=60 if case in ELECTS else 20)
        assert (elected >= 0) is (case in ELECTS)
        assert all(cluster.runtime.process(node).pid is not None for node in cluster.spec.controllers)
    finally:
        for node in cluster.spec.controllers:
            cluster.runtime.stop(node, deadline_s=0.0, force=True)
            path = Path(str(node.directory)) / "server.properties"
            path.with_suffix(".before").replace(path)
    start = QuorumStart(cluster=cluster.spec, state=state(cluster.spec, quorum=None), configs=configs)
    found = {finding.code for finding in quorum_start_findings(start, stops_all=True)}
    assert found == (set() if case in ELECTS else {QUORUM_CANNOT_START.code})
