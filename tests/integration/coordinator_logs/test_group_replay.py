"""formats.group_replay beside the coordinators' own code (GroupCoordinatorShard), record by record, on random logs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.formats.group_replay import CURRENT, GroupRecord, GroupReplay, text_at
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import CoordinatorLogFacts, Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from kafka_rollout_derivation.coordinators.loaders import GROUP_SERDE, Record, group_shards, refusals
from kafka_rollout_derivation.coordinators.rules import GROUP_ID, MEMBER_ID, SampleRecords
from kafka_rollout_derivation.coordinators.serialized_records import SERDE_OF_3_9
from kafka_rollout_derivation.jars import coordinator_messages
from tests.releases import NEWEST

pytestmark = pytest.mark.integration

LOGS = 200
SEED = 915


def random_logs(records: SampleRecords, names: list[str], families: list[str]) -> Iterator[list[Record]]:
    """Of two groups with two members each, most of one family; no two members are given the same partition."""
    random = Random(SEED)
    for _ in range(LOGS):
        chosen = tuple(random.sample(families, 1 if random.random() < 0.7 else min(2, len(families))))
        of_families = [name for name in names if name.startswith(chosen)]
        log = []
        for _ in range(random.randint(2, 14)):
            kind = random.random()
            if kind < 0.18:
                name = "OffsetCommit" if kind < 0.1 else "GroupMetadata"
                contents = {} if kind < 0.1 else {"protocolType": random.choice(["", "consumer"]), "members": []}
            else:
                name, contents = random.choice(of_families), {}
                if name.endswith(CURRENT):
                    contents = {"memberEpoch": random.choice([-1, 0, 3])}
                    owned = ("assignedPartitions", "partitionsPendingRevocation")
                    contents |= {field: [] for field in records.fields(name) if field in owned}
            removed = random.random() < (0.2 if kind < 0.1 else 0.5)
            key, value = records.tombstone(name) if removed else records.value(name, **contents)
            for text in (GROUP_ID, MEMBER_ID):
                key = key.replace(text.encode(), (text[:-1] + random.choice("12")).encode())
            log.append((key, value))
        yield log


def first_refused(facts: CoordinatorLogFacts, log: list[Record]) -> tuple[int, str] | None:
    replay = GroupReplay(facts)
    for offset, (key, value) in enumerate(log):
        group, at = text_at(key, VERSION_BYTES)
        assert group is not None
        version = int.from_bytes(key[:VERSION_BYTES], "big")
        member = text_at(key, at)[0] or b""
        replay.add(GroupRecord(offset=offset, key_version=version, group=group, member=member, value=value))
    return min(((found.record.offset, found.complaint) for found in replay.refused.values()), default=None)


@pytest.mark.parametrize(
    "release",
    ["3.9.1", "4.3.1", *(pytest.param(r, marks=pytest.mark.full) for r in ("4.0.1", "4.1.1", "4.2.1", NEWEST))],
)
def test_groups_are_refused_where_the_coordinator_refuses_them(release: str, release_cache: ReleaseCache) -> None:
    asked = Release.parse(release)
    libs = release_cache.libs(asked)
    messages = coordinator_messages(libs)
    of_3_9 = asked < Release(4, 0, 0)
    catalogue = load_catalogue(release_cache.include).configured(new_group_coordinator=of_3_9)
    log_facts = catalogue.get(asked).coordinator_logs[GROUPS_TOPIC]
    families = [family.family for family in log_facts.group_families]
    names = [record.name for record in log_facts.records if not record.refuses]
    refused = 0
    with run_jvm(libs) as jvm:
        refusal = refusals(jvm, group_shards(jvm), SERDE_OF_3_9 if of_3_9 else GROUP_SERDE)
        for log in random_logs(SampleRecords(messages), names, families):
            said, found = refusal(log), first_refused(log_facts, log)
            if found is None:
                assert said is None, log
                continue
            refused += 1
            offset, complaint = found
            assert said is not None, log
            assert refusal(log[:offset]) is None, log
            assert refusal(log[: offset + 1]) == said, log
            assert said.startswith(complaint), log
    assert refused > LOGS // 4
