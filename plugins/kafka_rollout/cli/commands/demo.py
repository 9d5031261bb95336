"""Starts the demo, which is in `tools/demo` of a source checkout and not in the wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from kafka_rollout.base.errors import UserError

_CHECKOUT = Path(__file__).resolve().parents[4]


def demo(context: typer.Context) -> None:
    """Start a real cluster, test traffic and Airflow on this machine. Upgrade or downgrade the cluster through the DAG.

    Needs a source checkout. Options: `demo --help`.
    """
    raise typer.Exit(import_demo("run").main(context.args))


def is_checkout() -> bool:
    """Return whether this is a source checkout, which has the demo."""
    return (_CHECKOUT / "tools" / "demo").is_dir()


def import_demo(module: str) -> Any:
    """Import a module of `tools.demo`. Raises UserError for an installed wheel."""
    if not is_checkout():
        raise UserError(
            "The demo is part of the source checkout of kafka-rollout, not of the installed package.",
            remedy="Clone the repository, then run `make demo` in it.",
        )
    sys.path.insert(0, str(_CHECKOUT))
    return import_module(f"tools.demo.{module}")
