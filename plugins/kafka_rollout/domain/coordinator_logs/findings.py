"""What a scan's verdicts mean for a release that someone wants to go to: findings with remedies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kafka_rollout.domain.coordinator_logs.failing import Failing
from kafka_rollout.domain.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.domain.model.findings import Finding, Severity, Verdict
from kafka_rollout.domain.model.releases import Release


def way_back_verdict(scan: ScanResult, release: Release) -> Verdict:
    """Whether `release`, which the cluster ran before, could still load what was written since.

    A closed way back is a warning, as a point of no return is: a named person may approve it. Not knowing blocks.
    """
    question = f"Could {release} still load the coordinator logs?"
    by_topic: dict[str, list[ReleaseVerdict]] = defaultdict(list)
    for verdict in scan.verdicts:
        if verdict.release == release:
            by_topic[verdict.topic].append(verdict)
    if not by_topic:
        unknown = Finding(
            code="WAY-BACK-UNKNOWN",
            severity=Severity.BLOCKER,
            subject=f"release {release}",
            sentence=f"The scan of the coordinator logs says nothing about {release}.",
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
            "End or convert what wrote these records and wait until the cleaner has removed them before going back to "
            f"{release}, or go back to a release that ignores them"
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
            sentence=f"{release} would load {topic} and ignore {ignored} records of types it does not know.",
            remedy=f"Going back to {release} loses what they say, such as groups of the newer protocols.",
        )
    if all(v.verdict is LoadVerdict.NOT_LOADED for v in verdicts):
        return Finding(
            code="WAY-BACK-NOT-LOADED",
            severity=Severity.INFO,
            subject=f"topic {topic}",
            sentence=f"{release} has no coordinator for {topic} and would not load it.",
            remedy=f"Going back to {release} leaves it unused.",
        )
    return None
