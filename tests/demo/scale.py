# SPDX-License-Identifier: GPL-2.0-or-later
"""How large the demo is on this machine. Pure: costs in, sizes and their reason out.

Disk and link are to be short, and processors are not, or the demo would show something
that Sluice does not claim to mend. So all loads together may take ``BUSY`` of the
processors. The stream has its part first; what is left is halved between what the disk
gives to readers and what the link carries for the web server, and what one of them cannot
use is the other's. Neither may ask more of its guest than ``GUEST_BUSY`` of the one
processor that an emulated guest has.

At the top of each range are the papers' sizes (SCS, section 5.5): a stream of about
1 MB/s, a disk that gives twelve readers 45 MB/s, a link of 1 Gbit/s.
"""

from dataclasses import dataclass, replace

BUSY = 0.70
# Of the time of the processor that its guest has.
GUEST_BUSY = 0.60
# What connections cost that are refused by a link that is full, of those that are served.
CROWD = 1.25
# httperf asks for its next event without sleeping; of what serving costs the guest and the host.
POLLING = 0.25
LEAST_POLLING, MOST_POLLING = 0.04, 0.30

FILMS_MBIT = (7.0, 3.0, 1.5)
# A stream that takes more leaves no room for the load that it is to survive.
STREAM_SHARE = 0.45
READERS = 12
DISK_MOST_BPS = 50_000_000
LINK_MBIT_MOST = 1000
# Under these a disk and a link are not worth the name beside the film.
DISK_LEAST_FILMS = 25
LINK_LEAST_FILMS = 8

# Readers of a volume of large files ask for 3 MiB, which a drive of the papers' reads in
# 63 ms, while the 7 Mbit/s film waits for 128 KiB each 150 ms. That proportion is kept.
READ_AHEAD_KIB = 3072
READ_AHEAD_LEAST_KIB = 512
READ_AHEAD_STEP_KIB = 128
# What the readers have asked for must not take longer to come than auto-shaping waits.
QUEUE_MOST_S = 2.5
READERS_LEAST = 6


@dataclass(frozen=True)
class Costs:
    """What was measured. ``*_share`` is processor time per time: 1.0 is one processor.

    ``idle_share`` is all of the demo without load, ``others_share`` other programs.
    ``*_s_per_byte`` is processor time for a byte that a load moves, the guest's own part in
    ``*_guest_s_per_byte``. ``film_share`` is the film of ``film_mbit`` from disk to picture.
    """

    processors: int
    idle_share: float
    others_share: float
    film_mbit: float
    film_share: float
    disk_s_per_byte: float
    disk_guest_s_per_byte: float
    link_s_per_byte: float
    link_guest_s_per_byte: float

    def stream_share(self, film_mbit: float) -> float:
        """Return what a film takes: half of it by its rate, half by being there."""
        return self.film_share * (0.5 + 0.5 * film_mbit / self.film_mbit)


@dataclass(frozen=True)
class Asked:
    """What the user has fixed; None is chosen."""

    film_mbit: float | None = None
    link_mbit: int | None = None
    disk_bytes_per_s: int | None = None
    readers: int | None = None

    def scale(self) -> "Scale | None":
        """Return what was asked for, if nothing is left to choose."""
        if None in (self.film_mbit, self.link_mbit, self.disk_bytes_per_s, self.readers):
            return None
        found = _with_readers(self.film_mbit, self.link_mbit, self.disk_bytes_per_s, self.readers)
        return replace(found, polling_share=MOST_POLLING, why="as was asked for")


@dataclass(frozen=True)
class Scale:
    """Sizes of the demo. ``expected_share`` is what all of it should take of all processors."""

    film_mbit: float
    link_mbit: int
    disk_bytes_per_s: int
    readers: int
    read_ahead_kib: int
    polling_share: float
    expected_share: float
    why: str

    @property
    def words(self) -> str:
        """The sizes and their reason, in a line."""
        return (
            f"film {self.film_mbit:g} Mbit/s, link {self.link_mbit} Mbit/s, disk "
            f"{self.disk_bytes_per_s / 1e6:g} MB/s, {self.readers} readers: {self.why}"
        )

    @property
    def film_bytes_per_s(self) -> float:
        return self.film_mbit * 125_000

    @property
    def link_bytes_per_s(self) -> int:
        return self.link_mbit * 125_000


