"""The order for one rehearsal, what the process in the sandbox gets, and the port of the steps that give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.model.plan import Direction
from kafka_rollout.planning.request import Request, request_on_copy
from kafka_rollout.rehearsal.result import Contents, RehearsalResult
from kafka_rollout.releases.facts import Release

GATE_TIMEOUT_S = 180.0


class RehearsalStoppedError(RolloutError):
    """The rehearsal was asked to stop (Ctrl-C, SIGTERM). Nothing of it is left."""

    exit_code = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalJob:
    """The planned change and the copy. The fields after `gate_timeout_s` are set when the copy is made."""

    cluster: str
    direction: Direction
    request: Request
    """Of the copy, as `request_on_copy` makes it."""
    releases: tuple[Release, ...]
    """Of all release steps, the source first."""
    gate_timeout_s: float
    """Of each gate on the copy."""
    nodes: tuple[int, ...] = ()
    unregistered: tuple[int, ...] = ()
    """Brokers that are not copied."""
    uncovered: tuple[str, ...] = ()
    """Coordinator partitions that the copy does not serve."""
    not_covered: tuple[str, ...] = ()
    estimate: str = ""
    isolation: str = ""
    real_addresses: tuple[str, ...] = ()
    """Of the real cluster, which the copy must not use."""
    real_directories: tuple[str, ...] = ()
    """Of the real cluster, which the copy must not use."""
    real: Contents | None = None
    """Contents of the cluster before and after the copying; None if it was not running."""
    later: Contents | None = None
    """Contents of the cluster before and after the copying; None if it was not running."""

    @property
    def source(self) -> Release:
        return self.releases[0]

    @property
    def target(self) -> Release:
        return self.request.target_release


def order_rehearsal(
    request: Request, cluster: str, direction: Direction, releases: Sequence[Release], *, gate_timeout_s: float
) -> RehearsalJob:
    """Return the order. `releases`: of all release steps, the source first. `gate_timeout_s`: of each gate there.

    An upgrade loads the coordinator logs without a scan; a downgrade has one without findings.
    """
    of_copy = request_on_copy(request, scan=direction is Direction.DOWNGRADE)
    return RehearsalJob(
        cluster=cluster, direction=direction, request=of_copy, releases=tuple(releases), gate_timeout_s=gate_timeout_s
    )


class Rehearsals(Protocol):
    """Rehearsals of one cluster on this machine. The cluster is only read."""

    def rehearse(self, job: RehearsalJob, on_progress: Callable[[str], None]) -> RehearsalResult:
        """Copy the cluster, carry out the job on the copy and remove it. A failure of the copy is in the result.

        Raises RefusedError if no rehearsal is possible here, with the reason: files that cannot be read, too little
        memory or disk, a configuration that would reach other systems. Raises UserError for invalid copies.
        """
        ...
