# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a device's gate (docs/specs/gate-page.md), as the controller makes it. Pure."""

from __future__ import annotations

import re

from .group_page import NAME_BYTES, blank_page

MAGIC = b"SLUICEGT"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


def page_name(device: str) -> str:
    """For a file and a QEMU object: `filesystem 0:46` is filesystem-0-46."""
    return _UNSAFE.sub("-", device)[: NAME_BYTES - 1]


def new_page(name: str, now_ns: int) -> bytes:
    """Without members, and with the first window."""
    return bytes(blank_page(MAGIC, name, now_ns))
