"""The database of run histories, locks and scans."""

import typer

from kafka_rollout.cli.show import say
from kafka_rollout.run.store import opening as records

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command("upgrade")
def upgrade() -> None:
    """Create or upgrade the tables. PostgreSQL needs this once per version; SQLite is upgraded automatically."""
    say(f"{records.upgrade_database()} has the tables of this version.")


@app.command("check")
def check() -> None:
    """Check that the database can be reached and has the tables of this version."""
    say(f"{records.check_database()} has the tables of this version.")
