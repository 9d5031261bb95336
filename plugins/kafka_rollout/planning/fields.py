"""Declarations of the fields of a request: how forms, commands, plans, rehearsals and documents show each one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from kafka_rollout.base.durations import parse_duration, typed_duration
from kafka_rollout.base.errors import UserError
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release

_DECLARED = "declared"
AS_REQUESTED: Any = object()
BY_NAME = "by name"


class FieldUnit(NamedTuple):
    """A unit of a form or an option."""

    name: str
    size: int
    """Its size in the unit of the request."""


UNITLESS = FieldUnit("", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a request, as an operator sees it.

    `declared_fields` fills the defaults and the rest from the dataclass: `name` is the attribute of the request.
    """

    form: str = BY_NAME
    """Its name in the forms, by default that of the attribute."""
    option: str = BY_NAME
    """Of the commands, with the flag that switches it off, by default `--` and that name with dashes. Empty: not there.
    """
    title: str
    text: str
    """Its effect, for both."""
    of: frozenset[RunOf]
    """The kinds of runs that have it."""
    section: str = ""
    in_plan: bool = False
    """The plan depends on it, so that a run that is always a dry run has it too."""
    labels: Mapping[StrEnum, str] = field(default_factory=dict)
    """Value → text in a form, for one value of several."""
    labels_of: Callable[[ClusterSpec], Mapping[StrEnum, str]] | None = None
    """The same for values whose meaning a cluster sets."""
    switch: StrEnum | None = None
    """The value that the option, a flag, sets."""
    least: float | None = None
    """Limits, in the unit of the request."""
    most: float | None = None
    """Limits, in the unit of the request."""
    pattern: str = ""
    """Regular expression of each item of a list."""
    form_unit: FieldUnit = UNITLESS
    option_unit: FieldUnit = UNITLESS
    required: bool = False
    """A command needs it."""
    on_copy: Any = AS_REQUESTED
    """Its value in a rehearsal."""
    name: str = ""
    type: type[Any] = NoneType
    default: Any = None
    is_list: bool = False
    is_optional: bool = False

    @property
    def parameter(self) -> str:
        """Name of the option as a parameter of a function."""
        return self.option.split("/")[0].lstrip("-").replace("-", "_")

    @property
    def form_default(self) -> Any:
        """The default as a form has it."""
        if isinstance(self.default, StrEnum):
            return self.form_value(self.default)
        return list(self.default) if self.is_list else self.in_form(self.default)

    def in_form(self, value: Any) -> Any:
        """Return a default or a limit in the unit of the form, without a fraction where it has none."""
        if self.form_unit is UNITLESS or value is None:
            return value
        number = value / self.form_unit.size
        return int(number) if number.is_integer() else number

    @property
    def is_duration(self) -> bool:
        """Whether the option is a duration; `option_unit` is then the second."""
        return self.option_unit is not UNITLESS

    @property
    def option_default(self) -> Any:
        """The default as a command has it; None for an empty list."""
        if self.switch is not None:
            return self.default is self.switch
        if self.is_list:
            return None
        return self._typed(self.default) if self.is_duration and self.default is not None else self.default

    @property
    def option_limits(self) -> str:
        """The limits of a duration as a command shows them: `from 5s to 1h`; empty without limits."""
        words = ("from", self.least), ("to", self.most)
        return " ".join(f"{word} {self._typed(limit)}" for word, limit in words if limit is not None)

    def _typed(self, value: float) -> str:
        return typed_duration(value / self.option_unit.size)

    def from_form(self, value: Any) -> Any:
        """Return the value of the request for a value of the form. Raises UserError for an invalid one."""
        return self._read(value, self.form_unit)

    def from_option(self, value: Any) -> Any:
        """Return the value of the request for a value of the option. Raises UserError for an invalid one."""
        if self.switch is not None:
            return self.switch if value else self.default
        if self.is_duration and value is not None:
            return self._read_duration(value)
        if self.type is int and isinstance(value, str):
            return self._read_number(value)
        return self._read(value, self.option_unit)

    def _read_number(self, text: str) -> int:
        found = int(text) if re.fullmatch(r"-?\d{1,9}", text) else None
        least, most = self.least or 0, self.most
        if found is None or found < least or (most is not None and found > most):
            limit = "" if most is None else f" to {most}"
            remedy = f"It must be a whole number from {least}{limit}, or none."
            raise UserError(f"{self.option} cannot be '{text}'.", remedy=remedy)
        return found

    def _read_duration(self, text: str) -> Any:
        try:
            found = self.type(parse_duration(text) * self.option_unit.size)
        except UserError as error:
            raise UserError(f"{self.option}: {error.sentence}", remedy=error.remedy) from None
        if not (self.least or 0) <= found <= (found if self.most is None else self.most):
            raise UserError(f"{self.option} is {text}.", remedy=f"Set it {self.option_limits}.")
        return found

    def form_value(self, value: StrEnum) -> str:
        """Return a value of several as the forms spell it."""
        return value.value.replace("-", "_")

    def _read(self, value: Any, unit: FieldUnit) -> Any:
        if self.is_list:
            return tuple(one for one in value or () if one != "")  # an empty text: none
        if value is None or value == "":
            return None if self.is_optional else self.default
        if self.type is Release:
            return Release.parse(str(value))
        if issubclass(self.type, StrEnum):
            found = next((one for one in self.type if value in {one.value, self.form_value(one)}), None)
            if found is None:
                known = ", ".join(one.value for one in self.type)
                raise UserError(f"{self.title}: '{value}' is not known.", remedy=f"Choose one of: {known}.")
            return found
        return self.type(value * unit.size) if self.type in {int, float} else self.type(value)


def declared(default: Any, **shown: Any) -> Any:
    """Return a field of a request dataclass. `shown`: of `Field`."""
    return field(default=default, metadata={_DECLARED: Field(**shown)})


def declared_fields(request: type) -> tuple[Field, ...]:
    """Return the declarations of a request class, in their order. Fields without a declaration are internal."""
    types = get_type_hints(request)
    return tuple(
        _resolved(one.metadata[_DECLARED], one.name, types[one.name], one.default)
        for one in fields(request)
        if _DECLARED in one.metadata
    )


def _resolved(shown: Field, name: str, hint: Any, default: Any) -> Field:
    parts = tuple(part for part in get_args(hint) if part not in {NoneType, Ellipsis})
    return replace(
        shown,
        name=name,
        form=name if shown.form is BY_NAME else shown.form,
        option=f"--{name.replace('_', '-')}" if shown.option is BY_NAME else shown.option,
        type=parts[0] if parts else hint,
        default=default,
        is_list=get_origin(hint) is tuple,
        is_optional=NoneType in get_args(hint),
    )


def fields_of(kinds: frozenset[RunOf], request: type, *, plans_only: bool = False) -> tuple[Field, ...]:
    """Return the fields that one of the kinds of runs has. `plans_only`: those of a run that is always a dry run."""
    return tuple(one for one in declared_fields(request) if one.of & kinds and (one.in_plan or not plans_only))
