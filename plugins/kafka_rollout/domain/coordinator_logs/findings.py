"""Findings with remedies from the verdicts of a scan about one release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kafka_rollout.domain.coordinator_logs.failing import Failing
from kafka_rollout.domain.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.domain.model.findings import Finding, Severity, Verdict
from kafka_rollout.domain.model.releases import Release


def way_back_verdict(scan: ScanResult, release: Release) -> Verdict:
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
    found = (_way_back_finding(scan, topic, held, release) for topic, held in sorted(by_topic.items()))
    findings = [finding for finding in found if finding is not None]
    return Verdict(question=question, findings=tuple(findings))


def _way_back_finding(
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
