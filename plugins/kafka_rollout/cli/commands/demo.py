"""Starts the demo, which is in `tools/demo` of a source checkout and not in the wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.cli import show

_CHECKOUT = Path(__file__).resolve().parents[4]


def demo(context: typer.Context) -> None:
    """Start a real cluster, test traffic and Airflow on this machine. Upgrade or downgrade the cluster through the DAG.

    Needs a source checkout. Options: `demo --help`.
    """
    raise typer.Exit(_import_demo("run").main(context.args))


def demo_clean() -> None:
    """Stop all processes that demos of this checkout started."""
    stopped = _import_demo("folder").demo_clean()
    show.say(f"Stopped {stopped} processes of demos." if stopped else "No demo is running.")


def _import_demo(module: str) -> Any:
    """Import a module of `tools.demo`. Raises UserError for an installed wheel."""
    if not (_CHECKOUT / "tools" / "demo").is_dir():
        raise UserError(
            "The demo is part of the source checkout of kafka-rollout, not of the installed package.",
            remedy="Clone the repository, then run `make demo` in it.",
        )
    sys.path.insert(0, str(_CHECKOUT))
    return import_module(f"tools.demo.{module}")
