# SPDX-License-Identifier: GPL-2.0-or-later
"""What was measured and decided knows for how long sluiced had run when it was written

A row's age by the host's clock is as wrong as the clock was. Rows of before count as
written now.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("history", "stream_reports", "decisions")


def upgrade() -> None:
    # Nothing is found by its time alone any more.
    op.drop_index("ix_history_at", "history")
    for table in TABLES:
        op.add_column(
            table, sa.Column("ran_s", sa.Double(), nullable=False, server_default=sa.text("0"))
        )
        op.create_index(f"ix_{table}_ran_s", table, ["ran_s"])


def downgrade() -> None:
    for table in TABLES:
        op.drop_index(f"ix_{table}_ran_s", table)
        with op.batch_alter_table(table) as batch_op:
            batch_op.drop_column("ran_s")
    op.create_index("ix_history_at", "history", ["at"])
