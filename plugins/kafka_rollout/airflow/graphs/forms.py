"""The trigger forms: the fields of a kind of run, from their declarations in `planning/request.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.fields import Field, fields_of
from kafka_rollout.planning.request import Request
from kafka_rollout.releases.facts import Release

_ALWAYS_DRY = "The hosts of this cluster cannot be reached, so each run ends with the plan."
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def form_of(
    kind: RunOf,
    cluster: ClusterSpec,
    releases: Sequence[str],
    seen: str,
    *,
    plans_only: bool = False,
    request: type[Request] = Request,
) -> dict[str, Param]:
    """Return the form of a kind of run. `releases`: of the catalogue, the newest last. `plans_only`: of a dry run.

    `seen`: `last_seen_text`, which the first field shows.
    """
    shown = fields_of(frozenset({kind}), request, plans_only=plans_only)
    form = {one.form: _param(one, cluster, releases) for one in shown if one.form}
    first = next(iter(form.values()))
    first.description = f"{seen} {first.description}"
    if plans_only:
        form["dry_run"] = Param(True, type="boolean", const=True, title="Dry run", description=_ALWAYS_DRY)
        return form
    return form


def _param(field: Field, cluster: ClusterSpec, releases: Sequence[str]) -> Param:
    unit = field.form_unit
    title = f"{field.title} ({unit.name})" if unit.name else field.title
    schema = _schema(field, cluster, releases) | ({"section": field.section} if field.section else {})
    return Param(**schema, title=title, description=field.text)


def _schema(field: Field, cluster: ClusterSpec, releases: Sequence[str]) -> dict[str, Any]:
    """Return default and limits of a field, as JSON Schema."""
    if field.labels:
        shown = field.labels if field.labels_of is None else field.labels_of(cluster)
        labels = {field.form_value(value): text for value, text in shown.items()}
        default = next(iter(labels)) if field.default is None else field.form_default
        return {"default": default, "type": "string", "enum": list(labels), "values_display": labels}
    if field.type is Release and field.required:
        return {"default": None, "type": "string", "enum": list(releases) or None}
    if field.type is Release:
        return {"default": None, "type": ["null", "string"], "enum": [None, *releases]}
    if field.is_list:
        return {
            "default": field.form_default,
            "type": "array",
            "items": {"type": "string", "pattern": field.pattern},
        }
    json_type = _JSON_TYPES[field.type]
    can_be_empty = field.is_optional or (field.type is str and not field.default)  # Airflow requires other texts
    limits = {"minimum": field.least, "maximum": field.most}
    return {
        "default": field.form_default,
        "type": ["null", json_type] if can_be_empty else json_type,
        **{name: field.in_form(limit) for name, limit in limits.items() if limit is not None},
    }
