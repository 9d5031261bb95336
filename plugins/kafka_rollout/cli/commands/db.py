"""The database of run histories, locks and scans."""

import typer

from kafka_rollout.cli.show import say

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command("upgrade")
def upgrade() -> None:
    """Create or upgrade the tables. PostgreSQL needs this once per version; SQLite is upgraded automatically."""
    from kafka_rollout.run.store.opening import database_of

    database = database_of()
    database.upgrade()
    say(f"{database.name} has the tables of this version.")


@app.command("check")
def check() -> None:
    """Check that the database can be reached and has the tables of this version."""
    from kafka_rollout.run.store.opening import database_of

    database = database_of()
    database.check()
    say(f"{database.name} has the tables of this version.")