def choose(costs: Costs, asked: Asked) -> Scale:
    """Return the largest demo that leaves the processors unhurried."""
    budget = BUSY * costs.processors - costs.idle_share
    film_mbit = asked.film_mbit or _film(costs, budget)
    film_bps = film_mbit * 125_000
    left = max(0.0, budget - costs.stream_share(film_mbit))
    link_cost = costs.link_s_per_byte * CROWD * (1 + POLLING)
    disk_most = min(DISK_MOST_BPS, GUEST_BUSY / costs.disk_guest_s_per_byte)
    link_most = min(LINK_MBIT_MOST * 125_000, GUEST_BUSY / (costs.link_guest_s_per_byte * CROWD))
    disk_bps = min(disk_most, left / 2 / costs.disk_s_per_byte)
    link_bps = min(link_most, (left - disk_bps * costs.disk_s_per_byte) / link_cost)
    disk_bps = min(disk_most, (left - link_bps * link_cost) / costs.disk_s_per_byte)
    disk_bps = _clear(max(disk_bps, DISK_LEAST_FILMS * film_bps))
    link_mbit = _clear(max(link_bps, LINK_LEAST_FILMS * film_bps) / 125_000)
    scale = _with_readers(
        film_mbit,
        asked.link_mbit or link_mbit,
        min(DISK_MOST_BPS, asked.disk_bytes_per_s or disk_bps),
        asked.readers,
    )
    return _with_words(scale, costs)


def smaller(scale: Scale, costs: Costs, asked: Asked) -> Scale | None:
    """Return a demo of about half the size; None if this is the smallest there is."""
    films = [film for film in FILMS_MBIT if film < scale.film_mbit]
    film_mbit = asked.film_mbit or (films[0] if films else scale.film_mbit)
    film_bps = film_mbit * 125_000
    disk_bps = _clear(max(scale.disk_bytes_per_s / 2, DISK_LEAST_FILMS * film_bps))
    link_mbit = _clear(max(scale.link_mbit / 2, LINK_LEAST_FILMS * film_mbit))
    less = _with_readers(
        film_mbit,
        asked.link_mbit or min(scale.link_mbit, link_mbit),
        asked.disk_bytes_per_s or min(scale.disk_bytes_per_s, disk_bps),
        asked.readers,
    )
    sizes = ("film_mbit", "link_mbit", "disk_bytes_per_s")
    if all(getattr(less, name) == getattr(scale, name) for name in sizes):
        return None
    return _with_words(less, costs)


def _film(costs: Costs, budget: float) -> float:
    for film_mbit in FILMS_MBIT:
        if costs.stream_share(film_mbit) <= STREAM_SHARE * budget:
            return film_mbit
    return FILMS_MBIT[-1]


def _with_readers(film_mbit: float, link_mbit: int, disk_bps: int, readers: int | None) -> Scale:
    ahead = READ_AHEAD_KIB * (disk_bps / DISK_MOST_BPS) * (FILMS_MBIT[0] / film_mbit)
    ahead_kib = round(ahead / READ_AHEAD_STEP_KIB) * READ_AHEAD_STEP_KIB
    ahead_kib = min(READ_AHEAD_KIB, max(READ_AHEAD_LEAST_KIB, ahead_kib))
    fit = int(QUEUE_MOST_S * disk_bps / (ahead_kib * 1024))
    count = readers or min(READERS, max(READERS_LEAST, fit))
    return Scale(film_mbit, link_mbit, disk_bps, count, ahead_kib, 0.0, 0.0, "")


def _with_words(scale: Scale, costs: Costs) -> Scale:
    serving = scale.link_bytes_per_s * costs.link_s_per_byte * CROWD
    polling = min(MOST_POLLING, max(LEAST_POLLING, POLLING * serving))
    parts = {
        "idle": costs.idle_share,
        "the stream": costs.stream_share(scale.film_mbit),
        "readers": scale.disk_bytes_per_s * costs.disk_s_per_byte,
        "web": serving + polling,
    }
    shares = ", ".join(f"{name} {part / costs.processors:.0%}" for name, part in parts.items())
    expected = sum(parts.values()) / costs.processors
    count = costs.processors
    words = (
        f"of {count} processor{'s' if count > 1 else ''} {expected:.0%} should be busy "
        f"({shares}), {BUSY:.0%} may be"
    )
    if costs.others_share >= 0.05:
        words += f"; other programs take {costs.others_share / count:.0%} as well"
    return replace(scale, polling_share=polling, expected_share=expected, why=words)


def _clear(value: float) -> int:
    """Round down to two digits: 23,456,789 becomes 23,000,000."""
    unit = 10 ** max(0, len(str(int(value))) - 2)
    return max(1, int(value / unit) * unit)
