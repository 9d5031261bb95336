"""Request: what an operator asked a run to do, the same from the DAG's form and from the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_rollout.base.errors import UserError
from kafka_rollout.features.requests import FeatureOrder
from kafka_rollout.model.plan import RunTerms
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.releases.facts import Release


class FinalizePolicy(StrEnum):
    """When an upgrade finalizes feature levels. The DAG's form spells the values with an underscore."""

    LATER = "later"
    AFTER_APPROVAL = "after-approval"

    @property
    def form_value(self) -> str:
        return self.value.replace("-", "_")

    @classmethod
    def from_form(cls, text: str) -> FinalizePolicy:
        return cls(text.replace("_", "-"))


class DowngradeType(StrEnum):
    """KIP-1155: whether a level is lowered although metadata or records are lost."""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"


class ApprovalPolicy(StrEnum):
    """Which feature changes need an approval: all, or only those that lower, delete or cannot be undone."""

    ALWAYS = "always"
    WHERE_NEEDED = "where_needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Input of one run; what a procedure does not use keeps its default.

    `soak_s`, `interval_s` and `gate_timeout_s` are seconds, `checks` the consecutive passing checks after a start.
    `waits` False: the run refuses where it would wait for a gate. `plans_features`: the upgrade's plan contains feature
    levels. `scan` False: coordinator logs are not scanned. `rehearse` False: the change is not tried on a copy first.
    `pin_min_isr`: before the run raises eligible.leader.replicas.version, it sets the cluster-wide default of
    min.insync.replicas to the value that all brokers have.
    `level`: metadata.version of a downgrade; None is the highest that the target supports. `accept_unavailable`: as in
    Plan. `features` reads what was typed: it raises UserError, and the plan fails with it.
    """

    target: Release | None = None
    dry_run: bool = False
    waits: bool = True
    finalize: FinalizePolicy = FinalizePolicy.LATER
    plans_features: bool = True
    scan: bool = True
    rehearse: bool = True
    traffic: bool = False
    canary: bool = False
    snapshot_interval_ms: int | None = None
    level: int | None = None
    downgrade_type: DowngradeType = DowngradeType.SAFE
    where_refused: WhereRefused = WhereRefused.STOP
    features: Callable[[], FeatureOrder] | None = None
    approval: ApprovalPolicy = ApprovalPolicy.ALWAYS
    accept_unavailable: tuple[str, ...] = ()
    pin_min_isr: bool = False
    soak_s: float = 0.0
    checks: int = 1
    interval_s: float = 1.0
    gate_timeout_s: float = 600.0

    def finalizes(self, *, rolls: bool) -> bool:
        """Return whether the run finalizes levels. `rolls`: its plan replaces nodes."""
        return self.plans_features and (self.finalize is FinalizePolicy.AFTER_APPROVAL or not rolls)

    def at_least(self, cluster: ClusterSpec, terms: RunTerms | None = None) -> Request:
        """Return the request with the gates that the inventory requires, and those of an approved plan."""
        soaks = (self.soak_s, cluster.min_soak_seconds, terms.soak_s if terms is not None else 0.0)
        checks = (self.checks, cluster.min_checks, terms.checks if terms is not None else 1)
        return replace(self, soak_s=max(soaks), checks=max(checks))

    def terms(self, cluster: ClusterSpec) -> RunTerms:
        """Return how the run carries out its plan. Raises UserError if the inventory forbids it."""
        if self.approval is ApprovalPolicy.WHERE_NEEDED and cluster.feature_approval == ApprovalPolicy.ALWAYS:
            raise UserError(
                f"The inventory of cluster {cluster.name} requires an approval of every feature change.",
                remedy=f"Choose the approval '{ApprovalPolicy.ALWAYS}'.",
            )
        effective = self.at_least(cluster)
        return RunTerms(
            soak_s=effective.soak_s,
            checks=effective.checks,
            gate_timeout_s=effective.gate_timeout_s,
            rehearse=self.rehearse,
            canary=self.canary,
            traffic=self.traffic,
            every_change=self.approval is ApprovalPolicy.ALWAYS,
        )

    @property
    def unsafe(self) -> bool:
        return self.downgrade_type is DowngradeType.UNSAFE

    @property
    def target_release(self) -> Release:
        """The release to go to. Raises UserError if the run has none."""
        if self.target is None:
            raise UserError("The run has no target release.", remedy="Name the release to go to.")
        return self.target
