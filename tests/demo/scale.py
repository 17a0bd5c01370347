# SPDX-License-Identifier: GPL-2.0-or-later
"""How large the demo is on this machine. Pure: costs in, sizes and their reason out.

Disk and link are to be short, and processors are not, or the demo would show a shortage that
Sluice does not claim to mend. So everything together may take ``BUSY`` of the processors. The
film is the largest that leaves room for the slowest disk and link. The rest is halved between
the disk's readers and the link's web server, and a part that one of them cannot use is the
other's. Neither may ask more of its guest than ``GUEST_BUSY`` of the one processor of an
emulated guest.

At the top of each range are the papers' sizes (SCS, section 5.5): a stream of about
1 MB/s, a disk that gives twelve readers 45 MB/s, a link of 1 Gbit/s. At the bottom disk and
link still are several times as fast as the film and as auto-shaping's floors of 1 MiB/s.
"""

from dataclasses import dataclass, replace

BUSY = 0.65
# Of the time of the processor that its guest has.
GUEST_BUSY = 0.60
# httperf polls for its next event: this share of the cost of serving for guest and host.
POLLING = 0.25
LEAST_POLLING, MOST_POLLING = 0.04, 0.30

FILMS_MBIT = (7.0, 3.0, 1.5)
READERS = 12
DISK_LEAST_BPS, DISK_MOST_BPS = 16_000_000, 50_000_000
LINK_LEAST_MBIT, LINK_MOST_MBIT = 24, 1000
# httperf asks for half more than the link carries, or, where processors are dear, for a part
# of it beside wgets that take all there is. A crowd of connections that get a packet at a
# time costs several times as much for a byte.
OVERLOAD, OVERLOAD_LEAST = 1.5, 0.4
CROWD = 2.5

# Readers of a volume of large files ask for 3 MiB, which the papers' drive reads in 63 ms; of
# a slower drive they ask for less, so that a player waits as long for one of them to be done.
READ_AHEAD_KIB = 3072
READ_AHEAD_STEP_KIB = 128


@dataclass(frozen=True)
class Costs:
    """The measured costs. ``*_share`` is processor time per time: 1.0 is one processor.

    ``idle_share`` is all of the demo without load, ``others_share`` other programs.
    ``*_s_per_byte`` is processor time for a byte of a load that asks for more than it gets, the
    guest's own part in ``*_guest_s_per_byte``. ``film_share`` is the film of ``film_mbit``,
    from disk to picture.
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
        """Return a film's share: half of it by its rate, half fixed."""
        return self.film_share * (0.5 + 0.5 * film_mbit / self.film_mbit)


@dataclass(frozen=True)
class Asked:
    """Sizes that the user has fixed; the demo chooses for None."""

    film_mbit: float | None = None
    link_mbit: int | None = None
    disk_bytes_per_s: int | None = None
    readers: int | None = None
    overload: float | None = None

    def scale(self) -> "Scale | None":
        """Return the given sizes, if nothing is left to choose."""
        if None in (self.film_mbit, self.link_mbit, self.disk_bytes_per_s, self.readers):
            return None
        found = _sized(self.film_mbit, self.link_mbit, self.disk_bytes_per_s, self)
        return replace(found, polling_share=MOST_POLLING, why="as was asked for")


