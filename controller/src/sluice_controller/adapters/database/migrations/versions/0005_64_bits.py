# SPDX-License-Identifier: GPL-2.0-or-later
"""64 bits for numbers of rows that come by the second, and for start times

SQLite's integers have 64 bits already.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBERED = ("audit", "decisions", "history", "stream_reports")
COLUMNS = (*((table, "id") for table in NUMBERED), ("assignments", "start_time_ticks"))


def _change(old: sa.types.TypeEngine, new: sa.types.TypeEngine, sequence: str) -> None:
    dialect = op.get_context().dialect.name
    if dialect == "sqlite":
        return
    for table, column in COLUMNS:
        op.alter_column(table, column, type_=new, existing_type=old, existing_nullable=False)
    if dialect == "postgresql":
        # The next number comes from a sequence, which has a type of its own.
        for table in NUMBERED:
            op.execute(f"ALTER SEQUENCE {table}_id_seq AS {sequence}")


def upgrade() -> None:
    _change(sa.Integer(), sa.BigInteger(), "bigint")


def downgrade() -> None:
    _change(sa.BigInteger(), sa.Integer(), "integer")
