# SPDX-License-Identifier: GPL-2.0-or-later
"""settings of network cards"""

import sqlalchemy as sa
from alembic import op

revision = "cards"
down_revision = "initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # No domain had any.
    op.add_column("domains", sa.Column("cards", sa.JSON, nullable=False, server_default="{}"))
