"""Texts of notifications, from templates that an operator writes into a Variable of Airflow.

Users who may edit Variables of Airflow may not read its Connections. So a template sees nothing but `alert`: not the
context of a task, in which Airflow has every Connection and Variable. A text is rendered once: the names in it are
chosen by clients of Kafka, and can look like a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MOST = 100_000  # characters of a text


def render_alert(template: Any, alert: Mapping[str, Any]) -> Any:
    """Render every text in `template`, a value of JSON, with `alert`. Raises ValueError for a text that cannot be."""
    sandbox = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    return _render(sandbox, template, alert)


def _render(sandbox: ImmutableSandboxedEnvironment, template: Any, alert: Mapping[str, Any]) -> Any:
    match template:
        case str():
            try:
                text = "".join(_limited(sandbox.from_string(template).generate(alert=alert)))
            except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
                raise ValueError(f"the template {template[:100]!r} cannot be rendered: {error}") from None
            return text
        case dict():
            return {key: _render(sandbox, value, alert) for key, value in template.items()}
        case list() | tuple():
            return [_render(sandbox, value, alert) for value in template]
        case _:
            return template


def _limited(parts: Any) -> Any:
    length = 0
    for part in parts:
        length += len(part)
        if length > _MOST:
            raise ValueError(f"a text is longer than {_MOST:,} characters")
        yield part
