"""The database of run histories, locks and scans."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson


def db(
    check: Annotated[
        bool, typer.Option("--check", help="Only check that it can be reached and has the tables of this version.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create or upgrade the tables of the database. PostgreSQL needs this once per version.

    SQLite is upgraded automatically.
    """
    from kafka_rollout.run.store.opening import database_of

    database = database_of()
    if check:
        database.check()
    else:
        database.upgrade()
    if as_json:
        show.print_json({"database": database.name, "ok": True})
    else:
        show.say(f"{database.name} has the tables of this version.")
