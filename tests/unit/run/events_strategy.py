"""Any event of any kind, made from the types of its fields."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal

from hypothesis import strategies as st

from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event
from kafka_rollout.run.store.event_json import KINDS

_NUMBERS = st.integers(min_value=0, max_value=999)
_PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Release: st.builds(Release, _NUMBERS, _NUMBERS, _NUMBERS),
}


def events() -> st.SearchStrategy[Event]:
    return st.sampled_from(sorted(KINDS)).flatmap(lambda kind: values_of(KINDS[kind]))


@cache
def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type; fails for a type that no field has yet."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in {typing.Union, types.UnionType}:
        return st.one_of([values_of(one) for one in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        if args[1:] != (...,):
            return st.tuples(*map(values_of, args))
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(values_of(args[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = typing.get_type_hints(hint)
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
        return st.builds(hint, **{name: values_of(one) for name, one in hints.items()})
    assert is_dataclass(hint), f"no values of {hint} are known"
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in fields(hint)})
