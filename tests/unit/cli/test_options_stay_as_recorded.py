"""Every command and its options, as recorded in golden/: scripts are written against them. Not the wording."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_origin

import typer

from kafka_rollout.cli.app import app
from tests.golden import assert_same_as_recorded

GOLDEN = Path(__file__).parent / "golden"


def test_commands_and_their_options_stay_as_recorded() -> None:
    assert_same_as_recorded(GOLDEN / "commands.txt", list(_lines(typer.main.get_command(app), "kafka-rollout")))


def _lines(command: Any, name: str) -> Iterator[str]:
    yield name
    for found in sorted(command.params, key=lambda param: str(param.name)):
        kind = get_origin(found.type_descriptor.annotation) or found.type_descriptor.annotation
        allowed = "|".join(str(member.value) for member in kind) if issubclass(kind, Enum) else kind.__name__
        bounds = "" if found.min is found.max is None else f" from {found.min} to {found.max}"
        default = found.default.value if isinstance(found.default, Enum) else found.default
        needed = "required" if found.required else f"default {default}"
        many = " multiple" if found.multiple else ""
        yield f"    {'/'.join((*found.opts, *found.secondary_opts))} {allowed}{bounds}{many} {needed}"
    for sub, below in sorted(getattr(command, "commands", {}).items()):
        yield from _lines(below, f"{name} {sub}")
