# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings the database to the newest revision; the daemon does so at each start."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Engine


def alembic_config() -> Config:
    config = Config()
    config.set_main_option(
        "script_location", str(resources.files(__package__).joinpath("migrations"))
    )
    return config


def upgrade(engine: Engine) -> None:
    config = alembic_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
