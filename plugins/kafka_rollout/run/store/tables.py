"""Tables of the database. `REVISION` is the migration that creates them.

Times are epoch seconds of the database's clock. Columns named `body` and `summary` contain JSON as text: the hash of an
event is computed over this text, so the database must not reformat it. No column can be NULL.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = "0001"

metadata = MetaData()

_NAME = String(255)
_HASH = String(64)
_NUMBERED = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in a column of exactly this type


def _table(table: str, /, *constraints: Any, key: Collection[str] = (), **columns: Any) -> Table:
    """Return a table. `columns`: name → type. `key`: columns of the primary key.

    Without a key, the rows are numbered in the column `id`. A key column `run` is the id of a run; if the run is
    removed, its rows are deleted.
    """
    made: list[Column[Any]] = []
    if not key:
        made.append(Column("id", _NUMBERED, primary_key=True, autoincrement=True))
    if "run" in key:
        made.append(Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True))
    made += [Column(name, kind, primary_key=name in key, nullable=False) for name, kind in columns.items()]
    return Table(table, metadata, *made, *constraints)


# `number`: what the run is called, from 1 in each cluster. `cluster_id`: Kafka's, of the plan; empty without one.
# `version` grows with each event, and each change of the plan or of a document.
runs = _table(
    "runs",
    UniqueConstraint("cluster", "run_id", name="runs_cluster_run_id"),
    UniqueConstraint("cluster", "number", name="runs_cluster_number"),
    cluster=_NAME,
    run_id=_NAME,
    number=Integer,
    cluster_id=_NAME,
    created_at=Float,
    updated_at=Float,
    event_count=Integer,
    version=Integer,
)

# `kind`: that in the body, which queries must not search for.
events = _table(
    "events",
    Index("events_kind", "kind", "run"),
    key=("run", "number"),
    number=Integer,
    kind=_NAME,
    body=Text,
)

# `sha256`: of the body.
plans = _table("plans", key=("run",), body=Text, sha256=_HASH)

before_stops = _table(
    "before_stops", key=("run", "release_step", "node_id"), release_step=_NAME, node_id=Integer, body=Text
)

# Hashes of the configurations that the plan's check of the configuration has evaluated.
fingerprints = _table("fingerprints", key=("run", "node_id"), node_id=Integer, hash=_HASH)

# A row is committed after its artifact is written, and removed before its artifact is removed. `sha256`: of the
# artifact. `next_sha256`: of a content whose write began; empty if it has ended.
artifacts = _table(
    "artifacts",
    key=("run", "name"),
    name=_NAME,
    size_bytes=BigInteger,
    written_at=Float,
    sha256=_HASH,
    next_sha256=_HASH,
)

# One row per cluster. It stays when no run holds the lease (`holder` is empty), because `token` must never decrease.
leases = _table(
    "leases",
    key=("cluster",),
    cluster=_NAME,
    cluster_id=_NAME,
    holder=_NAME,
    purpose=Text,
    acquired_at=Float,
    expires_at=Float,
    token=BigInteger,
    lease_token=BigInteger,
)

lease_log = _table(
    "lease_log", Index("lease_log_cluster", "cluster"), cluster=_NAME, at=Float, what=String(32), body=Text
)

# `run_id` is empty for a scan of the command line.
scans = _table(
    "scans",
    key=("cluster", "name"),
    cluster=_NAME,
    name=String(32),
    folder=String(64),
    run_id=_NAME,
    kept_at=Float,
    summary=Text,
)

# Scheduled checks. `body`: the JSON document of the check; `page`: its HTML page.
checks = _table(
    "checks",
    key=("cluster", "run_id"),
    cluster=_NAME,
    run_id=_NAME,
    target=String(32),
    at=Float,
    body=Text,
    page=Text,
)

alerts = _table("alerts", key=("cluster", "run_id"), cluster=_NAME, run_id=_NAME, at=Float, body=Text)

# One row per notification and channel. `notification`: SHA-256 of its key. `state`: sending, sent or failed.
# `changed_at`: of the state. `problem`: why the last attempt failed; never the text of an error of the channel, which
# can have secrets.
notifications = _table(
    "notifications",
    Index("notifications_changed_at", "changed_at"),
    key=("cluster", "notification", "channel"),
    cluster=_NAME,
    notification=_HASH,
    channel=_NAME,
    kind=String(32),
    state=String(16),
    attempts=Integer,
    changed_at=Float,
    problem=Text,
)

# Background processes of a run. `kind`: test traffic or the group monitor. `instance`: the current process. `wanted`:
# the last request of a worker. `state`: the last report of the process.
background = _table(
    "background",
    key=("cluster", "run_id", "kind"),
    cluster=_NAME,
    run_id=_NAME,
    kind=String(16),
    instance=String(64),
    wanted=String(16),
    state=String(16),
    host=_NAME,
    pid=Integer,
    folder=Text,
    reported_at=Float,
    settings=Text,
    status=Text,
    result=Text,
)
