"""Common parts of the HTML pages: the environment of the templates, which escapes all values, and the formats."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kafka_rollout.base.durations import seconds_in_words
from kafka_rollout.base.outside_text import REMEDY_LIMIT, escape_invisible
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import size


def page_environment(settings: Settings) -> Environment:
    """Return the environment of include/templates. It escapes each value as one visible line."""
    return _environment(settings.include / "templates")


@cache  # it keeps the compiled templates, and a run writes its report several times
def _environment(templates: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show,
    )
    environment.filters |= {
        "day": day,
        "seconds": seconds_in_words,
        "size": size,
        "number": lambda number: f"{number:,}",
    }
    return environment


def _show(value: object) -> object:
    """Escape text, which can contain names from outside, but not the markup of a macro."""
    return (
        escape_invisible(value, limit=REMEDY_LIMIT)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def day(at: float | None) -> str:
    return "–" if at is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
