"""What a run is called: its number, from 1 in each cluster. Its id is for Airflow and for programs."""

from __future__ import annotations

from sqlalchemy import Connection, select

from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.tables import runs

_DIGITS = 9  # of a number that the column can have at most


def name_run(connection: Connection, cluster: str, run_id: str) -> str:
    """Return the number of a run, to follow the word *run*; of a run without a row in this database its id."""
    return str(find_number(connection, cluster, run_id) or run_id)


def find_number(connection: Connection, cluster: str, run_id: str) -> int | None:
    """Return the number of a run; None for one without a row in this database. It creates none."""
    query = select(runs.c.number).where(runs.c.cluster == cluster, runs.c.run_id == run_id)
    return connection.execute(query).scalar_one_or_none()


def find_run_id(database: Database, cluster: str, name: str) -> str | None:
    """Return the id of a run that has events, by its number or its id; None if there is none.

    Digits are a number: a DAG run with such an id has a number too.
    """
    is_number = name.isascii() and name.isdecimal()
    if is_number and len(name) > _DIGITS:
        return None
    this = runs.c.number == int(name) if is_number else runs.c.run_id == name
    query = select(runs.c.run_id).where(runs.c.cluster == cluster, this, runs.c.event_count > 0)
    return next((row.run_id for row in database.read(query)), None)
