# SPDX-License-Identifier: GPL-2.0-or-later
"""the tables that were made before Alembic; a store may have some of them, or all"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _of_a_user() -> sa.Column:
    return sa.Column(
        "user_name", sa.String(), sa.ForeignKey("users.name", ondelete="CASCADE"), nullable=False
    )


def upgrade() -> None:
    there = sa.inspect(op.get_bind()).get_table_names()
    if "users" not in there:
        op.create_table(
            "users",
            sa.Column("name", sa.String(), nullable=False),
            sa.Column("role", sa.String(), nullable=False),
            sa.Column("password_hash", sa.String(), nullable=False),
            sa.Column("epoch", sa.Integer(), nullable=False),
            sa.Column("created_at", sa.Float(), nullable=False),
            sa.PrimaryKeyConstraint("name"),
        )
    if "sessions" not in there:
        op.create_table(
            "sessions",
            sa.Column("digest", sa.String(), nullable=False),
            _of_a_user(),
            sa.Column("until", sa.Float(), nullable=False),
            sa.PrimaryKeyConstraint("digest"),
        )
        op.create_index("ix_sessions_user_name", "sessions", ["user_name"])
    if "tokens" not in there:
        op.create_table(
            "tokens",
            sa.Column("id", sa.Integer(), nullable=False),
            _of_a_user(),
            sa.Column("label", sa.String(), nullable=False),
            sa.Column("digest", sa.String(), nullable=False),
            sa.Column("created_at", sa.Float(), nullable=False),
            sa.PrimaryKeyConstraint("id"),
            sa.UniqueConstraint("digest"),
        )
    if "events" not in there:
        op.create_table(
            "events",
            sa.Column("id", sa.Integer(), nullable=False),
            sa.Column("at", sa.Float(), nullable=False),
            sa.Column("actor", sa.String(), nullable=False),
            sa.Column("action", sa.String(), nullable=False),
            sa.Column("thing", sa.String(), nullable=False),
            sa.PrimaryKeyConstraint("id"),
        )


def downgrade() -> None:
    for name in ("events", "tokens", "sessions", "users"):
        op.drop_table(name)
