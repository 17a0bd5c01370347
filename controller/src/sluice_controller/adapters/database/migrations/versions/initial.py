# SPDX-License-Identifier: GPL-2.0-or-later
"""the tables"""

import sqlalchemy as sa
from alembic import op

revision = "initial"
down_revision = None
branch_labels = None
depends_on = None

# SQLite's INTEGER has 64 bits always, and gives out row numbers under no other name.
LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", LONG, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("thing", sa.String(), nullable=False),
        sa.Column("change", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "classes",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("is_stream", sa.Boolean(), nullable=False),
        sa.Column("colour_index", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("unmanaged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "decisions",
        sa.Column("id", LONG, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("entry", sa.JSON(), nullable=False),
        sa.Column("ran_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_decisions_at", "decisions", ["at"])
    op.create_index("ix_decisions_ran_s", "decisions", ["ran_s"])
    op.create_table(
        "domains",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("ceiling", sa.JSON(), nullable=False),
        sa.Column("stored_xml", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.UniqueConstraint("uuid"),
    )
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
        "history",
        sa.Column("id", LONG, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("ran_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("history_domain_at", "history", ["domain", "at"])
    op.create_index("ix_history_ran_s", "history", ["ran_s"])
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
    op.create_index("ix_nightly_started_at", "nightly", ["started_at"])
    op.create_table(
        "stream_reports",
        sa.Column("id", LONG, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("ran_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_stream_reports_ran_s", "stream_reports", ["ran_s"])
    op.create_index("stream_reports_stream_at", "stream_reports", ["stream", "at"])
    op.create_table(
        "values",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "assignments",
        sa.Column("domain_id", sa.Integer(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("start_time_ticks", LONG, nullable=False),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["class_name"], ["classes.name"]),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"]),
        sa.PrimaryKeyConstraint("domain_id", "pid"),
    )
    op.create_table(
        "grants",
        sa.Column("domain_id", sa.Integer(), nullable=False),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("tag", sa.Integer(), nullable=False),
        sa.Column("dscp", sa.JSON(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("scheduling", sa.JSON(), nullable=False),
        sa.Column("queues", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["class_name"], ["classes.name"]),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"]),
        sa.PrimaryKeyConstraint("domain_id", "class_name"),
        sa.UniqueConstraint("domain_id", "tag"),
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
    op.create_table(
        "rules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("domain_id", sa.Integer(), nullable=True),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("match", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["class_name"], ["classes.name"]),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "streams",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("domain_id", sa.Integer(), nullable=False),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("nominal_bytes_per_second", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["class_name"], ["classes.name"]),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"]),
        sa.PrimaryKeyConstraint("name"),
    )
