"""Tables of runs, events, leases, scans and background processes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "run_id"),
    )
    op.create_table(
        "background",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("instance", sa.String(length=64), nullable=False),
        sa.Column("wanted", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("reported_at", sa.Float(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "run_id", "kind"),
    )
    op.create_table(
        "lease_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("what", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("lease_log_cluster", "lease_log", ["cluster"], unique=False)
    op.create_table(
        "leases",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("cluster_id", sa.String(length=255), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("acquired_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("event_count", sa.Integer(), nullable=False),
        sa.Column("last_hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cluster", "run_id", name="runs_cluster_run_id"),
    )
    op.create_table(
        "scans",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("folder", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kept_at", sa.Float(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name"),
    )
    op.create_table(
        "artifacts",
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("written_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "name"),
    )
    op.create_table(
        "before_stops",
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("release_step", sa.String(length=255), nullable=False),
        sa.Column("node_id", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "release_step", "node_id"),
    )
    op.create_table(
        "events",
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "number"),
    )
    op.create_table(
        "fingerprints",
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "node_id"),
    )
    op.create_table(
        "plans",
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run"),
    )
