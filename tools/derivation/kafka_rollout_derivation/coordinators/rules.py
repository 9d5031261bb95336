"""What a release's coordinators accept: contents of fields, and orders of the records of a group, found by trials."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from kafka_rollout.formats.coordinator_records import CONSUMER_PROTOCOL, PROTOCOL, PROTOCOL_TYPE, VERSION_BYTES
from kafka_rollout.formats.group_replay import CURRENT, GROUP, MEMBER
from kafka_rollout.formats.layouts import ZERO_UUID, FieldLayout, FieldType, Layout, MessageSchema, StructLayout
from kafka_rollout.formats.messages import encode
from kafka_rollout.releases.facts import FieldRule, GroupFamilyFacts, RecordTypeFacts, RuleKind
from kafka_rollout_derivation.coordinators.loaders import Record, Refusal
from kafka_rollout_derivation.jars import Message, key_versions

Complaint = Callable[[bytes], str | None]  # value with its version → the release's message if it refuses it

_BITS = {FieldType.INT8: 8, FieldType.INT16: 16, FieldType.INT32: 32, FieldType.INT64: 64}
_SMALL = range(-3, 20)  # and the limits of the type: the accepted range has one of its ends here
_NOTHING = {FieldType.STRING: "", FieldType.UUID: ZERO_UUID}
_SUBSCRIPTION = "subscription"
_TOPICS = b"\0\0\0\0\0\1\0\1t"  # version 0, one topic
_NO_FAULTS = (_TOPICS + b"\xff\xff\xff\xff", _TOPICS, _TOPICS[:-2], b"\0", b"")
_FAULTS = (b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\x63", _TOPICS[:-1], _TOPICS + b"\0\0\0\x63", b"\0\0\0\0\0\1\xff\xff")


def field_rules(layout: Layout, complaint: Complaint) -> tuple[FieldRule, ...]:
    """Return the rules of a value. Raises AssertionError if no kind of rule can express a refusal."""
    plain = fill_message(layout.struct)

    def complain(**contents: Any) -> str | None:
        return complaint(layout.version.to_bytes(2, "big") + encode(layout, {**plain, **contents}))

    if words := complain():
        raise AssertionError(f"{layout.name} is refused with all contents: {words}")
    found: list[FieldRule] = []
    for path, one in _fields(layout.struct):

        def tried(content: Any, path: str = path) -> str | None:
            return complain(**_with(plain, path, content))

        if one.name == _SUBSCRIPTION and one.type is FieldType.BYTES:
            found += _subscription_rule(path, plain, complain)
        elif one.array:
            found += _null_rule(path, found, tried, complain) if one.nullable else ()
        elif one.type in _BITS:
            found += _number_rule(path, _BITS[one.type], tried)
        elif one.type in _NOTHING and (words := tried(_NOTHING[one.type])):
            found.append(FieldRule(field=path, kind=RuleKind.FILLED, refusal=words))
        if one.nullable and not one.array and tried(None):
            raise AssertionError(f"{layout.name}.{path} must not be null: {tried(None)}")
    return tuple(found)


def _number_rule(path: str, bits: int, tried: Callable[[int], str | None]) -> Iterator[FieldRule]:
    ends = -(1 << bits - 1), (1 << bits - 1) - 1
    numbers = sorted({*ends, *(number for number in _SMALL if ends[0] <= number <= ends[1])})
    words = {number: tried(number) for number in numbers}
    taken = [number for number, complaint in words.items() if complaint is None]
    if len(taken) == len(numbers):
        return
    least, most = min(taken), max(taken)
    if taken != [number for number in numbers if least <= number <= most]:
        raise AssertionError(f"the accepted numbers of {path} are not a range: {taken}")
    refused = {str(complaint).replace(str(number), "{value}") for number, complaint in words.items() if complaint}
    if len(refused) > 1:
        raise AssertionError(f"{path} is refused for several reasons: {sorted(refused)[:3]}")
    yield FieldRule(field=path, kind=RuleKind.BETWEEN, least=least, most=most, refusal=refused.pop())


def _null_rule(
    path: str, found: list[FieldRule], tried: Callable[[Any], str | None], complain: Callable[..., str | None]
) -> Iterator[FieldRule]:
    before = next((rule for rule in reversed(found) if rule.kind is RuleKind.BETWEEN), None)
    if before is None:
        if words := tried(None):
            raise AssertionError(f"{path} must not be null: {words}")
        return
    numbers = range(before.least, before.most + 1)
    refused = {number for number in numbers if complain(**{path: None, before.field: number})}
    if refused and refused != set(numbers) - {0}:
        raise AssertionError(f"{path} must not be null at {sorted(refused)} of {before.field}")
    if refused:
        yield FieldRule(field=path, kind=RuleKind.SET_UNLESS_ZERO, refusal="")


def _subscription_rule(path: str, plain: Mapping[str, Any], complain: Callable[..., str | None]) -> Iterator[FieldRule]:
    def refuses(data: bytes, **contents: Any) -> bool:
        of_consumers = {PROTOCOL_TYPE: CONSUMER_PROTOCOL, PROTOCOL: "range", **contents}
        return complain(**{**of_consumers, **_with(plain, path, data)}) is not None

    if not any(refuses(data) for data in _FAULTS):
        return
    taken = [data for data in _FAULTS if not refuses(data)] + [data for data in _NO_FAULTS if refuses(data)]
    taken += [data for data in _FAULTS if refuses(data, **{PROTOCOL: None}) or refuses(data, **{PROTOCOL_TYPE: "sr"})]
    if taken:
        raise AssertionError(f"{path} is read in another way than the subscriptions of consumers: {taken}")
    yield FieldRule(field=path, kind=RuleKind.SUBSCRIPTION, refusal="")


def fill_message(struct: StructLayout) -> dict[str, Any]:
    """Return a message with a value in every text, different UUIDs, one element in every array, and numbers 0."""
    return _fill(struct, count(1))


def _fill(struct: StructLayout, numbers: Iterator[int]) -> dict[str, Any]:
    fields = (*struct.fields, *(one for one in struct.tagged.values() if one.array or one.struct))
    return {one.name: [_content(one, numbers)] if one.array else _content(one, numbers) for one in fields}


def _content(one: FieldLayout, numbers: Iterator[int]) -> Any:
    if one.struct is not None:
        return _fill(one.struct, numbers)
    match one.type:
        case FieldType.STRING:
            return f"x{next(numbers)}"
        case FieldType.UUID:
            return base64.urlsafe_b64encode(next(numbers).to_bytes(16, "big")).decode()[:-2]
        case FieldType.BYTES | FieldType.RECORDS:
            return b""
        case _:
            return 0


def _fields(struct: StructLayout, path: str = "") -> Iterator[tuple[str, FieldLayout]]:
    """Return the fields by the paths of rules; of tagged fields only those of the message itself."""
    for one in (*struct.fields, *(struct.tagged.values() if not path else ())):
        here = f"{path}{one.name}"
        yield here, one
        if one.struct is not None:
            yield from _fields(one.struct, f"{here}[]." if one.array else f"{here}.")


def _with(plain: Mapping[str, Any], path: str, content: Any) -> dict[str, Any]:
    """Return the top-level field, with all its contents, after the field at the path is set to this value."""
    head, _, rest = path.partition(".")
    if not rest:
        return {head: content}
    name = head.removesuffix("[]")
    current = plain[name]
    inner = current[0] if isinstance(current, list) else current
    changed = {**inner, **_with(inner, rest, content)}
    return {name: [changed] if isinstance(current, list) else changed}


FAMILIES = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
GROUP_ID, MEMBER_ID = "probed-group", "probed-member"


def group_families(
    refusal: Refusal, messages: Mapping[str, Message], known: Sequence[RecordTypeFacts]
) -> tuple[GroupFamilyFacts, ...]:
    records = SampleRecords(messages)
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


class SampleRecords:
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
