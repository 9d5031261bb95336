"""How a step has a change tried on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_rollout.rehearsal.job import RehearsalJob
from kafka_rollout.rehearsal.result import RehearsalResult


class Rehearsals(Protocol):
    """Rehearsals of one cluster on this machine. The cluster is only read."""

    def rehearse(self, job: RehearsalJob, on_progress: Callable[[str], None]) -> RehearsalResult:
        """Copy the cluster, carry out the job on the copy and remove it. A failure of the copy is in the result.

        Raises RefusedError if no rehearsal is possible here, with the reason: files that cannot be read, too little
        memory or disk, a configuration that would reach other systems. Raises UserError for invalid copies.
        """
        ...
