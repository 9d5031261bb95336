"""Findings about the releases of a plan: catalogue, reported versions, known defects, records that end a rollback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.coordinator_logs.verdicts import failure_reason
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue, FeatureLevel, Release
from kafka_rollout.releases.reported import ReportedRelease, identify_release

# Fact → what the plan cannot check without it. `logging` and `has_snapshot_emitter_metrics` are in no plan. Without
# `new_group_coordinator`, the scan of a cluster that starts it has the verdict unknown.
OF_EVERY_PLAN = {
    "config_defaults": "the defaults of its settings",
    "config_names": "which settings it ignores",
    "config_resources": "which dynamic configuration it keeps",
    "coordinator_logs": "whether it loads the coordinator logs",
    "feature_defaults": "which feature levels it finalizes by default",
    "feature_dependencies": "which feature levels require each other",
    "has_current_metadata_version_metric": "how its nodes report their metadata.version",
    "java_minimum": "which Java it requires",
    "oldest_requests": "which request versions of clients it rejects",
}
OF_DOWNGRADES = {
    **OF_EVERY_PLAN,
    "lossy_downgrade_level": "whether its controller lowers metadata.version although metadata is lost",
    "metadata_log": "which metadata records it reads",
}
OF_FEATURE_PLANS = {fact: OF_EVERY_PLAN[fact] for fact in ("feature_defaults", "feature_dependencies")}


CATALOGUE_GAP = FindingCode(
    "CATALOGUE-GAP", BLOCKER, "The plan needs a fact of a release that could not be derived from its jars."
)
GAPS_CHECK = Check(
    "catalogue-facts",
    "Facts of the releases in the catalogue",
    "operations.md#kafkas-releases",
    (CATALOGUE_GAP,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(),
    examines=Examined.RELEASES,
)


def gap_findings(
    catalogue: Catalogue, releases: Iterable[Release], needed: Mapping[str, str] = OF_EVERY_PLAN
) -> tuple[Finding, ...]:
    """Return a blocker for each gap of `releases` that the plan needs."""
    return tuple(
        CATALOGUE_GAP.found(
            f"release {release}, {fact}",
            f"The catalogue does not contain {needed[fact.partition('.')[0]]}: {reason}",
            f"Choose another release, or update this tool and run `kafka-rollout-derive add {release}` again.",
        )
        for release in dict.fromkeys(releases)
        for fact, reason in catalogue.get(release).gaps.items()
        if fact.partition(".")[0] in needed
    )


RELEASE_MAPPED = FindingCode(
    "RELEASE-MAPPED", (INFO, WARNING), "A node runs the build of a vendor. A warning if only its minor line is known."
)
RELEASE_BY_NEIGHBOURS = FindingCode(
    "RELEASE-BY-NEIGHBOURS",
    (WARNING, BLOCKER),
    "A node runs a patch release that is not in the catalogue. A blocker if the nearest releases differ.",
)
REPORTED_CHECK = Check(
    "reported-versions",
    "Versions that the nodes report",
    "inventory.md#builds-of-vendors",
    (RELEASE_MAPPED, RELEASE_BY_NEIGHBOURS),
    needs=(Need.NODES,),
)


def reported_release_findings(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> Iterator[Finding]:
    """Yield the findings of each version that the nodes report and that is not a release of the catalogue."""
    by_text: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, node in sorted(state.nodes.items()):
        if node.version:
            by_text[node.version].append(node_id)
    for text, ids in sorted(by_text.items()):
        found = identify_release(text, catalogue, cluster.apache_releases)
        who = f"{nodes(ids).capitalize()} {'reports' if len(ids) == 1 else 'report'} version {text}"
        if found.release is not None and found.release in catalogue:
            yield from _mapped(who, found)
            yield from _by_neighbours(who, found)


def _mapped(who: str, found: ReportedRelease) -> Iterator[Finding]:
    if not found.vendor and not found.overridden:
        return
    basis = (
        f"the inventory maps it to {found.apache}" if found.overridden else f"{found.vendor}, based on {found.apache}"
    )
    exact = found.overridden or not found.neighbours
    differing = ""
    if not exact and found.differing:
        differing = f" The patch releases of {found.apache} differ in: {few(found.differing)}."
    remedy = "No action needed."
    if not exact:
        remedy = "Find the Apache patch release of this build, and set apache_releases in the inventory: "
        remedy += f'{{"{found.text}": "{found.neighbours[-1]}"}}, for example.'
    yield RELEASE_MAPPED.found(
        f"release {found.text}",
        f"{who}: {basis}. It is evaluated as Apache Kafka {found.release}, and a rollback installs this release."
        f"{differing}",
        remedy,
        severity=INFO if exact else WARNING,
    )


def _by_neighbours(who: str, found: ReportedRelease) -> Iterator[Finding]:
    if not found.neighbours or "." not in found.apache[found.apache.find(".") + 1 :]:
        return  # a minor line has its own finding
    names = " and ".join(map(str, found.neighbours))
    sentence = f"{who}. Kafka {found.apache} is not in the catalogue. It is evaluated as {found.release}, by {names}."
    remedy = f"Add it with `kafka-rollout-derive add {found.apache}`."
    subject = f"release {found.text}"
    if found.differing:
        differing = f"{sentence} These releases differ in: {few(found.differing)}."
        yield RELEASE_BY_NEIGHBOURS.found(subject, differing, remedy, severity=BLOCKER)
    else:
        yield RELEASE_BY_NEIGHBOURS.found(subject, sentence, remedy, severity=WARNING)


ROLLBACK_ENDS = FindingCode(
    "ROLLBACK-ENDS",
    WARNING,
    "The target writes records that the old release cannot load: a rollback ends on the release in between.",
)
ROLLBACK_END_CHECK = Check(
    "records-rollback",
    "Records of the target, compared with the release that runs now",
    "upgrade.md#findings",
    (ROLLBACK_ENDS,),
    of=(CheckOf.UPGRADE,),
    needs=(Need.LEVELS, Need.FACTS),
    examines=Examined.RELEASES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRecord:
    """A record that the newer release writes and that stops the older release while it loads the log."""

    needs: FeatureLevel | None
    """The feature level from which it is written; None: from the first node with the newer release."""
    topic: str
    record: str
    key_version: int
    value_version: int
    reason: str

    @property
    def since(self) -> str:
        return "its first node" if self.needs is None else f"{self.needs.feature} {self.needs.level}"


def find_closing_records(
    catalogue: Catalogue, source: Release, target: Release, levels: Mapping[str, int]
) -> tuple[ClosingRecord, ...]:
    """List the records that `target` writes at these finalized levels and `source` cannot load, earliest first.

    Empty: `source` can load the coordinator logs after a change to `target`, although it may ignore records.
    """
    closing = []
    for topic, written in catalogue.get(target).coordinator_logs.items():
        facts = catalogue.get(source).coordinator_logs.get(topic)
        if facts is None or not facts.loaded:
            continue
        for record in written.records:
            for version in record.writes:
                needs = record.written_from.get(version)
                if needs is not None and levels.get(needs.feature, 0) < needs.level:
                    continue
                written_kind = RecordKind(
                    topic=topic,
                    partition=0,
                    key_version=record.key_version,
                    value_version=version,
                    count=1,
                    first_offset=0,
                )
                if reason := failure_reason(facts, written_kind):
                    closing.append(
                        ClosingRecord(
                            needs=needs,
                            topic=topic,
                            record=record.name,
                            key_version=record.key_version,
                            value_version=version,
                            reason=reason,
                        )
                    )
    return tuple(sorted(closing, key=_order))


def rollback_end_findings(
    catalogue: Catalogue, path: Sequence[Release], levels: Mapping[str, int]
) -> Iterable[Finding]:
    """Return a warning if a rollback over all of `path` (source release first) ends when its last release starts.

    The approver must know this before the first node stops.
    """
    if len(path) < 2 or any(release not in catalogue for release in path):
        return
    source, before_last, target = path[0], path[-2], path[-1]
    closing = find_closing_records(catalogue, source, target, levels)
    if not closing:
        return
    ends = f"reaches at most {before_last}" if before_last != source else "is not possible afterwards"
    yield ROLLBACK_ENDS.found(
        f"release {source}",
        f"From the first node on {target}, brokers write "
        f"{', '.join(dict.fromkeys(record.record for record in closing))} records that {source} cannot "
        f"load. A rollback {ends}, unless no such record was written.",
        f"Run {before_last} long enough before you continue to {target}. Otherwise a return to {source} "
        "is a separate downgrade, which waits until the logs are clean.",
    )


def _order(closing: ClosingRecord) -> tuple[bool, str, int, str, int]:
    needs = closing.needs
    feature, level = (needs.feature, needs.level) if needs else ("", 0)
    return needs is not None, feature, level, closing.topic, closing.key_version
