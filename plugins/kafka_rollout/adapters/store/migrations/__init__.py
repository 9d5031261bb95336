"""Migrations of the database, run by Alembic on a connection of ours."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest revision, in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
