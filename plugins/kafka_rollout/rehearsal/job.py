"""The order for one rehearsal: what the process in the sandbox gets."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.model.plan import Direction
from kafka_rollout.rehearsal.result import Contents
from kafka_rollout.releases.facts import Release


class RehearsalStoppedError(RolloutError):
    """The rehearsal was asked to stop (Ctrl-C, SIGTERM). Nothing of it is left."""

    exit_code = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalJob:
    """The planned change, as in Request, and the copy. The fields after `releases` are set when the copy is made.

    `where_refused`, `finalize`: values of WhereRefused and FinalizePolicy. `releases`: of all release steps, the source
    first. `unregistered`: brokers that are not copied. `uncovered`: coordinator partitions that the copy does not
    serve. `real` and `later`: contents of the cluster before and after the
    copying; None if it was not running. `real_addresses`, `real_directories`: of the real cluster, which the copy must
    not use. `gate_timeout_s`: seconds.
    """

    cluster: str
    direction: Direction
    source: Release
    target: Release
    finalize: str
    plans_features: bool
    pin_min_isr: bool = False
    snapshot_interval_ms: int | None = None
    level: int | None = None
    unsafe: bool = False
    where_refused: str = ""
    accept_unavailable: tuple[str, ...] = ()
    gate_timeout_s: float = 180.0
    releases: tuple[Release, ...] = ()
    nodes: tuple[int, ...] = ()
    unregistered: tuple[int, ...] = ()
    uncovered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    estimate: str = ""
    isolation: str = ""
    real_addresses: tuple[str, ...] = ()
    real_directories: tuple[str, ...] = ()
    real: Contents | None = None
    later: Contents | None = None
