"""Findings from the scans and the loss report of a downgrade, and the action that each metadata log needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Severity
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.metadata_log.losses import ACCESS, LossReport
from kafka_rollout.metadata_log.metadata_scan import BACKUP_SPACE, LogReadiness, MetadataScan
from kafka_rollout.model.contents import PARTS, SETTINGS
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.acls import access_of
from kafka_rollout.releases.facts import Catalogue, Release

_NAMED = 50


METADATA_LOG_UNSEEN = FindingCode(
    "METADATA-LOG-UNSEEN",
    (BLOCKER, WARNING),
    "The metadata log of a node cannot be read.",
    "Add the directories of these nodes to the inventory. If a config provider has log.dirs, set metadata.log.dir to "
    "the path. Or run `kafka-rollout metadata` on their hosts and downgrade these nodes by hand.",
)
METADATA_LOG_NOT_REPLAYABLE = FindingCode(
    "METADATA-LOG-NOT-REPLAYABLE",
    BLOCKER,
    "A release of the path cannot start with the metadata log, and no step of the plan changes that.",
)
METADATA_LOG_TRIM = FindingCode(
    "METADATA-LOG-TRIM",
    WARNING,
    "A record stops the older release, and the run trims the metadata log while each node is stopped.",
)
METADATA_LOG_SNAPSHOT = FindingCode(
    "METADATA-LOG-SNAPSHOT", INFO, "The older release can read the metadata log from the next snapshot on."
)
BOOTSTRAP_CHECKPOINT_TOO_NEW = FindingCode(
    "BOOTSTRAP-CHECKPOINT-TOO-NEW",
    WARNING,
    "A node was formatted at a level that the older release cannot read.",
    "No action needed. While each node is stopped, the run keeps a backup of the file and writes a new one at the "
    "planned level.",
)
ROLLBACK_LOSES_METADATA = FindingCode(
    "ROLLBACK-LOSES-METADATA",
    (WARNING, INFO),
    "The release to roll back to does not keep metadata that exists, or that can be made after the upgrade.",
)
METADATA_LOGS_CHECK = Check(
    "metadata-logs",
    "Metadata logs, read by each release of the path",
    "downgrade.md#a-metadata-log-that-the-older-release-cannot-read",
    (
        METADATA_LOG_UNSEEN,
        METADATA_LOG_NOT_REPLAYABLE,
        METADATA_LOG_TRIM,
        METADATA_LOG_SNAPSHOT,
        BOOTSTRAP_CHECKPOINT_TOO_NEW,
        BACKUP_SPACE,
        ROLLBACK_LOSES_METADATA,
    ),
    needs=(),
    examines=Examined.FILES,
)
METADATA_LOST = FindingCode(
    "METADATA-LOST",
    (BLOCKER, WARNING),
    "Metadata is lost at the lower level or on the older release. A warning if the loss is accepted (UNSAFE).",
)
LOSSES_UNKNOWN = FindingCode(
    "LOSSES-UNKNOWN",
    (BLOCKER, WARNING),
    "The loss report could not be created.",
    "Make the metadata log of one controller readable for this process, then start a new run.",
)
SETTINGS_NOT_KEPT = FindingCode(
    "SETTINGS-NOT-KEPT",
    (BLOCKER, WARNING),
    "A release of the path does not support some settings, and no release can read them after its next snapshot.",
)
LOSSES_CHECK = Check(
    "metadata-losses",
    "Metadata that is lost at the lower level or on the older release",
    "downgrade.md#findings-of-a-downgrade",
    (METADATA_LOST, LOSSES_UNKNOWN, SETTINGS_NOT_KEPT),
    of=(CheckOf.DOWNGRADE,),
    needs=(),
    examines=Examined.FILES,
)


def unreadable_log_findings(node_ids: Iterable[int], cluster: ClusterSpec) -> tuple[Finding, ...]:
    """Return a finding for nodes whose metadata log cannot be read; without a runtime it is a warning."""
    unreadable = sorted(node_ids)
    if not unreadable:
        return ()
    return (
        METADATA_LOG_UNSEEN.found(
            nodes(unreadable),
            f"The runtime {cluster.runtime} cannot read files on {nodes(unreadable)}. Their metadata logs are not "
            "observable and were not checked.",
            severity=BLOCKER if cluster.manages_nodes else WARNING,
        ),
    )


def metadata_findings(plan: Plan, scans: Sequence[tuple[int, MetadataScan]]) -> tuple[Finding, ...]:
    """Return findings for (node id, scan) pairs of scans before the levels are lowered.

    Equal results share a finding.
    """
    findings: list[Finding] = []
    groups: dict[tuple[Release, LogReadiness], list[tuple[int, MetadataScan]]] = defaultdict(list)
    bootstrap: dict[Release, list[tuple[int, MetadataScan]]] = defaultdict(list)
    for node_id, scan in scans:
        groups[scan.release, scan.readiness].append((node_id, scan))
        if scan.fails_at_bootstrap:
            bootstrap[scan.release].append((node_id, scan))
    for (release, needs), found in groups.items():
        ids, first = [node_id for node_id, _ in found], found[0][1]
        if (finding := _finding(plan, release, needs, ids, first)) is not None:
            findings.append(finding)
    for release, found in bootstrap.items():
        ids = [node_id for node_id, _ in found]
        failure = next(f for f in found[0][1].failures if f.where == "bootstrap")
        findings.append(
            BOOTSTRAP_CHECKPOINT_TOO_NEW.found(
                f"{release}, {nodes(ids)}", f"bootstrap.checkpoint of {nodes(ids)}: {failure.reason}"
            )
        )
    return tuple(findings)


def upgrade_metadata_findings(scans: Iterable[MetadataScan]) -> tuple[Finding, ...]:
    """Return a finding for each release of an upgrade that cannot start with the metadata log of a controller.

    Its bootstrap.checkpoint is part of the check of each node's configuration (BOOTSTRAP-CHECKPOINT-REJECTED).
    """
    return tuple(
        METADATA_LOG_NOT_REPLAYABLE.found(
            f"{scan.release}", f"With the metadata of this cluster {scan.stop_sentence}", " ".join(scan.remedies)
        )
        for scan in scans
        if any(failure.where != "bootstrap" for failure in scan.failures)
    )


def rollback_loss_findings(report: LossReport, to: Release) -> tuple[Finding, ...]:
    """Return what a rollback would lose of the metadata that exists now. A rollback compares the metadata again."""
    return tuple(
        ROLLBACK_LOSES_METADATA.found(
            f"{to}, {loss.kind} of {loss.subject}",
            f"After a rollback to {to}: {loss.sentence}",
            "Save or remove it before the upgrade, or do not roll back. A rollback compares the metadata again.",
        )
        for loss in report.losses
        if loss.kind != ACCESS
    )


def rollback_settings_findings(catalogue: Catalogue, source: Release, target: Release) -> tuple[Finding, ...]:
    """Return the kinds of settings that only the target supports: the source does not keep those that are made."""
    missing = lacking_settings(catalogue, [target])
    parts = [PARTS[part] for part in lacking_settings(catalogue, [source]) if part not in missing]
    if not parts:
        return ()
    return (
        ROLLBACK_LOSES_METADATA.found(
            f"{source}, new settings",
            f"Kafka {target} supports {few(parts)}, and {source} does not keep them.",
            f"Create none until a rollback to {source} is no longer needed.",
            severity=INFO,
        ),
    )


def _finding(
    plan: Plan, release: Release, needs: LogReadiness, ids: Sequence[int], first: MetadataScan
) -> Finding | None:
    lowers = any(change.target < change.current for change in plan.feature_changes)
    if needs is LogReadiness.NEVER or (needs is LogReadiness.LEVELS and not lowers):
        return METADATA_LOG_NOT_REPLAYABLE.found(
            f"{release}, {nodes(ids)}",
            f"On the metadata log of {nodes(ids)} {first.stop_sentence}",
            " ".join(first.remedies),
        )
    if (
        needs is LogReadiness.READY or plan.lowering is not Lowering.ONLINE or first.remedy_facts is None
    ):  # the snapshot replaces the log
        return None
    sentence = f"On the current metadata log of {nodes(ids)}, {first.stop_sentence}"
    if first.remedy_facts.starts_from_snapshot:
        return METADATA_LOG_SNAPSHOT.found(
            f"{release}, {nodes(ids)}",
            sentence,
            f"No action needed. {release} starts from the newest snapshot, and the run waits until every "
            "node has a later one.",
        )
    return METADATA_LOG_TRIM.found(
        f"{release}, {nodes(ids)}",
        f"{sentence} {release} replays the log from its start.",
        (
            "The run waits for a snapshot after that record. While each node is stopped, it removes the log "
            "before the snapshot and keeps a backup. The approval of the rolling downgrade lists these "
            "nodes. "
        )
        + " ".join(first.remedies),
    )


def loss_findings(plan: Plan, report: LossReport) -> tuple[Finding, ...]:
    """Return every loss. Losses are blockers unless an approver accepts them (`plan.unsafe`).

    Decisions about ACLs that the plan has named already (ACL-MEANS-…) are only in the report.
    """
    named = bool(access_of(plan.findings))
    severity = Severity.WARNING if plan.unsafe else Severity.BLOCKER
    remedy = (
        "This metadata is lost. A later upgrade does not restore it."
        if plan.unsafe
        else (
            "Remove it before the downgrade, choose a higher metadata.version or another release, or accept the loss "
            f"with UNSAFE. Level {report.to_level} is {report.to_name}."
        )
    )
    losses = [loss for loss in report.losses if not (named and loss.kind == ACCESS)]
    shown = [(f"{loss.kind} of {loss.subject}", loss.sentence) for loss in losses[:_NAMED]]
    if rest := losses[_NAMED:]:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(Counter(loss.kind for loss in rest).items()))
        shown.append(("further losses", f"{len(rest)} more losses: {kinds}."))
    return tuple(METADATA_LOST.found(*one, remedy, severity=severity) for one in dict.fromkeys(shown))


def lacking_settings(catalogue: Catalogue, releases: Iterable[Release]) -> Mapping[str, Release]:
    """Return part of the inventory → first of these releases that does not support its settings."""
    found: dict[str, Release] = {}
    for release in releases:
        for part, resource in SETTINGS.items():
            facts = catalogue.get(release)
            if "config_resources" not in facts.gaps and resource not in facts.config_resources:
                found.setdefault(part, release)
    return found


def settings_findings(
    lacking: Mapping[str, Release], settings: Mapping[str, Collection[str]], *, accepted: bool, acceptable: bool
) -> tuple[Finding, ...]:
    """Return findings for settings that an older release does not support, whatever the level.

    Such a release reads an unknown resource type as type 0 of ConfigResource.Type and writes this into its next
    snapshot. Then no release can read the settings. Before an offline downgrade they must be deleted, because the older
    release must have the exact image that was written for it. `settings`: names by part. `accepted`: the loss was
    accepted. `acceptable`: the loss can be accepted.
    """
    accept = ", or accept the loss (UNSAFE)" if acceptable else ""
    return tuple(
        SETTINGS_NOT_KEPT.found(
            f"{release}, {PARTS[part]}",
            f"Kafka {release} does not support {PARTS[part]}. After its next metadata snapshot, no "
            f"release can read these settings: {few(sorted(settings[part]))}.",
            ("Save these settings now. They are lost after the downgrade. Set them again after the next upgrade.")
            if accepted
            else f"Save these settings and delete them{accept}.",
            severity=WARNING if accepted else BLOCKER,
            covers=settings[part],
        )
        for part, release in lacking.items()
        if settings[part]
    )


def losses_unknown(why: str, cluster: ClusterSpec) -> tuple[Finding, ...]:
    """Return a finding because the loss report could not be created; without a runtime it is a warning."""
    return (
        LOSSES_UNKNOWN.found(
            "metadata.version",
            f"The loss report could not be created: {why}",
            severity=BLOCKER if cluster.manages_nodes else WARNING,
        ),
    )
