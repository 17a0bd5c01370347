# SPDX-License-Identifier: GPL-2.0-or-later
"""the tables"""

import sqlalchemy as sa
from alembic import op

revision = "initial"
down_revision = None
branch_labels = None
depends_on = None


def _of_a_user() -> sa.Column:
    return sa.Column(
        "user_name", sa.String(), sa.ForeignKey("users.name", ondelete="CASCADE"), nullable=False
    )


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(), primary_key=True),
        _of_a_user(),
        sa.Column("until", sa.Float(), nullable=False),
    )
    op.create_index("ix_sessions_user_name", "sessions", ["user_name"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), primary_key=True),
        _of_a_user(),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False, unique=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("stream", sa.String()),
        sa.Column("expires_at", sa.Float()),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("thing", sa.String(), nullable=False),
    )
