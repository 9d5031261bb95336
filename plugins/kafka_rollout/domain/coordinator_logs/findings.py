"""Findings with remedies from the verdicts of a scan about one release.

A release still serves a partition that it fails to load if its only load errors are about groups that were deleted
during an open transaction (docs/scan.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.domain.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.domain.model.findings import Finding, Severity, Verdict
from kafka_rollout.domain.model.releases import Release

TRANSACTIONS_TO_END = (
    "End the transactions that commit offsets for these deleted groups. Their producers do this, or the "
    "coordinator after transaction.timeout.ms. Then scan again. You do not need to wait for the log cleaner"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """The failing partitions of one release and log. `first`: one that would not be served, if there is one."""

    first: ReleaseVerdict
    partitions: int
    of: int
    served: int

    @classmethod
    def among(cls, scan: ScanResult, verdicts: Sequence[ReleaseVerdict]) -> Failing | None:
        """Return the failing partitions, or None if there are none. `verdicts`: of all partitions of the log."""
        failing = [verdict for verdict in verdicts if verdict.verdict is LoadVerdict.FAILS]
        if not failing:
            return None
        unserved = [verdict for verdict in failing if not scan.is_served(verdict)]
        return cls(
            first=(unserved or failing)[0],
            partitions=len(failing),
            of=len(verdicts),
            served=len(failing) - len(unserved),
        )

    @property
    def all_served(self) -> bool:
        return self.served == self.partitions

    @property
    def where(self) -> str:
        """The first failing partition, with offset and reason."""
        place, failure = f"{self.first.topic}-{self.first.partition}", self.first.first_failure
        return f"{place} fails" if failure is None else f"{place} fails at offset {failure.offset}: {failure.reason}"

    @property
    def sentence(self) -> str:
        release, partitions = self.first.release, f"{self.partitions} of {self.of} partitions"
        if self.all_served:
            return f"{release} would log a load error for {partitions}, but would serve these partitions; {self.where}."
        return f"{release} cannot load {partitions}; {self.where}."

    def remedy(self, of_unserved: str) -> str:
        """Return the remedy. `of_unserved`: remedy for partitions that would not be served, without a full stop."""
        if self.all_served:
            return TRANSACTIONS_TO_END
        return f"{of_unserved}. {TRANSACTIONS_TO_END}" if self.served else of_unserved


def check_rollback(scan: ScanResult, release: Release) -> Verdict:
    """Return whether `release`, which ran before, can still load the coordinator logs.

    A rollback that is no longer possible is a warning that an approver can accept. A missing scan is a blocker.
    """
    question = f"Can {release} still load the coordinator logs?"
    by_topic: dict[str, list[ReleaseVerdict]] = defaultdict(list)
    for verdict in scan.verdicts:
        if verdict.release == release:
            by_topic[verdict.topic].append(verdict)
    if not by_topic:
        unknown = Finding(
            code="WAY-BACK-UNKNOWN",
            severity=Severity.BLOCKER,
            subject=f"release {release}",
            sentence=f"The scan of the coordinator logs has no result for {release}.",
            remedy=f"Scan the coordinator logs again with --release {release}.",
        )
        return Verdict(question=question, findings=(unknown,))
    found = (_rollback_finding(scan, topic, held, release) for topic, held in sorted(by_topic.items()))
    findings = [finding for finding in found if finding is not None]
    return Verdict(question=question, findings=tuple(findings))


def _rollback_finding(
    scan: ScanResult, topic: str, verdicts: Sequence[ReleaseVerdict], release: Release
) -> Finding | None:
    if failing := Failing.among(scan, verdicts):
        end = failing.remedy(
            "Remove or convert the groups and transactional ids that wrote these records. Wait until the log "
            f"cleaner has removed the records, then return to {release}. Or return to a release that ignores "
            "them"
        )
        return Finding(
            code="WAY-BACK-CLOSED",
            severity=Severity.WARNING,
            subject=f"topic {topic}",
            sentence=failing.sentence,
            remedy=f"{end}.",
        )
    ignored = sum(v.ignored for v in verdicts)
    if ignored:
        return Finding(
            code="WAY-BACK-IGNORES",
            severity=Severity.WARNING,
            subject=f"topic {topic}",
            sentence=f"{release} would load {topic} and ignore {ignored} records of unknown types.",
            remedy=(
                f"If you return to {release}, the content of these records is not used, for example groups of "
                "the newer protocols."
            ),
        )
    if all(v.verdict is LoadVerdict.NOT_LOADED for v in verdicts):
        return Finding(
            code="WAY-BACK-NOT-LOADED",
            severity=Severity.INFO,
            subject=f"topic {topic}",
            sentence=f"{release} has no coordinator for {topic} and would not load it.",
            remedy=f"No action needed. {release} does not use this log.",
        )
    return None
