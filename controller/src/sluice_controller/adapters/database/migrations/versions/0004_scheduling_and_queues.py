# SPDX-License-Identifier: GPL-2.0-or-later
"""scheduling and queues

What a class has that was made before: a weight of 100, and nothing else.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Columns are added in place: the tables are referred to by others.
    usual_weight = sa.Column("weight", sa.Integer(), nullable=False, server_default="100")
    op.add_column("classes", usual_weight)
    managed = sa.Column("unmanaged", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("classes", managed)
    for name in ("scheduling", "queues"):
        empty = sa.Column(name, sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
        op.add_column("grants", empty)


def downgrade() -> None:
    for name in ("queues", "scheduling"):
        op.drop_column("grants", name)
    for name in ("unmanaged", "weight"):
        op.drop_column("classes", name)
