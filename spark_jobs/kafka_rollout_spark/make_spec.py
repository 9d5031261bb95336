"""Makes the spec that the workers need, from the catalogue and the message definitions. On the driver only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.contents import describes_owner
from kafka_rollout.coordinator_logs.reading.second_reading import facts_of_order, ordered_types
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.kafka.documents.definitions import Schemas
from kafka_rollout.kafka.formats.layouts import Layout
from kafka_rollout.kafka.formats.record_kinds import RecordKind
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout_spark.kernel.programs import LayoutUse, RecordUse, write_programs
from kafka_rollout_spark.kernel.spec import DecodingSpec


def make_spec(
    catalogue: Catalogue,
    schemas: Schemas,
    releases: Sequence[Release],
    topics: Collection[str],
    *,
    live: bool = False,
    buckets: int = 1,
) -> DecodingSpec:
    """The spec of a scan for these releases that parses the records of these logs.

    Records are decoded with the layouts of all releases of the catalogue: for a record that an old release does not
    know, only a newer layout shows the group or transactional id.
    """
    newest_first, logs = sorted(catalogue, reverse=True), {}
    for topic in topics:
        key_versions = sorted({version for release in catalogue for version in schemas.log(release, topic)})
        records = [_record_use(schemas, newest_first, topic, key_version) for key_version in key_versions]
        logs[topic] = write_programs(records, _loaded_by_all(catalogue, releases, records))
    return DecodingSpec(logs=logs, live=live, buckets=buckets)


def _record_use(schemas: Schemas, releases: Sequence[Release], topic: str, key_version: int) -> RecordUse:
    """`releases`, newest first: so are the layouts."""
    keys: defaultdict[Layout, list[Release]] = defaultdict(list)
    values: defaultdict[int, defaultdict[Layout, list[Release]]] = defaultdict(lambda: defaultdict(list))
    names = []
    for release in releases:
        known = schemas.layouts(release, topic, key_version)
        if known is None:
            continue
        names.append(known.name)
        keys[known.key].append(release)
        for version in range(known.value.valid_versions.min, known.value.valid_versions.max + 1):
            values[version][known.value_layout(version)].append(release)
    return RecordUse(
        topic=topic,
        key_version=key_version,
        name=names[0],
        keys=_uses(keys),
        values={version: _uses(layouts) for version, layouts in values.items()},
        state=describes_owner(names[0]),
    )


def _uses(layouts: dict[Layout, list[Release]]) -> tuple[LayoutUse, ...]:
    return tuple(LayoutUse(layout=layout, releases=tuple(releases)) for layout, releases in layouts.items())


def _loaded_by_all(
    catalogue: Catalogue, releases: Sequence[Release], records: Sequence[RecordUse]
) -> Iterator[tuple[int, int | None]]:
    """Record kinds that no asked release stops at or ignores. A release without a coordinator for the log does not
    count."""
    by_their_order = ordered_types(facts_of_order(catalogue, releases))
    for record in records:
        if record.topic == GROUPS_TOPIC and record.key_version in by_their_order:
            continue
        for value_version in (None, *record.values):
            one = RecordKind(
                topic=record.topic,
                partition=0,
                key_version=record.key_version,
                value_version=value_version,
                count=1,
                first_offset=0,
            )
            if {v.verdict for v in evaluate_records(catalogue, [one], releases)} <= {
                LoadVerdict.LOADS,
                LoadVerdict.NOT_LOADED,
            }:
                yield record.key_version, value_version
