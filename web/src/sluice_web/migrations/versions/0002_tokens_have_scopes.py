# SPDX-License-Identifier: GPL-2.0-or-later
"""tokens have a scope and may expire; those of before keep all but what is an admin's"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    scope = sa.Column("scope", sa.String(), nullable=False, server_default="operator")
    with op.batch_alter_table("tokens") as table:
        table.add_column(scope)
        table.add_column(sa.Column("stream", sa.String(), nullable=True))
        table.add_column(sa.Column("expires_at", sa.Float(), nullable=True))
    # Only a token's owner's role had counted.
    op.execute(
        "UPDATE tokens SET scope = 'viewer' WHERE user_name IN"
        " (SELECT name FROM users WHERE role = 'viewer')"
    )


def downgrade() -> None:
    with op.batch_alter_table("tokens") as table:
        for name in ("scope", "stream", "expires_at"):
            table.drop_column(name)
