# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers and times as the page shows them.

Three significant digits at most, always with a unit, and never wider than the
column they stand in. ``static/js/format.js`` says the same in the browser; an
e2e test holds the two together.
"""

from datetime import UTC, datetime

NO_VALUE = "–"


def significant(value: float) -> str:
    """At most three significant digits and three decimals: 123, 12.3, 1.23, 0.012."""
    if value <= 0:
        return "0"
    if value < 0.0005:
        return "<0.001"
    for limit, decimals in ((0.9995, 3), (9.995, 2), (99.95, 1)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"


def _scaled(value: float | None, *units: tuple[str, float]) -> str:
    """In the largest unit that the value reaches as it is rounded; units come largest first."""
    if value is None:
        return NO_VALUE
    unit, factor = next((one for one in units if value >= one[1] * 0.9995), units[-1])
    return f"{significant(value / factor)} {unit}"


def rate(bytes_per_second: float | None) -> str:
    """A rate in MB/s (10^6 bytes), in GB/s from 1000 MB/s on."""
    return _scaled(bytes_per_second, ("GB/s", 1e9), ("MB/s", 1e6))


def link_rate(bytes_per_second: float | None) -> str:
    """A link's rate in bits, as links are sold."""
    bits = None if bytes_per_second is None else bytes_per_second * 8
    return _scaled(bits, ("Gbit/s", 1e9), ("Mbit/s", 1e6))


def size(count_bytes: float | None) -> str:
    """A number of bytes in B, kB, MB or GB."""
    if count_bytes is not None and count_bytes < 999.5:
        return f"{count_bytes:.0f} B"
    return _scaled(count_bytes, ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def milliseconds(value_ms: float | None) -> str:
    """A delay in ms, in s from 1000 ms on."""
    return _scaled(value_ms, ("s", 1e3), ("ms", 1.0))


def age(seconds: float | None) -> str:
    """How long ago: tenths below ten seconds, then the largest whole unit."""
    if seconds is None:
        return NO_VALUE
    seconds = max(seconds, 0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= factor * 2:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:.0f} s"


def iso(at: float | None) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, for ``<time datetime>``."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def clock(at: float | None) -> str:
    """Seconds since the epoch as date and time in UTC; the page shows it in local time."""
    if at is None:
        return NO_VALUE
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
