"""What the start of `kafka-rollout` costs: the help of all commands imports none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import typer

from kafka_rollout.cli.app import COMMANDS, app, run_main
from tests.architecture.rooms import OUTSIDE, modules_below

_OURS = {
    *("kafka_rollout.cli", "kafka_rollout.cli.app"),
    *("kafka_rollout.base", "kafka_rollout.base.errors", "kafka_rollout.base.outside_text"),
    *("kafka_rollout.base.system", "kafka_rollout.base.system.settings"),
    *("kafka_rollout.model", "kafka_rollout.model.run_of"),
}
_NAMES = "print(*sys.modules, sep='\\n')"
_LISTING = f"import sys; from kafka_rollout.cli.app import run_main; run_main({{words!r}}); {_NAMES}"


def loaded_by(*words: str) -> set[str]:
    """The modules that a call of the command line loads."""
    command = [sys.executable, "-c", _LISTING.format(words=words)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(told.split())


def test_the_help_of_all_commands_loads_none_of_them() -> None:
    loaded = loaded_by("--help")
    ours = {name for name in loaded if name.startswith("kafka_rollout.")}
    assert ours == _OURS
    heavy = {"airflow", "pydantic", "kafka", "confluent_kafka", "sqlalchemy", "yaml", "httpx", "psutil", "pyspark"}
    assert loaded & heavy == set()


def test_the_help_of_one_command_loads_its_own_module_alone() -> None:
    commands = {f"kafka_rollout.cli.commands.{where.split('.')[0]}" for where in COMMANDS.values()}
    assert loaded_by("unlock", "--help") & commands == {"kafka_rollout.cli.commands.unlock"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_the_first_paragraph_of_its_own_help(name: str) -> None:
    group: Any = typer.main.get_command(app)
    shown = group.get_command(None, name).help
    assert shown
    assert shown == " ".join(group.commands[name].help.split("\n\n")[0].split())


def test_the_modules_of_all_commands_load_nothing_that_touches_the_outside_but_inventory_and_catalogue() -> None:
    """The help of a command, and the completion of its options, import its module."""
    modules = sorted({f"kafka_rollout.cli.commands.{where.split('.')[0]}" for where in COMMANDS.values()})
    program = f"import sys, importlib; [importlib.import_module(name) for name in {modules}]; {_NAMES}"
    command = [sys.executable, "-c", program]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "kafka_rollout.cli.commands.rehearse" in loaded
    folders = modules_below(folder for folder in OUTSIDE if folder != "base/system")
    needed = ("kafka_rollout.clusters.", "kafka_rollout.nodes.metric_names", "kafka_rollout.releases.documents.")
    assert not {name for name in loaded if name.startswith(folders) and not name.startswith(needed)}
    assert loaded & {"airflow", "kafka", "confluent_kafka", "sqlalchemy", "httpx", "pyspark", "paramiko"} == set()


def test_the_version_and_the_short_name_of_the_help_work_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["--version"]) == 0
    assert capsys.readouterr().out == f"kafka-rollout {version('kafka-rollout')}\n"
    for words in (["-h"], ["upgrade", "-h"], ["features", "set", "-h"]):
        assert run_main(words) == 0
        assert "Usage: kafka-rollout" in capsys.readouterr().out


COMMAND = [sys.executable, "-c", "from kafka_rollout.cli.app import main; main()"]


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    return subprocess.run([*COMMAND, *words], env={**known, **environment}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kafka-rollout up", {"upgrade"}),
        ("kafka-rollout features ", {"describe", "set"}),
        ("kafka-rollout upgrade --pace", {"--pace"}),
        ("kafka-rollout upgrade --finalize ", {"later", "after-approval"}),
        ("kafka-rollout upgrade --cluster ", {"local"}),
        ("kafka-rollout rol", {"rollback"}),
    ],
)
def test_a_shell_completes_commands_options_and_clusters(typed: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = call(_KAFKA_ROLLOUT_COMPLETE="complete_bash", **words)
    assert set(done.stdout.split()) == offered


def test_no_color_is_without_colours() -> None:
    words = ("verify", "--cluster", "nope")
    assert "\x1b[31m" in call(*words, FORCE_COLOR="1").stderr
    assert "\x1b[" not in call(*words, FORCE_COLOR="1", NO_COLOR="1").stderr
