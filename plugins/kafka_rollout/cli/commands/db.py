"""The database of run histories, locks and scans."""

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command("upgrade")
def upgrade(as_json: AsJson = False) -> None:
    """Create or upgrade the tables. PostgreSQL needs this once per version; SQLite is upgraded automatically."""
    from kafka_rollout.run.store.opening import database_of

    database = database_of()
    database.upgrade()
    _print(database.name, as_json=as_json)


@app.command("check")
def check(as_json: AsJson = False) -> None:
    """Check that the database can be reached and has the tables of this version."""
    from kafka_rollout.run.store.opening import database_of

    database = database_of()
    database.check()
    _print(database.name, as_json=as_json)


def _print(name: str, *, as_json: bool) -> None:
    if as_json:
        show.print_json({"database": name, "ok": True})
    else:
        show.say(f"{name} has the tables of this version.")
