# SPDX-License-Identifier: GPL-2.0-or-later
"""Which held requests a QEMU gave to a migration: its trace says so."""

import re
from collections import Counter

EVENT = "shaper_withdraw"
LINE = re.compile(rf"{EVENT} request \S+ (\S+) tag ")


def withdrawn(trace: str) -> Counter[str]:
    """Count the withdrawn requests in a trace, by resource."""
    return Counter(LINE.findall(trace))
