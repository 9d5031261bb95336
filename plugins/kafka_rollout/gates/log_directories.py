"""Brokers with several log directories below metadata.version 17: what the plan says, and the error that each counts.

Releases before 3.7 start with several log directories, also in KRaft. Replicas are assigned to directories from 3.7-IV2
on (KIP-858). Below it, a broker does not report the failure of one directory (ReplicaManager.handleLogDirFailure), so
its partitions keep a leader that cannot serve them. From 3.7.1 on, such a broker counts one error in
metadata-apply-error-count when it starts, and one when another such level is finalized
(MetadataVersionConfigValidator, KAFKA-16606). It serves nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.model.log_directories import ASSIGNED_FROM
from kafka_rollout.model.node_log import directories_fault
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release

COUNTED_SINCE = Release(3, 7, 1)
"""The first release whose brokers count the error."""

LOG_DIRECTORIES_UNSUPPORTED = FindingCode(
    "LOG-DIRECTORIES-UNSUPPORTED",
    (BLOCKER, WARNING),
    "The lower metadata.version does not support brokers with several log directories.",
    f"Choose metadata.version {ASSIGNED_FROM} or higher, or reduce log.dirs to one directory first.",
)
LOG_DIRECTORY_FAILURES_UNSEEN = FindingCode(
    "LOG-DIRECTORY-FAILURES-UNSEEN",
    WARNING,
    f"Below metadata.version {ASSIGNED_FROM}, the controllers do not learn that one of several log directories of a "
    "broker failed.",
)
_NODE = "node "


def covered(node_id: int) -> str:
    """Return how a finding covers a broker with several log directories."""
    return f"{_NODE}{node_id}"


def expected_faults(
    findings: Iterable[Finding],
    changes: Iterable[FeatureChange],
    release: Release,
    catalogue: Catalogue,
    finalized: Mapping[str, int],
) -> dict[int, frozenset[str]]:
    """Return node id → the faults (`directories_fault`) that a broker on `release` can log, once each.

    Only of brokers that a finding of the plan is about, and only at levels that are finalized or that the plan changes.
    """
    if release < COUNTED_SINCE:
        return {}
    levels = {finalized.get(METADATA_VERSION, 0)}
    levels |= {change.current for change in changes if change.feature == METADATA_VERSION}
    faults = frozenset(directories_fault(_name(catalogue, level)) for level in levels if 0 < level < ASSIGNED_FROM)
    codes = {LOG_DIRECTORIES_UNSUPPORTED.code, LOG_DIRECTORY_FAILURES_UNSEEN.code}
    named = {one for finding in findings if finding.code in codes for one in finding.covers}
    return {int(one.removeprefix(_NODE)): faults for one in sorted(named)} if faults else {}


def _name(catalogue: Catalogue, level: int) -> str:
    names = (facts.metadata_version_name(level) for facts in catalogue.releases.values())
    return next((name for name in names if name != str(level)), str(level))