@dataclass(frozen=True)
class Scale:
    """Sizes of the demo.

    ``overload`` is httperf's load, as a multiple of the link. ``polling_share`` of a processor
    is the most that httperf gets, ``expected_share`` of all processors the due share of the
    whole demo.
    """

    film_mbit: float
    link_mbit: int
    disk_bytes_per_s: int
    readers: int
    overload: float
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
    """Return the largest demo that leaves the processors unhurried.

    A given size takes its part first.
    """
    budget = BUSY * costs.processors - costs.idle_share
    film_mbit = asked.film_mbit or _film(costs, budget, asked)
    left = budget - costs.stream_share(film_mbit)
    disk_cost, link_cost = costs.disk_s_per_byte, _link_cost(costs, _overload(film_mbit, asked))
    disk_most = min(DISK_MOST_BPS, GUEST_BUSY / costs.disk_guest_s_per_byte)
    link_most = min(LINK_MOST_MBIT * 125_000, GUEST_BUSY / costs.link_guest_s_per_byte)

    def disk(share: float) -> float:
        chosen = max(DISK_LEAST_BPS, min(disk_most, share / disk_cost))
        return asked.disk_bytes_per_s or chosen

    def link(share: float) -> float:
        chosen = max(LINK_LEAST_MBIT * 125_000, min(link_most, share / link_cost))
        return asked.link_mbit * 125_000 if asked.link_mbit else chosen

    link_bps = link(left - disk(left / 2) * disk_cost)
    disk_bps = disk(left - link_bps * link_cost)
    scale = _sized(
        film_mbit,
        asked.link_mbit or _clear(link_bps / 125_000),
        asked.disk_bytes_per_s or _clear(disk_bps),
        asked,
    )
    return _with_words(scale, costs)


def smaller(scale: Scale, costs: Costs, asked: Asked) -> Scale | None:
    """Return a demo of about half the size; None if this is the smallest there is."""
    films = [film for film in FILMS_MBIT if film < scale.film_mbit]
    film_mbit = asked.film_mbit or (films[0] if films else scale.film_mbit)
    link_mbit = _clear(max(scale.link_mbit / 2, LINK_LEAST_MBIT))
    disk_bps = _clear(max(scale.disk_bytes_per_s / 2, DISK_LEAST_BPS))
    less = _sized(
        film_mbit,
        asked.link_mbit or min(scale.link_mbit, link_mbit),
        asked.disk_bytes_per_s or min(scale.disk_bytes_per_s, disk_bps),
        asked,
    )
    sizes = ("film_mbit", "link_mbit", "disk_bytes_per_s")
    if all(getattr(less, name) == getattr(scale, name) for name in sizes):
        return None
    return _with_words(less, costs)


def _link_cost(costs: Costs, overload: float) -> float:
    """Return the processor time for a byte on the link, the visitors' part included."""
    crowd = CROWD if overload > OVERLOAD_LEAST else 1.0
    return costs.link_s_per_byte * (1 + POLLING) * crowd


def _film(costs: Costs, budget: float, asked: Asked) -> float:
    """Return the largest film that fits together with the slowest disk and link."""
    disk = (asked.disk_bytes_per_s or DISK_LEAST_BPS) * costs.disk_s_per_byte
    link_bps = (asked.link_mbit or LINK_LEAST_MBIT) * 125_000
    for film_mbit in FILMS_MBIT:
        link = link_bps * _link_cost(costs, _overload(film_mbit, asked))
        if costs.stream_share(film_mbit) + disk + link <= budget:
            return film_mbit
    return FILMS_MBIT[-1]


def _sized(film_mbit: float, link_mbit: int, disk_bps: int, asked: Asked) -> Scale:
    ahead_kib = READ_AHEAD_KIB * disk_bps / DISK_MOST_BPS
    ahead_kib = round(ahead_kib / READ_AHEAD_STEP_KIB) * READ_AHEAD_STEP_KIB
    return Scale(
        film_mbit=film_mbit,
        link_mbit=link_mbit,
        disk_bytes_per_s=disk_bps,
        readers=asked.readers or READERS,
        overload=_overload(film_mbit, asked),
        read_ahead_kib=max(READ_AHEAD_STEP_KIB, ahead_kib),
        polling_share=0.0,
        expected_share=0.0,
        why="",
    )


def _overload(film_mbit: float, asked: Asked) -> float:
    return asked.overload or (OVERLOAD if film_mbit == FILMS_MBIT[0] else OVERLOAD_LEAST)


def _with_words(scale: Scale, costs: Costs) -> Scale:
    web = scale.link_bytes_per_s * _link_cost(costs, scale.overload)
    serving = web / (1 + POLLING)
    polling = min(MOST_POLLING, max(LEAST_POLLING, web - serving))
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
