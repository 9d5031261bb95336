"""What the scans and the loss report of a downgrade mean for its plan: findings, and what each node's log needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_rollout.domain.metadata_log.losses import Loss, LossReport
from kafka_rollout.domain.metadata_log.readiness import Readiness, bootstrap_fails, readiness, why_not
from kafka_rollout.domain.metadata_log.scan import MetadataScan
from kafka_rollout.domain.model.cluster_contents import PARTS, SETTINGS
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout.domain.model.wording import few, nodes

LOG_CODES = frozenset(
    {
        "LOGS-NOT-LOADABLE",
        "LOGS-TO-BE-CLEANED",
        "LOGS-NOT-SCANNED",
        "LOGS-IGNORED-IN-PART",
        "LOGS-NOT-READ",
        "ORIGIN-CANNOT-LOAD",
    }
)
"""Of domain/scan_path."""
METADATA_CODES = frozenset(
    {
        "METADATA-LOG-UNSEEN",
        "METADATA-LOG-NOT-REPLAYABLE",
        "METADATA-LOG-TRIM",
        "METADATA-LOG-SNAPSHOT",
        "BOOTSTRAP-CHECKPOINT-TOO-NEW",
    }
)
LOSS_CODES = frozenset({"METADATA-LOST", "LOSSES-UNKNOWN", "SETTINGS-NOT-KEPT"})
_NAMED = 50


def unseen_findings(node_ids: Iterable[int], runtime: str) -> tuple[Finding, ...]:
    """Nodes whose metadata log nobody can look into."""
    unseen = sorted(node_ids)
    if not unseen:
        return ()
    return (
        Finding(
            code="METADATA-LOG-UNSEEN",
            severity=Severity.BLOCKER,
            subject=nodes(unseen),
            sentence=f"The runtime {runtime} sees no files of {nodes(unseen)}, so nobody knows what is in the metadata "
            "log there.",
            remedy="Give the inventory's nodes their directories, or run `kafka-rollout metadata` on their hosts and "
            "roll them by hand.",
        ),
    )


def metadata_findings(plan: Plan, scans: Sequence[tuple[int, MetadataScan]]) -> tuple[Finding, ...]:
    """Of (node id, scan) pairs, made before any level fell. Nodes with the same answer share a finding."""
    findings: list[Finding] = []
    groups: dict[tuple[Release, Readiness], list[tuple[int, MetadataScan]]] = defaultdict(list)
    bootstrap: dict[Release, list[tuple[int, MetadataScan]]] = defaultdict(list)
    for node_id, scan in scans:
        groups[scan.release, readiness(scan)].append((node_id, scan))
        if bootstrap_fails(scan):
            bootstrap[scan.release].append((node_id, scan))
    for (release, needs), found in groups.items():
        ids, first = [node_id for node_id, _ in found], found[0][1]
        if (finding := _finding(plan, release, needs, ids, first)) is not None:
            findings.append(finding)
    for release, found in bootstrap.items():
        ids = [node_id for node_id, _ in found]
        failure = next(f for f in found[0][1].failures if f.where == "bootstrap")
        findings.append(
            Finding(
                code="BOOTSTRAP-CHECKPOINT-TOO-NEW",
                severity=Severity.WARNING,
                subject=f"{release}, {nodes(ids)}",
                sentence=f"bootstrap.checkpoint of {nodes(ids)}: {failure.reason}",
                remedy="It is kept as a backup and written anew at the planned level, in the node's turn.",
            )
        )
    return tuple(findings)


def _finding(plan: Plan, release: Release, needs: Readiness, ids: Sequence[int], first: MetadataScan) -> Finding | None:
    falls = any(change.target < change.current for change in plan.feature_changes)
    if needs is Readiness.NEVER or (needs is Readiness.LEVELS and not falls):
        return Finding(
            code="METADATA-LOG-NOT-REPLAYABLE",
            severity=Severity.BLOCKER,
            subject=f"{release}, {nodes(ids)}",
            sentence=f"On the metadata log of {nodes(ids)} {why_not(first)}",
            remedy=" ".join(first.remedies),
        )
    if needs is Readiness.READY or plan.offline or first.way is None:  # offline a snapshot takes the log's place
        return None
    sentence = f"On the metadata log of {nodes(ids)}, as it is now, {why_not(first)}"
    if first.way.starts_from_snapshot:
        return Finding(
            code="METADATA-LOG-SNAPSHOT",
            severity=Severity.INFO,
            subject=f"{release}, {nodes(ids)}",
            sentence=sentence,
            remedy=f"{release} starts from the newest snapshot: the run waits until every node has a later one.",
        )
    return Finding(
        code="METADATA-LOG-TRIM",
        severity=Severity.WARNING,
        subject=f"{release}, {nodes(ids)}",
        sentence=f"{sentence} {release} replays the log from its start.",
        remedy="The run waits for a snapshot behind that record and cuts the log below it in each node's turn, with a "
        "backup; the approval of the roll names it. " + " ".join(first.remedies),
    )


def loss_findings(plan: Plan, report: LossReport) -> tuple[Finding, ...]:
    """Every real loss; blockers unless a person accepted them (`plan.unsafe`)."""
    severity = Severity.WARNING if plan.unsafe else Severity.BLOCKER
    remedy = (
        "It is gone at the lower level, and raising the level again does not bring it back."
        if plan.unsafe
        else f"Take it away yourself first, choose a level above, or accept the loss (UNSAFE). Level {report.to_level} "
        f"is {report.to_name}."
    )
    shown = report.losses[:_NAMED]
    findings = [_lost(f"{loss.kind} of {loss.subject}", severity, loss.sentence, remedy) for loss in shown]
    if rest := report.losses[_NAMED:]:
        findings.append(_lost("further losses", severity, f"And {len(rest)} more: {_by_kind(rest)}.", remedy))
    return tuple(dict.fromkeys(findings))


def _lost(subject: str, severity: Severity, sentence: str, remedy: str) -> Finding:
    return Finding(code="METADATA-LOST", severity=severity, subject=subject, sentence=sentence, remedy=remedy)


def _by_kind(losses: Iterable[Loss]) -> str:
    numbers: dict[str, int] = defaultdict(int)
    for loss in losses:
        numbers[loss.kind] += 1
    return ", ".join(f"{kind} {number}" for kind, number in sorted(numbers.items()))


def lacking_settings(catalogue: Catalogue, releases: Iterable[Release]) -> Mapping[str, Release]:
    """Parts of the inventory whose settings one of these releases does not know, and the first such release."""
    found: dict[str, Release] = {}
    for release in releases:
        for part, resource in SETTINGS.items():
            if resource not in catalogue.get(release).config_resources:
                found.setdefault(part, release)
    return found


def settings_findings(
    lacking: Mapping[str, Release], settings: Mapping[str, Collection[str]], *, accepted: bool, acceptable: bool
) -> tuple[Finding, ...]:
    """Settings that no level takes away, but a release: it reads a kind that it does not know as none (type 0 of
    ConfigResource.Type), writes that into its next snapshot, and no release can tell them any more. Offline they have
    to go first: the older release must have the very image that was written for it. `settings`: names by part;
    `accepted`: a person did; `acceptable`: a person could."""
    accept = ", or accept that they are gone (UNSAFE)" if acceptable else ""
    return tuple(
        Finding(
            code="SETTINGS-NOT-KEPT",
            severity=Severity.WARNING if accepted else Severity.BLOCKER,
            subject=f"{release}, {PARTS[part]}",
            sentence=f"{release} does not know {PARTS[part]} and does not keep them beyond its next snapshot of the "
            f"metadata: {few(sorted(settings[part]))}.",
            remedy="Note them down, to set them again when the cluster has come back up: they are gone by then."
            if accepted
            else f"Note them down and delete them{accept}.",
        )
        for part, release in lacking.items()
        if settings[part]
    )


def losses_unknown(why: str) -> tuple[Finding, ...]:
    """Nobody could say what would be lost; unknown is a blocker."""
    return (
        Finding(
            code="LOSSES-UNKNOWN",
            severity=Severity.BLOCKER,
            subject="metadata.version",
            sentence=f"Nobody knows what the lower level would lose: {why}",
            remedy="Make the metadata log of a controller readable for this process, and start again.",
        ),
    )


def trims_of(scans: Iterable[Mapping[str, object]]) -> tuple[int, ...]:
    """Ids of the nodes that the record of a look says to trim."""
    return tuple(sorted({int(str(one["node_id"])) for one in scans if one["readiness"] == Readiness.TRIM}))
