# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared by the blueprints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import current_app

from ...domain.errors import BadValue

if TYPE_CHECKING:
    from ..wiring import Services

NAME = "<string:domain>"
MOST_ROWS = 1000


def services() -> Services:
    return current_app.extensions["sluice"]


def row_count(raw: int) -> int:
    if not 1 <= raw <= MOST_ROWS:
        raise BadValue(
            "limit", raw, "is out of range", f"give a number of rows from 1 to {MOST_ROWS}"
        )
    return raw
