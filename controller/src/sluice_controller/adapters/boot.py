# SPDX-License-Identifier: GPL-2.0-or-later
"""Which boot of the host this is."""

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return BOOT_ID.read_text().strip()
