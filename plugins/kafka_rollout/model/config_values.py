"""Values of settings, compared as Kafka reads them.

Source: ConfigDef.parseType. The type of a setting is that of the release: DescribeConfigsResponse.ConfigType (KIP-569).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum


class ValueType(StrEnum):
    """The type of a setting in the ConfigDef of a release. Durations are INT or LONG in ms, sizes in bytes."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type
    UNKNOWN = "UNKNOWN"


def same_value(first: object, second: object, of: ValueType = ValueType.UNKNOWN) -> bool:
    """Return whether two values of a setting mean the same to Kafka. A value that is no text is compared as it is.

    `of`: UNKNOWN reads a value as what it looks like: a list, a whole number or a boolean.
    """
    if not isinstance(first, str) or not isinstance(second, str):
        return first == second
    return first == second or read_value(first, of) == read_value(second, of)


def read_value(text: str, of: ValueType) -> object:
    """Return the value that Kafka parses from a text; the text itself, if Kafka would refuse it."""
    try:
        return _READ[of](text)
    except ValueError:
        return text


def _boolean(text: str) -> bool:
    if (word := text.strip().lower()) not in ("true", "false"):
        raise ValueError(text)
    return word == "true"


def _whole(text: str) -> int:
    if re.fullmatch(r"[+-]?\d+", text.strip()) is None:
        raise ValueError(text)
    return int(text)


def _double(text: str) -> float:
    """Java also accepts a last d or f."""
    return float(text.strip().rstrip("dDfF"))


def _list(text: str) -> tuple[str, ...]:
    """Without repeated entries: releases from 4.1 on remove them when they read it."""
    return tuple(dict.fromkeys(part.strip() for part in text.strip().split(",")))


def _guess(text: str) -> object:
    items = _list(text)
    if len(items) != 1:
        return items
    for read in (_whole, _boolean):
        try:
            return str(read(text))
        except ValueError:
            continue
    return items[0]


_READ: Mapping[ValueType, Callable[[str], object]] = {
    ValueType.BOOLEAN: _boolean,
    ValueType.STRING: str,
    ValueType.INT: _whole,
    ValueType.SHORT: _whole,
    ValueType.LONG: _whole,
    ValueType.DOUBLE: _double,
    ValueType.LIST: _list,
    ValueType.CLASS: str.strip,
    ValueType.PASSWORD: str,
    ValueType.UNKNOWN: _guess,
}
