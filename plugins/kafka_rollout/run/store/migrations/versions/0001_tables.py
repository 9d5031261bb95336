"""All tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(255)


def _create(table: str, /, *constraints: Any, key: tuple[str, ...], **columns: Any) -> None:
    """Create a table with these columns, by name → type. `run` is a reference to the table `runs`."""
    made = [sa.Column(name, kind, nullable=False) for name, kind in columns.items()]
    if "run" in columns:
        constraints += (sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),)
    op.create_table(table, *made, *constraints, sa.PrimaryKeyConstraint(*key))


def upgrade() -> None:
    _create("alerts", key=("cluster", "run_id"), cluster=_NAME, run_id=_NAME, at=sa.Float, body=sa.Text)
    _create(
        "background",
        key=("cluster", "run_id", "kind"),
        cluster=_NAME,
        run_id=_NAME,
        kind=sa.String(16),
        instance=sa.String(64),
        wanted=sa.String(16),
        state=sa.String(16),
        host=_NAME,
        pid=sa.Integer,
        folder=sa.Text,
        reported_at=sa.Float,
        settings=sa.Text,
        status=sa.Text,
        result=sa.Text,
    )
    _create("lease_log", key=("id",), id=_ID, cluster=_NAME, at=sa.Float, what=sa.String(32), body=sa.Text)
    op.create_index("lease_log_cluster", "lease_log", ["cluster"], unique=False)
    _create(
        "leases",
        key=("cluster",),
        cluster=_NAME,
        cluster_id=_NAME,
        holder=_NAME,
        purpose=sa.Text,
        acquired_at=sa.Float,
        expires_at=sa.Float,
        token=sa.BigInteger,
        lease_token=sa.BigInteger,
    )
    _create(
        "runs",
        sa.UniqueConstraint("cluster", "run_id", name="runs_cluster_run_id"),
        sa.UniqueConstraint("cluster", "number", name="runs_cluster_number"),
        key=("id",),
        id=_ID,
        cluster=_NAME,
        run_id=_NAME,
        number=sa.Integer,
        cluster_id=_NAME,
        created_at=sa.Float,
        updated_at=sa.Float,
        event_count=sa.Integer,
        version=sa.Integer,
    )
    _create(
        "scans",
        key=("cluster", "name"),
        cluster=_NAME,
        name=sa.String(32),
        folder=sa.String(64),
        run_id=_NAME,
        kept_at=sa.Float,
        summary=sa.Text,
    )
    _create(
        "artifacts",
        key=("run", "name"),
        run=_ID,
        name=_NAME,
        size_bytes=sa.BigInteger,
        written_at=sa.Float,
        sha256=sa.String(64),
        next_sha256=sa.String(64),
    )
    step = {"release_step": _NAME, "node_id": sa.Integer}
    _create("before_stops", key=("run", *step), run=_ID, **step, body=sa.Text)
    _create("events", key=("run", "number"), run=_ID, number=sa.Integer, kind=_NAME, body=sa.Text)
    op.create_index("events_kind", "events", ["kind", "run"], unique=False)
    _create("fingerprints", key=("run", "node_id"), run=_ID, node_id=sa.Integer, hash=sa.String(64))
    _create("plans", key=("run",), run=_ID, body=sa.Text, sha256=sa.String(64))
    _create(
        "notifications",
        key=("cluster", "notification", "channel"),
        cluster=_NAME,
        notification=sa.String(64),
        channel=_NAME,
        kind=sa.String(32),
        state=sa.String(16),
        attempts=sa.Integer,
        changed_at=sa.Float,
        problem=sa.Text,
    )
    op.create_index("notifications_changed_at", "notifications", ["changed_at"], unique=False)
    checked = {"target": sa.String(32), "at": sa.Float, "body": sa.Text, "page": sa.Text}
    _create("checks", key=("cluster", "run_id"), cluster=_NAME, run_id=_NAME, **checked)
