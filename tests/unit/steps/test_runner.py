"""A call of a procedure that cannot record its start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.planning.request import Request
from kafka_rollout.steps.procedures.upgrade import UPGRADE
from kafka_rollout.steps.rehearsal.quiet import RehearsalServices
from kafka_rollout.steps.rehearsal.run import SaysLines
from kafka_rollout.steps.runner import Runner
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade
from tests.unit.steps.planning.test_comparison import Approver


@pytest.mark.parametrize("call", [Runner.run, lambda runner: runner.roll_back("why")], ids=["a run", "a rollback"])
def test_the_lock_is_released(tmp_path: Path, call: Callable[[Runner], object]) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan_upgrade(ports, R431, finalize=False)

    def refuse() -> None:
        raise TransientError("The database does not answer.")

    runner = Runner(
        ports=ports,
        procedure=UPGRADE,
        request=Request(target=R431),
        answers=Approver(),
        services=RehearsalServices(ports),
        progress=SaysLines(lambda line: None),
        started=refuse,
    )
    with pytest.raises(TransientError, match="The database does not answer"):
        call(runner)
    assert ports.lock.holder("fake") is None
