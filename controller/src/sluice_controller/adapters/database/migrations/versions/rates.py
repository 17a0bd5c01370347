# SPDX-License-Identifier: GPL-2.0-or-later
"""a stream may be declared without its rate"""

import sqlalchemy as sa
from alembic import op

revision = "rates"
down_revision = "cards"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("streams") as streams:
        streams.alter_column("nominal_bytes_per_second", existing_type=sa.Double, nullable=True)
