"""A DAG's run is continued from the shell by an approver alone, and the record says by whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import take_over_run
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import Begun, Channel, Responder, TakenOver
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports

SHELL = Responder(channel=Channel.SHELL, user="svc-kafka", host="jump-1")


@pytest.fixture
def ports(tmp_path: Path) -> ClusterPorts:
    ports = fake_ports(FakeCluster(), tmp_path, run_id="manual__1")
    ports.run.record(Begun(dag_id="kafka_upgrade_fake"))
    return ports


def test_an_approver_takes_a_dag_s_run_over_and_the_record_says_who_from_where(ports: ClusterPorts) -> None:
    take_over_run(ports, "alice", SHELL, wanted=True)
    taken = ports.run.events()[-1]
    assert replace(taken, at=0.0) == TakenOver(by="alice", dag_id="kafka_upgrade_fake", responder=SHELL)


@pytest.mark.parametrize(
    ("by", "wanted", "why"),
    [
        ("alice", False, "belongs to the DAG kafka_upgrade_fake.*--take-over --as NAME"),
        (None, True, "belongs to the DAG"),
        ("mallory", True, "mallory is not an approver of cluster fake"),
        (" ", True, "is not an approver"),
    ],
)
def test_nobody_else_does_and_nothing_is_recorded(ports: ClusterPorts, by: str | None, wanted: bool, why: str) -> None:
    before = ports.run.events()
    with pytest.raises(RefusedError, match=why):
        take_over_run(ports, by, SHELL, wanted=wanted)
    assert ports.run.events() == before


def test_a_run_of_the_shell_needs_no_taking_over(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(), tmp_path, run_id="20261122T080000-shell-abc123")
    take_over_run(ports, None, SHELL, wanted=False)
    assert ports.run.events() == ()
