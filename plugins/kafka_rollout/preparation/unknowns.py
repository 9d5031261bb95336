"""What a check cannot observe now, compared with what the approvers of the plan read as unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.findings import Checked, Finding, Need, all_findings
from kafka_rollout.model.plan import Plan


def judged(plan: Plan, checked: Sequence[Checked], unknown: Mapping[Need, str] | None = None) -> tuple[Finding, ...]:
    """Return the findings of checks that are made again. `unknown`: as in `Checked.result`.

    Raises TransientError for what they cannot observe now and the approvers have not read: finding nothing is no
    evidence then. Who accepted that one subject is unknown has not accepted it of another.
    """
    found, read = all_findings(checked), plan.unknowns
    new = [
        what
        for one in checked
        if not one.not_applicable
        for what in one.all_unknown(unknown or {})
        if what.name(one.check.id) not in read
    ]
    if new:
        remedies = dict.fromkeys(what.remedy or "Remove the cause." for what in new)
        raise TransientError(
            " ".join(dict.fromkeys(what.sentence for what in new)),
            remedy=f"{' '.join(remedies)} If the cluster hides it, start a new run, whose approvers read it.",
        )
    return found
