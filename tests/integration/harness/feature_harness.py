"""Changing features of a real cluster from a test: by the steps, and by the command in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.control import lock
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates import levels as feature_sending
from kafka_rollout.feature_updates import update as feature_update
from kafka_rollout.feature_updates.update import plan_features
from kafka_rollout.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

Command = Callable[[LocalCluster, str], tuple[int, str, str]]  # (exit code, standard output, standard error)


@contextmanager
def opened(cluster: LocalCluster, home: Path, run_id: str = "run") -> Iterator[ClusterPorts]:
    settings = replace(Settings.from_environment(), clusters=cluster.inventory_path.parent, home=home)
    with open_cluster_ports(cluster.spec.name, run_id, None, settings) as ports:
        yield ports
        lock.release_lock(ports)


def planned(ports: ClusterPorts, *, up: str = "", down: str = "", unsafe: bool = False) -> Plan:
    order = FeatureOrder(action=FeatureAction.UPDATE, named=parse_requests([up], [down]))
    return plan_features(ports, order, unsafe=unsafe)


def approved(ports: ClusterPorts, plan: Plan) -> Plan:
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "a test")
    return plan


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings}


def has_groups(ports: ClusterPorts, **expected: tuple[str, int]) -> bool:
    """Whether these are all groups, by state and number of members; no, while a coordinator still loads."""
    try:
        return {group.group_id: (group.state, group.members) for group in ports.admin.groups()} == expected
    except TransientError:
        return False


def eventually(what: Callable[[], bool], within_s: float = 180) -> bool:
    return bool(wait_until(what, within_s))


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, *, before: Callable[[], object] = bool, after: Callable[[], object] = bool
) -> None:
    """What happens between our own checks of the change and the request, and right after its answer."""
    send = feature_sending.ensure_levels

    def with_others(ports: ClusterPorts, batch: Sequence[Any], **options: Any) -> Any:
        before()
        answers = send(ports, batch, **options)
        after()
        return answers

    monkeypatch.setattr(feature_update, "ensure_levels", with_others)
