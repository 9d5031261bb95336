from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.planning.findings.configuration import (
    CONTROLLED_SHUTDOWN,
    controlled_shutdown_findings,
    directory_findings,
)
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R391, R431, SEPARATE

R361 = Release(3, 6, 1)
IDS = [node.node_id for node in SEPARATE.nodes]
ONE = {node_id: {"log.dirs": "/data/1"} for node_id in IDS}
TWO = {node_id: {"log.dirs": "/data/1, /data/2"} for node_id in IDS}


def test_brokers_that_stop_without_handing_over_their_leaderships_are_named() -> None:
    assert list(controlled_shutdown_findings(SEPARATE, {})) == [], "true is the default"
    configs = {1: {CONTROLLED_SHUTDOWN: "false"}, 4: {CONTROLLED_SHUTDOWN: " False "}, 5: {CONTROLLED_SHUTDOWN: "true"}}
    (found,) = controlled_shutdown_findings(SEPARATE, configs)
    assert (found.code, found.severity, found.subject) == ("CONTROLLED-SHUTDOWN-OFF", Severity.BLOCKER, "node 4")
    assert "restart each broker once" in found.remedy
    (found,) = controlled_shutdown_findings(SEPARATE, {4: {CONTROLLED_SHUTDOWN: "${vault:a:b}"}})
    assert found.severity is Severity.WARNING


def _directories(
    path: Sequence[Release], level: int, planned: int, *, configs: NodeConfigs = TWO, unsafe: bool = False
) -> list[Finding]:
    of_path = dict.fromkeys(path, configs)
    return list(directory_findings(SEPARATE, of_path, path, level, planned, unsafe=unsafe))


@pytest.mark.parametrize(("unsafe", "severity"), [(False, Severity.BLOCKER), (True, Severity.WARNING)])
@pytest.mark.parametrize("target", [R391, R361], ids=str)
def test_several_log_directories_are_named_where_the_lower_level_does_not_support_them(
    target: Release, unsafe: bool, severity: Severity
) -> None:
    """Releases before 3.7 start with several directories, too."""
    (found,) = _directories([R431, target], 21, 14, unsafe=unsafe)
    assert (found.code, found.severity) == ("LOG-DIRECTORIES-UNSUPPORTED", severity)
    assert found.subject == "nodes 4, 5, 6", "controllers have no replicas"
    assert found.covers == ("node 4", "node 5", "node 6")
    assert "metadata.version 14 does not support" in found.sentence
    assert _directories([R431, target], 21, 17, unsafe=unsafe) == []
    assert _directories([R431, target], 21, 14, configs=ONE, unsafe=unsafe) == []


@pytest.mark.parametrize(
    "path", [(R361, R391), (R391, R391), (R391,), (R391, R361)], ids=["upgrade", "restart", "features", "downgrade"]
)
@pytest.mark.parametrize("planned", [14, 21])
def test_brokers_with_several_log_directories_below_their_level_are_named_in_each_plan(
    path: tuple[Release, ...], planned: int
) -> None:
    (found,) = _directories(path, 14, planned)
    assert (found.code, found.severity) == ("LOG-DIRECTORY-FAILURES-UNSEEN", Severity.WARNING)
    assert found.covers == ("node 4", "node 5", "node 6")
    assert "its partitions keep a leader that cannot serve them" in found.sentence
    assert "each start of such a broker counts one error" in found.sentence
    soon = (
        "Let this run finalize metadata.version 21 soon" if planned == 21 else "Finalize metadata.version 17 or higher"
    )
    assert found.remedy.startswith(soon)
    assert "meta.properties" not in found.remedy
    assert _directories(path, 14, planned, configs=ONE) == []
    assert _directories(path, 17, 21) == []


def test_directories_that_a_file_gains_with_a_release_count_and_those_of_a_config_provider_may() -> None:
    gained = {R361: ONE, R391: TWO}
    (found,) = directory_findings(SEPARATE, gained, [R361, R391], 14, 14, unsafe=False)
    assert found.subject == "nodes 4, 5, 6"
    (found,) = _directories([R361, R391], 14, 14, configs={4: {"log.dirs": "${vault:a:b}"}, 5: {"log.dir": "/a,/b"}})
    assert found.covers == ("node 4", "node 5")
    assert "(those of node 4 are unknown)" in found.sentence
    (found,) = _directories([R431, R391], 21, 14, configs={4: {"log.dirs": "${vault:a:b}"}})
    assert found.severity is Severity.WARNING


def test_only_releases_that_can_have_the_level_are_concerned_and_only_some_count_it() -> None:
    assert _directories([Release(3, 5, 2), R361], 11, 14) == [], "a known defect names it"
    (found,) = _directories([R361, Release(3, 7, 0)], 14, 14)
    assert "metadata-apply-error-count" not in found.sentence
    (found,) = _directories([Release(3, 3, 2), R391], 7, 7)
    assert "Before a rollback to 3.3.2, remove directory.id from each meta.properties" in found.remedy
