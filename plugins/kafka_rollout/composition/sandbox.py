"""Carries out the rehearsal of a sandbox, in the process of the sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.composition.cluster_ports import open_cluster_ports
from kafka_rollout.rehearsal.job import RehearsalJob
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

_RUN_ID = "rehearsal"


def run_in_sandbox(path: Path, say: Callable[[str], None], stop_asked: Callable[[], bool]) -> None:
    """Carry out the job of a sandbox and write its result. Called by the process of the sandbox."""
    from kafka_rollout.base.system.files import write_whole
    from kafka_rollout.rehearsal.machine.guard import GuardedRuntime
    from kafka_rollout.rehearsal.machine.sandbox import JOB, RESULT, Sandbox
    from kafka_rollout.releases.jars.cache import ReleaseCache
    from kafka_rollout.steps.rehearsal.run import Rehearsal

    sandbox = Sandbox(path)
    job = from_json(RehearsalJob, json.loads((path / JOB).read_text()))
    settings = sandbox.settings(Settings.from_environment())

    def guard(ports: ClusterPorts) -> ClusterPorts:
        runtime = GuardedRuntime(
            ports.cluster,
            ReleaseCache.from_settings(settings),
            sandbox=path,
            real_addresses=frozenset(job.real_addresses),
            real_directories=frozenset(job.real_directories),
        )
        return replace(ports, runtime=runtime)

    with open_cluster_ports(job.cluster, _RUN_ID, None, settings, adjust=guard) as ports:
        result = Rehearsal(ports=ports, job=job, say=say, stop_asked=stop_asked).run()
    write_whole(path / RESULT, json.dumps(to_json(result)).encode())
