"""The table of `docs/parameters.md`, from the declarations of the fields."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_rollout.model.run_of import RunOf
from kafka_rollout.planning.fields import Field, declared_fields
from kafka_rollout.planning.request import Request

BEGIN, END = "<!-- fields: begin -->", "<!-- fields: end -->"


def table_of(request: type[Request] = Request) -> list[str]:
    head = ["| field of the form | option | runs | default | limits | effect |", "|---|---|---|---|---|---|"]
    return [*head, *(_row(one) for one in declared_fields(request))]


def _row(field: Field) -> str:
    runs = "all" if field.of == frozenset(RunOf) else ", ".join(kind.value for kind in RunOf if kind in field.of)
    options = " ".join(f"`{option}`" for option in field.option.split("/") if option)
    cells = (f"`{field.form}`" if field.form else "", options, runs, _default(field), _limits(field), field.text)
    return f"| {' | '.join(cells)} |"


def _default(field: Field) -> str:
    if field.newest_of:
        return f"the newest in the form of {', '.join(sorted(field.newest_of))}"
    if field.labels:
        return f"`{next(iter(field.labels)) if field.default is None else field.default}`"
    if isinstance(field.default, bool):
        return "yes" if field.default else "no"
    if not field.default:
        return "empty"
    number, unit = field.in_form(field.default), field.form_unit.name or field.option_unit.name
    return f"{number:g} {unit.removesuffix('s') if number == 1 else unit}".strip()


def _limits(field: Field) -> str:
    return ", ".join(_of_limits(field))


def _of_limits(field: Field) -> Iterator[str]:
    if field.labels:
        yield ", ".join(f"`{value}`" for value in field.labels)
    if field.least is not None:
        yield f"at least {field.in_form(field.least):g}"
    if field.most is not None:
        yield f"at most {field.in_form(field.most):g}"
