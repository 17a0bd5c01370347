# SPDX-License-Identifier: GPL-2.0-or-later
"""the tables of the first release

Here is nothing to do: a new database gets the tables of today, and the version of the
newest migration with them (`migrate.py`).
"""

revision = "initial"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
