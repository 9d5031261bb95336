"""Table of the brokers' turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("node_id", sa.Integer, nullable=False),
        sa.Column("free_at", sa.Float, nullable=False),
        sa.Column("length_s", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node_id"),
    )
