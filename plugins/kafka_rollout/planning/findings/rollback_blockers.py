"""Coordinator records of a newer release that an older release cannot load.

Source: the release catalogue. Used for rollback warnings and checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.findings import WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.coordinator_logs.verdicts import failure_reason
from kafka_rollout.kafka.formats.record_kinds import RecordKind
from kafka_rollout.releases.facts import Catalogue, FeatureLevel, Release

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
    needs=(Need.RESPONSES, Need.FACTS),
    examines=Examined.RELEASES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRecord:
    """A record that the newer release writes and that stops the older release while it loads the log.

    `needs`: the feature level from which it is written; None: from the first node with the newer release.
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
