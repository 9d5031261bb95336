"""Checks of coordinators for the fields of a value that parses. A record that breaks a rule stops the load.

The catalogue lists the rules of each release. The kernel of spark_jobs checks the same rules (programs.py, walking.py);
tests/contract compares both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

from kafka_rollout.kafka.formats.layouts import ZERO_UUID, FieldLayout, Layout, StructLayout
from kafka_rollout.kafka.formats.log_types import Bytes
from kafka_rollout.kafka.formats.messages import Decoded, MessageFormatError, decode, join
from kafka_rollout.releases.facts import FieldRule, RuleKind

CONSUMER_PROTOCOL = "consumer"  # coordinators read the subscriptions of groups with this protocol type
PROTOCOL_TYPE, PROTOCOL = "protocolType", "protocol"  # GroupMetadataValue's fields
_INT16, _INT32 = Struct(">h"), Struct(">i")


def with_rules(layout: Layout, rules: Sequence[FieldRule]) -> Layout:
    """Return the layout with the rules for fields that it has."""
    paths = set(_paths(layout.struct, ""))
    return replace(layout, rules=tuple(rule for rule in rules if rule.field in paths))


def decode_checked(layout: Layout, data: Bytes, at: int = 0) -> Decoded:
    """Decode a message and check its rules. Raises MessageFormatError if it does not parse or breaks a rule."""
    found = decode(layout, data, at)
    for rule in layout.rules:
        for content in _values(rule.field, found.value):
            if _is_broken(rule, content, found.value):
                words = f': "{rule.refusal.replace("{value}", str(content))}"' if rule.refusal else ""
                what = f"{layout.name} version {layout.version}"
                raise MessageFormatError(
                    f"{what} is read and then refused, since {rule.field} is {_format_content(content)}{words}"
                )
    return found


def _format_content(content: Any) -> str:
    if isinstance(content, bytes):
        return "not what consumers write"
    return "null" if content is None else repr(content)


def _is_broken(rule: FieldRule, content: Any, value: Mapping[str, Any]) -> bool:
    match rule.kind:
        case RuleKind.BETWEEN:
            return not rule.least <= content <= rule.most
        case RuleKind.SET_UNLESS_ZERO:
            names = list(value)
            return content is None and value[names[names.index(rule.field) - 1]] != 0
        case RuleKind.FILLED:
            return content in ("", ZERO_UUID)
        case RuleKind.SUBSCRIPTION:
            is_read = value[PROTOCOL_TYPE] == CONSUMER_PROTOCOL and value[PROTOCOL] is not None
            return is_read and is_bad_subscription(content)


def is_bad_subscription(data: bytes) -> bool:
    """Return whether reading the topics of a member's subscription raises an error that the coordinator does not catch.

    Source: ConsumerProtocol.deserializeVersion, then ConsumerProtocolSubscription at version 0. Bytes that end before a
    number raise a SchemaException, which computeSubscribedTopics catches. An impossible length raises another error.
    """
    at, end = _INT16.size, len(data)
    if end < at + _INT32.size:
        return False
    (topics,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if not 0 <= topics <= end - at:
        return True
    for _ in range(topics):
        if end - at < _INT16.size:
            return False
        (size,) = _INT16.unpack_from(data, at)
        at += _INT16.size
        if not 0 <= size <= end - at:
            return True
        at += size
    return end - at >= _INT32.size and _INT32.unpack_from(data, at)[0] > end - at - _INT32.size


def _values(path: str, value: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the value of the field for each element of the arrays on its path."""
    head, _, rest = path.partition(".")
    if not rest:
        yield value[head]
        return
    for element in value[head.removesuffix("[]")] or ():
        yield from _values(rest, element)


def _paths(struct: StructLayout, path: str) -> Iterator[str]:
    for one in (*struct.fields, *struct.tagged.values()):
        yield field_path(path, one)
        if one.struct is not None:
            yield from _paths(one.struct, join(path, one))


def field_path(path: str, one: FieldLayout) -> str:
    """Return the path of a field in the struct at `path`, as used in rules."""
    return f"{path}.{one.name}" if path else one.name
