# SPDX-License-Identifier: GPL-2.0-or-later
"""groups"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "groups",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("resource", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("rate", sa.BigInteger(), nullable=False),
        sa.Column("burst", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "group_members",
        sa.Column("group_name", sa.String(), nullable=False),
        sa.Column("domain_id", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"]),
        sa.ForeignKeyConstraint(["group_name"], ["groups.name"]),
        sa.PrimaryKeyConstraint("group_name", "domain_id"),
    )


def downgrade() -> None:
    op.drop_table("group_members")
    op.drop_table("groups")
