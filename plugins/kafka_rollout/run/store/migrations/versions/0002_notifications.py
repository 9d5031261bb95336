"""Table of sent notifications."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notifications",
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("notification", sa.String(64), nullable=False),
        sa.Column("channel", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "notification", "channel"),
    )
    op.create_index("notifications_changed_at", "notifications", ["changed_at"], unique=False)
