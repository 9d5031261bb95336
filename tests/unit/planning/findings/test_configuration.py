from __future__ import annotations

import pytest

from kafka_rollout.base.findings import Severity
from kafka_rollout.planning.findings.configuration import (
    CONTROLLED_SHUTDOWN,
    controlled_shutdown_findings,
    directory_findings,
)
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R391, R431, SEPARATE, node_state, state

R361 = Release(3, 6, 1)
IDS = [node.node_id for node in SEPARATE.nodes]
TWO = {node_id: {"log.dirs": "/data/1, /data/2"} for node_id in IDS}


def test_brokers_that_stop_without_handing_over_their_leaderships_are_named() -> None:
    assert list(controlled_shutdown_findings(SEPARATE, {})) == [], "true is the default"
    configs = {1: {CONTROLLED_SHUTDOWN: "false"}, 4: {CONTROLLED_SHUTDOWN: " False "}, 5: {CONTROLLED_SHUTDOWN: "true"}}
    (found,) = controlled_shutdown_findings(SEPARATE, configs)
    assert (found.code, found.severity, found.subject) == ("CONTROLLED-SHUTDOWN-OFF", Severity.BLOCKER, "node 4")
    assert "restart each broker once" in found.remedy
    (found,) = controlled_shutdown_findings(SEPARATE, {4: {CONTROLLED_SHUTDOWN: "${vault:a:b}"}})
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize(("unsafe", "severity"), [(False, Severity.BLOCKER), (True, Severity.WARNING)])
def test_several_log_directories_are_named_where_the_lower_level_does_not_support_them(
    unsafe: bool, severity: Severity
) -> None:
    seen = state(nodes={i: node_state(i, R391, finalized={"metadata.version": 21}) for i in IDS})
    (found,) = directory_findings(SEPARATE, TWO, seen, R391, 16, unsafe=unsafe)
    assert (found.code, found.severity) == ("LOG-DIRECTORIES-UNSUPPORTED", severity)
    assert found.subject == "nodes 4, 5, 6", "controllers have no replicas"
    assert "metadata.version 16 does not support" in found.sentence
    assert list(directory_findings(SEPARATE, TWO, seen, R391, 17, unsafe=unsafe)) == []
    assert list(directory_findings(SEPARATE, TWO, seen, R361, 14, unsafe=unsafe)) == [], "3.6 rejects the file"
    one = {node_id: {"log.dirs": "/data/1"} for node_id in IDS}
    assert list(directory_findings(SEPARATE, one, seen, R391, 16, unsafe=unsafe)) == []
    low = state(nodes={i: node_state(i, R431, finalized={"metadata.version": 16}) for i in IDS})
    assert list(directory_findings(SEPARATE, TWO, low, R391, 15, unsafe=unsafe)) == [], "the run does not change it"
