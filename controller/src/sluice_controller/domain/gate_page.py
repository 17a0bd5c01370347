# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a device's gate (docs/specs/gate-page.md), as the controller makes it. Pure."""

from __future__ import annotations

import hashlib
import re
import struct

from .group_page import NAME_BYTES, blank_page

MAGIC = b"SLUICEGT"
_FLAGS, _FLAGS_OFFSET = struct.Struct("=Q"), 96
_RUNS = 1
DIGEST_CHARS = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


def page_name(device: str) -> str:
    """For a file and a QEMU object.

    Of a name that cannot be one as it is, as `filesystem 0:46` or that of many devices, the end
    is a digest of the whole: another device may be called filesystem-0-46.
    """
    name = _UNSAFE.sub("-", device)
    if name == device and len(name) < NAME_BYTES:
        return name
    digest = hashlib.sha256(device.encode()).hexdigest()[:DIGEST_CHARS]
    return f"{name[: NAME_BYTES - 2 - DIGEST_CHARS]}-{digest}"


def new_page(name: str, now_ns: int, has_runs: bool) -> bytes:
    """Without members, and with the first window. `has_runs`: one reader at a time."""
    page = blank_page(MAGIC, name, now_ns)
    _FLAGS.pack_into(page, _FLAGS_OFFSET, _RUNS if has_runs else 0)
    return bytes(page)


def has_runs(page: bytes) -> bool:
    return bool(_FLAGS.unpack_from(page, _FLAGS_OFFSET)[0] & _RUNS)
