"""Runs of tests, as the shell carries them out, without processes of its services."""

from __future__ import annotations

from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.rehearsal import RehearsalServices, SaysLines
from kafka_rollout.procedure.runner import Runner
from kafka_rollout.procedure.step import Procedure
from kafka_rollout.run.ports import Answers


def carry_out(ports: ClusterPorts, procedure: Procedure, request: Request, answers: Answers) -> None:
    Runner(
        ports=ports,
        procedure=procedure,
        request=request,
        answers=answers,
        services=RehearsalServices(ports),
        progress=SaysLines(lambda line: None),
    ).run()
