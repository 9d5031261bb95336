"""Findings with remedies from the verdicts of a scan, about one release and about all releases of a plan.

A release still serves a partition that it fails to load if its only load errors are about groups that were deleted
during an open transaction (docs/scan.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.findings import (
    BLOCKER,
    INFO,
    WARNING,
    Check,
    CheckOf,
    Examined,
    Finding,
    FindingCode,
    Severity,
    Verdict,
)
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC
from kafka_rollout.base.wording import count, few, size
from kafka_rollout.coordinator_logs.incompatible_records import (
    REMOVED_WITH_GROUPS,
    facts_of_type,
    find_incompatible_records,
)
from kafka_rollout.coordinator_logs.remedies import cleaned_when, cleaner_of
from kafka_rollout.coordinator_logs.scan import Damage, LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.coordinator_logs.tagged_fields import DROPPED
from kafka_rollout.formats.cleaning import defaults_of
from kafka_rollout.releases.facts import Catalogue, Release

TRANSACTIONS_TO_END = (
    "End the transactions that commit offsets for these deleted groups. Their producers do this, or the "
    "coordinator after transaction.timeout.ms. Then scan again. You do not need to wait for the log cleaner"
)


LOGS_NOT_LOADABLE = FindingCode(
    "LOGS-NOT-LOADABLE", BLOCKER, "A release of the path cannot load a partition of the coordinator logs."
)
LOGS_UNREADABLE = FindingCode("LOGS-UNREADABLE", BLOCKER, "A part of a coordinator log could not be read.")
CLEANED_AT_GATE = FindingCode(
    "LOGS-TO-BE-CLEANED",
    WARNING,
    "A release of the path cannot load the log of groups until records of newer group types are removed.",
)
LOGS_NOT_SCANNED = FindingCode(
    "LOGS-NOT-SCANNED",
    BLOCKER,
    "There is no scan result for a release of the path.",
    "Read why the scan failed, then scan again.",
)
LOGS_IGNORED_IN_PART = FindingCode(
    "LOGS-IGNORED-IN-PART",
    WARNING,
    "A release of the path loads a coordinator log and ignores some of its records.",
    "The records stay in the log. No node uses their content until a release that supports them runs.",
)
LOGS_NOT_READ = FindingCode(
    "LOGS-NOT-READ",
    WARNING,
    "A release of the path has no coordinator for a log.",
    "No node uses the content of this log until a release with this coordinator runs.",
)
SOURCE_CANNOT_LOAD = FindingCode(
    "SOURCE-CANNOT-LOAD",
    WARNING,
    "The running release cannot load a partition again when its coordinator moves during the run.",
)
LOGS_CHECK = Check(
    "coordinator-logs",
    "Coordinator logs, compared with the releases of the path (KIP-915)",
    "scan.md#the-scan-of-the-coordinator-logs",
    (
        LOGS_NOT_LOADABLE,
        LOGS_UNREADABLE,
        CLEANED_AT_GATE,
        LOGS_NOT_SCANNED,
        LOGS_IGNORED_IN_PART,
        LOGS_NOT_READ,
        SOURCE_CANNOT_LOAD,
        DROPPED,
    ),
    needs=(),
    examines=Examined.LOGS,
)
ROLLBACK_UNKNOWN = FindingCode("ROLLBACK-UNKNOWN", BLOCKER, "The scan has no result for the previous release.")
ROLLBACK_CLOSED = FindingCode(
    "ROLLBACK-CLOSED", WARNING, "The previous release can no longer load the coordinator logs."
)
ROLLBACK_UNREADABLE = FindingCode(
    "ROLLBACK-UNREADABLE",
    WARNING,
    "A part of a coordinator log could not be read, so it is unknown whether the previous release can load it.",
)
ROLLBACK_IGNORES = FindingCode(
    "ROLLBACK-IGNORES", WARNING, "The previous release would load a coordinator log and ignore some of its records."
)
ROLLBACK_NOT_LOADED = FindingCode(
    "ROLLBACK-NOT-LOADED", INFO, "The previous release has no coordinator for a log and does not read it."
)
ROLLBACK_CHECK = Check(
    "coordinator-logs-rollback",
    "Coordinator logs, compared with the previous release",
    "upgrade.md#findings",
    (ROLLBACK_UNKNOWN, ROLLBACK_CLOSED, ROLLBACK_UNREADABLE, ROLLBACK_IGNORES, ROLLBACK_NOT_LOADED),
    of=(CheckOf.FINALIZING,),
    needs=(),
    examines=Examined.LOGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """The partitions of one log that a release cannot load, or whose state it would lose."""

    first: ReleaseVerdict
    """One that would not be served, if there is one."""
    partitions: int
    of: int
    served: int

    @classmethod
    def among(cls, scan: ScanResult, verdicts: Sequence[ReleaseVerdict]) -> Failing | None:
        """Return the failing partitions, or None if there are none. `verdicts`: of all partitions of the log."""
        failing = [verdict for verdict in verdicts if verdict.verdict.blocks]
        if not failing:
            return None
        failing.sort(key=lambda verdict: verdict.verdict is not LoadVerdict.FAILS)
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
        place, failure = self.first.place, self.first.first_failure
        if failure is not None and self.first.verdict is LoadVerdict.LOSES:
            return f"{place} at offset {failure.offset}: {failure.reason}"
        return f"{place} fails" if failure is None else f"{place} fails at offset {failure.offset}: {failure.reason}"

    @property
    def sentence(self) -> str:
        release, partitions = self.first.release, f"{self.partitions} of {self.of} partitions"
        if self.all_served:
            return f"{release} would log a load error for {partitions}, but would serve these partitions; {self.where}."
        if self.first.verdict is LoadVerdict.LOSES:
            return f"{release} would lose transactional ids in {partitions}; {self.where}."
        return f"{release} cannot load {partitions}; {self.where}."

    def remedy(self, of_unserved: str) -> str:
        """Return the remedy. `of_unserved`: remedy for partitions that would not be served, without a full stop."""
        if self.all_served:
            return TRANSACTIONS_TO_END
        if self.first.replicas:
            of_unserved = f"{of_unserved}. {cleaner_of(self.first.replicas).removesuffix('.')}"
        return f"{of_unserved}. {TRANSACTIONS_TO_END}" if self.served else of_unserved


def _unread_sentence(scan: ScanResult, verdicts: Sequence[ReleaseVerdict]) -> str | None:
    """Return the partitions whose verdict is unknown and how much of them was read; None if there are none."""
    unknown = [verdict for verdict in verdicts if verdict.verdict is LoadVerdict.UNKNOWN]
    if not unknown:
        return None
    places = {(verdict.topic, verdict.partition) for verdict in unknown}
    damage = [place for place in scan.damage if (place.topic, place.partition) in places]
    start = f"It is unknown whether {unknown[0].release} can load {len(unknown)} of {len(verdicts)} partitions: "
    if not damage and _lacks_coordinator(scan, unknown[0].topic):
        return f"{start}it has two group coordinators, and the brokers did not report which one they start."
    if not damage:
        return f"{start}the catalogue does not contain how this release reads {unknown[0].topic}."
    first = min(damage, key=lambda place: (place.partition, place.file, place.position))
    amounts = " and ".join(_unread_amounts(scan, places, damage)) or "a part"
    return f"{start}{amounts} could not be read, first {first.place}: {first.sentence}"


def _unread_remedy(scan: ScanResult, verdicts: Sequence[ReleaseVerdict]) -> str:
    """Return the remedy of `_unread_sentence`, by its cause: files are replaced only if they are damaged."""
    places = {(one.topic, one.partition) for one in verdicts if one.verdict is LoadVerdict.UNKNOWN}
    damage = [place for place in scan.damage if (place.topic, place.partition) in places]
    if any(place.is_replica for place in damage):
        return f"{_start_replicas(damage)} Then scan again."
    if damage:
        return f"{_REPLACE_DAMAGED}."
    if _lacks_coordinator(scan, verdicts[0].topic):
        return (
            "Grant DESCRIBE_CONFIGS on CLUSTER, or scan with --new-group-coordinator or --classic-group-coordinator: "
            "group.coordinator.rebalance.protocols in the files of the brokers shows which one."
        )
    return f"Add the release again (`kafka-rollout-derive add {verdicts[0].release}`), then scan again."


def _lacks_coordinator(scan: ScanResult, topic: str) -> bool:
    return scan.new_group_coordinator is None and topic == GROUPS_TOPIC


def _start_replicas(damage: Iterable[Damage]) -> str:
    return (
        f"Start {few(sorted({place.replica for place in damage if place.is_replica}))}, or repair its log directory, "
        "and wait until its replicas are in sync: each of them can become the leader."
    )


def find_unread_replicas(scan: ScanResult, release: Release) -> tuple[Damage, ...]:
    """Return the replicas that no broker returned, if they alone leave unknown whether the release can load the logs;
    else empty.
    """
    unknown = {
        (one.topic, one.partition)
        for verdicts in scan.by_topic(release).values()
        for one in verdicts
        if one.verdict is LoadVerdict.UNKNOWN
    }
    damage = [place for place in scan.damage if (place.topic, place.partition) in unknown]
    is_all = all(place.is_replica for place in damage) and {(one.topic, one.partition) for one in damage} == unknown
    return tuple(damage) if is_all and not scan.failing(release) else ()


def unread_replica_sentences(unread: Iterable[Damage], release: Release) -> tuple[str, ...]:
    """Return what an approver of a rollback accepts: a sentence for each broker and log, the same at each reading."""
    return tuple(
        f"{replica[:1].upper()}{replica[1:]} did not return its replicas of {topic}: it is unknown whether {release} "
        "can load them when this broker leads."
        for replica, topic in sorted({(place.replica, place.topic) for place in unread})
    )


def unread_logs_sentence(release: Release) -> str:
    """Return what an approver of a rollback accepts if no log could be read."""
    return f"The coordinator logs could not be read: it is unknown whether {release} can load them."


def refuse_unread_replicas(scan: ScanResult, release: Release) -> None:
    """Raise TransientError if a replica that no broker returned leaves unknown whether the release can load a log."""
    if (error := unread_replicas_error(scan, release)) is not None:
        raise error


def unread_replicas_error(scan: ScanResult, release: Release) -> TransientError | None:
    for verdicts in scan.by_topic(release).values():
        places = {(one.topic, one.partition) for one in verdicts if one.verdict is LoadVerdict.UNKNOWN}
        unread = [place for place in scan.damage if place.is_replica and (place.topic, place.partition) in places]
        if unread and (sentence := _unread_sentence(scan, verdicts)):
            return TransientError(sentence, remedy=f"{_start_replicas(unread)} Then repeat the step.")
    return None


def _unread_amounts(scan: ScanResult, places: Collection[tuple[str, int]], damage: Sequence[Damage]) -> Iterator[str]:
    """Yield the unread amount of these partitions: bytes of segment files, offsets of live logs."""
    if unread := sum(place.log_bytes for place in damage if place.file):
        read = sum(one.log_bytes for one in scan.sizes if (one.topic, one.partition) in places)
        yield f"{size(unread)} of {size(read + unread)}"
    if offsets := sum(place.offsets for place in damage):
        damaged = {(place.topic, place.partition, place.replica) for place in damage if place.offsets}
        of = Counter((topic, partition) for topic, partition, _ in damaged)
        logs = [log for log in scan.logs if (log.topic, log.partition) in places]
        held = sum((log.end - log.start) * max(1, of[log.topic, log.partition]) for log in logs)
        yield f"{offsets:,} of {held:,} offsets"
    if replicas := sum(place.is_replica for place in damage):
        yield count(replicas, "replica")


def check_rollback(scan: ScanResult | None, release: Release) -> Verdict:
    """Return whether `release`, which ran before, can still load the coordinator logs.

    A rollback that is no longer possible is a warning that an approver can accept. A missing scan is a blocker.
    """
    question = f"Can {release} still load the coordinator logs?"
    if scan is None or not (by_topic := scan.by_topic(release)):
        unknown = ROLLBACK_UNKNOWN.found(
            f"release {release}",
            f"There is no scan of the coordinator logs with a result for {release}.",
            f"Scan the coordinator logs again with --release {release}.",
        )
        return Verdict(question=question, findings=(unknown,))
    findings = tuple(
        finding
        for topic, verdicts in by_topic.items()
        for finding in _rollback_findings(scan, topic, verdicts, release)
    )
    return Verdict(question=question, findings=findings)


def _rollback_findings(
    scan: ScanResult, topic: str, verdicts: Sequence[ReleaseVerdict], release: Release
) -> Iterator[Finding]:
    failing, unread = Failing.among(scan, verdicts), _unread_sentence(scan, verdicts)
    if failing:
        end = failing.remedy(
            "Remove or convert the groups and transactional ids that wrote these records. Wait until the log "
            f"cleaner has removed the records, then return to {release}. Or return to a release that ignores "
            "them"
        )
        yield ROLLBACK_CLOSED.found(f"topic {topic}", failing.sentence, f"{end}.")
    if unread:
        remedy = f"{_unread_remedy(scan, verdicts)} If you finalize now, a return to {release} can fail."
        yield ROLLBACK_UNREADABLE.found(f"topic {topic}", unread, remedy)
    if failing or unread:
        return
    if ignored := sum(v.ignored for v in verdicts):
        yield ROLLBACK_IGNORES.found(
            f"topic {topic}",
            f"{release} would load {topic} and ignore {ignored} records of unknown types.",
            f"If you return to {release}, the content of these records is not used, for example groups of "
            "the newer protocols.",
        )
    elif all(v.verdict is LoadVerdict.NOT_LOADED for v in verdicts):
        yield ROLLBACK_NOT_LOADED.found(
            f"topic {topic}",
            f"{release} has no coordinator for {topic} and would not load it.",
            f"No action needed. {release} does not use this log.",
        )


_REPLACE_DAMAGED = (
    "Scan the same partition on another replica (`kafka-rollout scan --log-dir`). If that file is complete and the "
    "replica is in sync, stop the node with the damaged file, remove the partition's directory and start the node: it "
    "fetches the log again. Then scan again"
)
_REMOVED_AND_CLEANED = (
    "Open the scan report. It lists the groups and transactional ids that wrote the records. Convert or "
    "remove them and wait until the log cleaner has removed the records"
)
_REMOVALS = {
    SHARE_TOPIC: (
        "Stop the members of the share groups. Delete the groups, then delete this topic. The log cleaner "
        "does not run on it. Kafka creates the topic again for the next share group"
    )
}


def path_findings(
    scan: ScanResult | None, source: Release, path: Sequence[Release], *, gated: Catalogue | None = None
) -> tuple[Finding, ...]:
    """Return the findings for a path. `source`: running release; `path`: releases to run, the target last; may be
    empty.

    `scan`: None if the scan failed. Without a coordinator log there is nothing to load and nothing unknown. `gated`:
    the catalogue, if the run has a gate that waits until the releases of the path can load the log of groups. A problem
    that this gate resolves is not a blocker then.
    """
    if scan is None:
        return tuple(_unknown(release) for release in path)
    if not scan.logs or not path:
        return ()
    findings = [
        finding
        for release in path
        for topic, verdicts in scan.by_topic(release).items()
        for finding in _path_findings(release, topic, verdicts, scan, source=source, gated=gated)
    ]
    findings += [_unknown(release) for release in path if not scan.by_topic(release)]
    findings += [
        _source_finding(source, topic, failing)
        for topic, verdicts in scan.by_topic(source).items()
        if (failing := Failing.among(scan, verdicts))
    ]
    return tuple(findings)


def _path_findings(
    release: Release,
    topic: str,
    verdicts: Sequence[ReleaseVerdict],
    scan: ScanResult,
    *,
    source: Release,
    gated: Catalogue | None,
) -> Iterator[Finding]:
    failing, unread = Failing.among(scan, verdicts), _unread_sentence(scan, verdicts)
    if failing:
        finding = LOGS_NOT_LOADABLE.found(
            f"{release}, topic {topic}",
            failing.sentence,
            f"{failing.remedy(_REMOVALS.get(topic, _REMOVED_AND_CLEANED))}. Or choose a release that can load them.",
        )
        if gated is not None and topic == GROUPS_TOPIC and _is_resolved_at_gate(scan, gated, source, release):
            finding = _to_be_cleaned(finding, scan)
        yield finding
    if unread:
        yield LOGS_UNREADABLE.found(f"{release}, topic {topic}", unread, _unread_remedy(scan, verdicts))
    if failing or unread:
        return
    if ignored := sum(verdict.ignored for verdict in verdicts):
        yield LOGS_IGNORED_IN_PART.found(
            f"{release}, topic {topic}",
            f"{release} loads {topic} and ignores {ignored} records of unknown types (KIP-915).",
            covers=() if gated is None else _ignored(scan, gated, release, topic),
        )
        return
    unused = all(verdict.verdict is LoadVerdict.NOT_LOADED for verdict in verdicts)
    if unused and any(found.topic == topic for found in scan.classes):
        yield LOGS_NOT_READ.found(
            f"{release}, topic {topic}", f"{release} has no coordinator for {topic} and does not read it."
        )


def _ignored(scan: ScanResult, catalogue: Catalogue, release: Release, topic: str) -> frozenset[str]:
    """Return the record kinds that a release ignores, and their owners, if the scan lists all of them."""
    records = find_incompatible_records(scan, catalogue, release)
    kinds = {(one.key_version, one.value_version) for one in records if one.topic == topic and not one.stops}
    owners = [] if scan.owners_left_out else [one for one in scan.owners if one.topic == topic]
    return frozenset(f"record {key} {value}" for key, value in kinds) | {
        f"{one.owner} {one.name}" for one in owners if (one.key_version, one.value_version) in kinds
    }


def _is_resolved_at_gate(scan: ScanResult, catalogue: Catalogue, source: Release, release: Release) -> bool:
    """Return whether only groups of newer types stop the release, and `source` writes tombstones for their records."""
    stopping = [
        found
        for found in find_incompatible_records(scan, catalogue, release)
        if found.stops and found.topic == GROUPS_TOPIC
    ]
    return bool(stopping) and all(
        found.family in REMOVED_WITH_GROUPS
        and found.key_version is not None
        and source in dict(facts_of_type(catalogue, GROUPS_TOPIC, found.key_version))
        for found in stopping
    )


def _to_be_cleaned(finding: Finding, scan: ScanResult) -> Finding:
    cleaning = scan.cleaning.get(GROUPS_TOPIC, defaults_of(GROUPS_TOPIC))
    return replace(
        finding,
        code=CLEANED_AT_GATE.code,
        severity=Severity.WARNING,
        remedy=(
            "Convert these groups (`kafka-rollout groups list --to classic` lists the steps) or delete them, "
            "with their committed offsets. "
            f"Then wait for the log cleaner of each replica: {cleaned_when(GROUPS_TOPIC, cleaning)}. The run waits for "
            "both (gate groups) before it changes the cluster."
        ),
    )


def _source_finding(source: Release, topic: str, failing: Failing) -> Finding:
    unavailable = (
        "Expect the groups or transactional ids of these partitions to be unavailable until their node runs "
        "the next release"
    )
    return SOURCE_CANNOT_LOAD.found(
        f"{source}, topic {topic}",
        f"{failing.sentence} The cluster runs {source} now. During the rolling upgrade, coordinators move "
        f"to other nodes that still run {source} and cannot load the partition.",
        f"{failing.remedy(unavailable)}.",
    )


def _unknown(release: Release) -> Finding:
    return LOGS_NOT_SCANNED.found(
        f"release {release}", f"It is unknown whether {release} can load the coordinator logs: there is no scan result."
    )
