"""Orders of group records that a release's group coordinator accepts, by replays of short logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_rollout.derivation.coordinators.loaders import Record, Refusal
from kafka_rollout.derivation.coordinators.rules import fill_message
from kafka_rollout.derivation.jars import Message, key_versions
from kafka_rollout.kafka.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.kafka.formats.group_replay import CURRENT, GROUP, MEMBER
from kafka_rollout.kafka.formats.layouts import Layout, MessageSchema
from kafka_rollout.kafka.formats.messages import encode
from kafka_rollout.releases.facts import GroupFamilyFacts, RecordTypeFacts

FAMILIES = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
GROUP_ID, MEMBER_ID = "probed-group", "probed-member"


def group_families(
    refusal: Refusal, messages: Mapping[str, Message], known: Sequence[RecordTypeFacts]
) -> tuple[GroupFamilyFacts, ...]:
    records = Records(messages)
    offset, classic = records.value("OffsetCommit"), records.value("GroupMetadata", protocolType="consumer", members=[])
    found = []
    for family in FAMILIES:
        of_group, of_member, current = (family + part for part in (GROUP, MEMBER, CURRENT))
        names = [record.name for record in known if record.name.startswith(family) and not record.refuses]
        if of_group not in names:
            continue
        without = {name: refusal([records.value(name)]) for name in names}
        lost = {name: refusal([records.tombstone(name)]) for name in names}
        not_found = _one({*filter(None, (*without.values(), *lost.values()))}, family)
        group = records.value(of_group)
        no_member = [refusal([group, one]) for one in (records.value(current), records.tombstone(current))]
        no_member += [refusal([group, records.tombstone(of_member)])]
        if (None in no_member) != (no_member == [None] * len(no_member)):
            raise AssertionError(f"{family}: only some records need an existing member: {no_member}")
        behind_offsets = refusal([offset, group])
        other_type = refusal([classic, group])
        if other_type is None or behind_offsets not in (None, other_type):
            raise AssertionError(
                f"{family}: refused after a group of another type: {other_type}; after offsets: {behind_offsets}"
            )
        too_late = refusal([records.value(current), records.value(of_member)]) if no_member == [None] * 3 else None
        found.append(
            GroupFamilyFacts(
                family=family,
                founders=tuple(sorted(records.key_version(name) for name in names if without[name] is None)),
                not_found=not_found,
                member_not_found=_one({*filter(None, no_member)}, family),
                member_too_late=(too_late or "").partition(" from ")[0],  # without the name of the task after it
                other_type=_general(other_type),
                takes_over_offsets=behind_offsets is None,
            )
        )
    return tuple(found)


class Records:
    """Records of one group and one member, from the definitions of a release, with a value in every field."""

    def __init__(self, messages: Mapping[str, Message]) -> None:
        self._messages = messages

    def value(self, name: str, **contents: Any) -> Record:
        layout = self._layout(f"{name}Value", 0)
        return self._key(name), bytes(VERSION_BYTES) + encode(layout, {**fill_message(layout.struct), **contents})

    def tombstone(self, name: str) -> Record:
        return self._key(name), None

    def key_version(self, name: str) -> int:
        return key_versions(self._messages[f"{name}Key"])[-1]

    def fields(self, name: str) -> list[str]:
        """Return the field names of a value."""
        return [field.name for field in self._layout(f"{name}Value", 0).struct.fields]

    def _key(self, name: str) -> bytes:
        key, version = self._messages[f"{name}Key"], self.key_version(name)
        layout = self._layout(key.name, 0 if "apiKey" in key.definition else version)
        texts = {"groupId": GROUP_ID, "group": GROUP_ID, "memberId": MEMBER_ID}
        contents = {name: texts.get(name, content) for name, content in fill_message(layout.struct).items()}
        return version.to_bytes(VERSION_BYTES, "big") + encode(layout, contents)

    def _layout(self, name: str, version: int) -> Layout:
        return MessageSchema.parse(json.dumps(self._messages[name].definition)).layout(version)


def _one(complaints: set[str], family: str) -> str:
    if len(complaints) > 1:
        raise AssertionError(f"{family}: several messages for a missing group or member: {sorted(complaints)}")
    return _general(complaints.pop()) if complaints else ""


def _general(complaint: str) -> str:
    return complaint.replace(GROUP_ID, "{group}").replace(MEMBER_ID, "{member}")
