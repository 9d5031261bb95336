"""Tables of the database. `REVISION` is the migration that makes them.

Times are epoch seconds of the database's clock. Columns named `body` and `summary` hold JSON as text: the hash of an
event is computed over that text, so the database must not reformat it.
"""

from __future__ import annotations

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

_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in a column of exactly this type

# `event_count` and `last_hash` are those of the newest event: a removed tail does not match them.
runs = Table(
    "runs",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("cluster", String(255), nullable=False),
    Column("run_id", String(255), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("event_count", Integer, nullable=False),
    Column("last_hash", String(64), nullable=False),
    UniqueConstraint("cluster", "run_id", name="runs_cluster_run_id"),
)

events = Table(
    "events",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

plans = Table(
    "plans",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("body", Text, nullable=False),
)

before_stops = Table(
    "before_stops",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("release_step", String(255), primary_key=True),
    Column("node_id", Integer, primary_key=True),
    Column("body", Text, nullable=False),
)

# Hashes of the configurations that the plan's check of the configuration has evaluated.
fingerprints = Table(
    "fingerprints",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("node_id", Integer, primary_key=True),
    Column("hash", String(64), nullable=False),
)

# A row is committed after its artifact is written, and removed before the artifact is.
artifacts = Table(
    "artifacts",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("written_at", Float, nullable=False),
)

# One row per cluster, kept when nobody holds the lease (`holder` is empty): `token` must never fall.
leases = Table(
    "leases",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("cluster_id", String(255), nullable=False),
    Column("holder", String(255), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("acquired_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("lease_token", BigInteger, nullable=False),
)

lease_log = Table(
    "lease_log",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("cluster", String(255), nullable=False),
    Column("at", Float, nullable=False),
    Column("what", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Index("lease_log_cluster", "cluster"),
)

# `run_id` is empty for a scan that the command line kept.
scans = Table(
    "scans",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("folder", String(64), nullable=False),
    Column("run_id", String(255), nullable=False),
    Column("kept_at", Float, nullable=False),
    Column("summary", Text, nullable=False),
)

alerts = Table(
    "alerts",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("run_id", String(255), primary_key=True),
    Column("at", Float, nullable=False),
    Column("body", Text, nullable=False),
)

# Processes next to a run: `kind` is test traffic or the group monitor. `instance` is the process that the record
# knows; `wanted` is what a worker asked for last, `state` what the process reported last.
background = Table(
    "background",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("run_id", String(255), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("instance", String(64), nullable=False),
    Column("wanted", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("folder", Text, nullable=False),
    Column("reported_at", Float, nullable=False),
    Column("settings", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("result", Text, nullable=False),
)
