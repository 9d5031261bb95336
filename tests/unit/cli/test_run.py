"""The commands that the command line prints exist."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from kafka_rollout.cli.app import app
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.procedure.kinds import KINDS, begin_words
from tests.unit.builders import R431


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_begins_a_run_has_these_options(kind: RunOf) -> None:
    words = [*begin_words(kind, R431).split(), "--cluster", "fake", "--run", "run-1"]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    assert command.make_context("", words).params["run"] == "run-1"
