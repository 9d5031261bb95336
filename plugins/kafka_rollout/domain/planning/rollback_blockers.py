"""From when a release's own records close the way back: what it writes, held against what an earlier one can load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.domain.coordinator_logs.scan import RecordKind
from kafka_rollout.domain.coordinator_logs.verdicts import failure_reason
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.releases import Catalogue, FeatureLevel, Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRecord:
    """A record that the newer release writes and that stops the load of the older one.

    `needs`: the feature level from which it is written; None: from the newer release's first node on.
    """

    needs: FeatureLevel | None
    topic: str
    record: str
    key_version: int
    value_version: int
    reason: str

    @property
    def since(self) -> str:
        return "its first node" if self.needs is None else f"{self.needs.feature} {self.needs.level}"


def closes_way_back(
    catalogue: Catalogue, source: Release, target: Release, levels: Mapping[str, int]
) -> tuple[ClosingRecord, ...]:
    """What `target`, with these finalized levels, writes and `source` cannot load; what comes earliest is first.

    Empty: `source` could load the coordinator logs after a roll to `target`, though it may ignore records in them.
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
                held = RecordKind(
                    topic=topic,
                    partition=0,
                    key_version=record.key_version,
                    value_version=version,
                    count=1,
                    first_offset=0,
                )
                if reason := failure_reason(facts, held):
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


def way_back_ends(catalogue: Catalogue, path: Sequence[Release], levels: Mapping[str, int]) -> Iterable[Finding]:
    """A warning where a roll back over all of `path` (the origin first) would be closed as soon as its last release
    runs: what a person should know before the first node is stopped."""
    if len(path) < 2 or any(release not in catalogue for release in path):
        return
    source, before_last, target = path[0], path[-2], path[-1]
    closing = closes_way_back(catalogue, source, target, levels)
    if not closing:
        return
    ends = f"goes to {before_last} at the most" if before_last != source else "is closed then"
    yield Finding(
        code="WAY-BACK-ENDS",
        severity=Severity.WARNING,
        subject=f"release {source}",
        sentence=f"Brokers of {target} write {', '.join(dict.fromkeys(record.record for record in closing))} records "
        f"that {source} cannot load, from their first node on: a roll back {ends}, unless none was written.",
        remedy=f"Soak long enough on {before_last} before {target}, or accept that the way back to {source} is a "
        "downgrade of its own, which waits until the logs are clean.",
    )


def _order(closing: ClosingRecord) -> tuple[bool, str, int, str, int]:
    needs = closing.needs
    feature, level = (needs.feature, needs.level) if needs else ("", 0)
    return needs is not None, feature, level, closing.topic, closing.key_version
