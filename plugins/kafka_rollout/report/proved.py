"""What a run proved of the cluster, from its plan and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.model.plan import Plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.run_report import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """`release`: the run moved every node to it; None if it moved none. `levels`: feature → finalized level, of the
    features that the plan changes.
    """

    release: Release | None = None
    levels: Mapping[str, int] = field(default_factory=dict)


def proved_by(plan: Plan, outcome: Outcome) -> Proved:
    """Return what the outcome proves. An outcome is `finished` only after all gates that prove the levels passed."""
    is_rolled = outcome in {Outcome.FINISHED, Outcome.ROLLED_NOT_FINALIZED}
    changes_release = any(not step.restarts for step in plan.release_steps)
    is_finalized = outcome is Outcome.FINISHED
    return Proved(
        release=plan.target if is_rolled and changes_release else None,
        levels={change.feature: change.target for change in plan.feature_changes if is_finalized},
    )
