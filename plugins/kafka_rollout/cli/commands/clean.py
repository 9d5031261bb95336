"""Removes what killed rehearsals and demos left."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.cli import show

_CHECKOUT = Path(__file__).resolve().parents[4]  # of an installed package: a folder without the demo


def clean(
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Remove only the copies of rehearsals in this folder; default: those in the home, and what demos of "
            "this checkout left."
        ),
    ] = None,
) -> None:
    """Remove the copies of clusters that killed rehearsals left, with their processes. Stop the demos of this checkout.

    It removes only what kafka-rollout made, which a marker in the folder proves, and what no rehearsal uses. An
    installed package has no demo.
    """
    from kafka_rollout.rehearsal.machine.sandbox import rehearsal_folder, remove_leftovers

    found = remove_leftovers(folder or rehearsal_folder(Settings.from_environment()))
    for path in found.removed:
        show.say(f"Removed {path}.")
    for sentence in found.left:
        show.say(sentence)
    show.say(f"Removed {count(len(found.removed), 'copy', 'copies')} of clusters.")
    if folder is None and (_CHECKOUT / "tools" / "demo").is_dir():
        sys.path.insert(0, str(_CHECKOUT))
        stopped = import_module("tools.demo.folder").demo_clean()
        show.say(f"Stopped {stopped} processes of demos." if stopped else "No demo is running.")
