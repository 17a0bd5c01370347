# SPDX-License-Identifier: GPL-2.0-or-later
"""nightly results"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "nightly",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("page", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id"),
    )
    with op.batch_alter_table("nightly", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_nightly_started_at"), ["started_at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("nightly", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_nightly_started_at"))

    op.drop_table("nightly")
