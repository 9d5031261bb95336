"""Missing rights: a plan names them, an observation without them is refused, and a removed one stops the next stop."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.rights import ALTER_CLUSTER, LIST_CONTROLLERS, READING, MissingRight, Right, grant_commands
from kafka_rollout.model.topology import Role
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.frozen_plan import refuse_new_blockers
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import verify
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports, hidden_bench
from tests.plans import plan_downgrade, plan_upgrade

R391, R421, R431 = Release(3, 9, 1), Release(4, 2, 1), Release(4, 3, 1)


def _missing(right: Right, listener: Role = Role.BROKER) -> MissingRight:
    return MissingRight(right=right, principal="User:rollout", listener=listener)


@pytest.mark.parametrize(("release", "target"), [(R391, R431), (R431, R421)], ids=["upgrade", "downgrade"])
def test_a_plan_names_each_missing_right_with_the_command_that_grants_it(
    tmp_path: Path, release: Release, target: Release
) -> None:
    cluster = FakeCluster(release)
    cluster.missing_rights = [_missing(ALTER_CLUSTER), _missing(LIST_CONTROLLERS, Role.CONTROLLER)]
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, target, finalize=True) if target > release else plan_downgrade(ports, target)
    found = [finding for finding in plan.blockers if finding.code == "RIGHT-MISSING"]
    assert [finding.subject for finding in found] == [
        "ALTER on CLUSTER (broker listener)",
        "ALTER on CLUSTER (controller listener)",
    ]
    assert found[0].sentence.startswith("User:rollout does not have the right ALTER on CLUSTER. It is needed to elect")
    assert [finding.remedy for finding in found] == [
        f"Run: {grant_commands([ALTER_CLUSTER], cluster.spec.bootstrap_servers, 'User:rollout')[0]}"
    ] * 2


@pytest.mark.parametrize("right", READING, ids=str)
def test_a_cluster_is_not_observed_without_a_right_to_read(tmp_path: Path, right: Right) -> None:
    cluster = FakeCluster(R431)
    cluster.missing_rights = [_missing(right)]
    with pytest.raises(
        RefusedError, match=f"RIGHT-MISSING: User:rollout does not have the right {right}".replace("*", r"\*")
    ):
        observe(fake_ports(cluster, tmp_path))


def test_a_right_that_is_removed_after_the_approval_prevents_the_next_stop(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    refuse_new_blockers(Run(ports, plan))
    cluster.missing_rights = [_missing(ALTER_CLUSTER)]
    with pytest.raises(RefusedError, match="does not have the right ALTER on CLUSTER"):
        refuse_new_blockers(Run(ports, plan))


def test_an_unknown_principal_is_a_placeholder_of_the_command(tmp_path: Path) -> None:
    cluster = FakeCluster(R431)
    cluster.missing_rights = [MissingRight(right=READING[0], principal=None)]
    with pytest.raises(RefusedError, match="The user of this tool does not have the right") as refused:
        observe(fake_ports(cluster, tmp_path))
    assert "--allow-principal 'User:NAME'" in refused.value.remedy


def test_without_a_runtime_a_missing_right_to_read_is_not_observable(tmp_path: Path) -> None:
    cluster = FakeCluster(R431)
    cluster.missing_rights = [_missing(READING[0])]
    found = verify(hidden_bench(cluster, tmp_path)).verdict
    assert found.ok
    assert any("does not have the right DESCRIBE on CLUSTER" in finding.sentence for finding in found.findings)


def test_a_shell_reads_the_principal_of_a_grant_as_one_word() -> None:
    principal = "User:CN=Pat O'Brien,OU=Ops"
    (command,) = grant_commands([ALTER_CLUSTER], "kafka-1:9092", principal)
    words = shlex.split(command)
    assert words[words.index("--allow-principal") + 1] == principal
