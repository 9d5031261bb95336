"""Findings about missing rights of the users of this tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Severity
from kafka_rollout.model.rights import PINNING, READING, MissingRight
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec

RIGHT_MISSING = FindingCode(
    "RIGHT-MISSING", (BLOCKER, WARNING, INFO), "A user of this tool does not have a right in Kafka that a run needs."
)
RIGHTS_CHECK = Check(
    "user-rights",
    "Rights of this tool's users in Kafka",
    "security.md#rights",
    (RIGHT_MISSING,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES, CheckOf.INVENTORY),
    needs=(),
    examines=Examined.RIGHTS,
)


def right_findings(cluster: ClusterSpec, state: ClusterState) -> tuple[Finding, ...]:
    """Return a blocker for each right that a run needs and its user does not have."""
    return tuple(_finding(cluster, missing) for missing in state.missing_rights)


def find_rights_of_checks(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a warning for each right to read that a check needs; without it, checks are unknown."""
    needed = (one for one in missing if one.right in READING)
    return tuple(replace(_finding(cluster, one), severity=WARNING) for one in needed)


def find_rights_of_runs(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a finding for each right that some run needs and its user does not have.

    A warning: only a run with one option needs it. Info: no run manages the nodes of this cluster.
    """
    return tuple(replace(_finding(cluster, one), severity=_severity(cluster, one)) for one in missing)


def _severity(cluster: ClusterSpec, missing: MissingRight) -> Severity:
    if not cluster.manages_nodes:
        return Severity.INFO
    return Severity.WARNING if missing.right in PINNING else Severity.BLOCKER


def refuse_without_reading(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> None:
    """Raise RefusedError with all missing rights if one of them is needed to observe the cluster."""
    if any(one.right in READING for one in missing):
        refuse_missing_rights(cluster, missing)


def refuse_missing_rights(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> None:
    """Raise RefusedError with all missing rights, if there are any."""
    if missing:
        found = [_finding(cluster, one) for one in missing]
        raise RefusedError(
            " ".join(f"{finding.code}: {finding.sentence}" for finding in found),
            remedy=" ".join(finding.remedy for finding in found),
        )


def _finding(cluster: ClusterSpec, missing: MissingRight) -> Finding:
    subject = f"{missing.right} ({missing.listener} listener)"
    return RIGHT_MISSING.found(subject, missing.sentence, missing.remedy(cluster.bootstrap_servers), severity=BLOCKER)
