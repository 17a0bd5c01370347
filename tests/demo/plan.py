# SPDX-License-Identifier: GPL-2.0-or-later
"""The sizes of the demo, and the bars that must hold at its end."""

from dataclasses import dataclass

from demo.scale import DISK_MOST_BPS, FILMS_MBIT, READERS, Asked
from testbed import patience

PHASES = ("control", "unshaped", "auto")
METHODS = ("gate", "rates")

STREAM = "movie"
STREAM_CLASS = "stream"
READERS_CLASS = "batch"
MEDIA, WEB = "media", "web"
READERS_MOUNT = "/srv/media"
WEB_MOUNT = "/srv/web"
STREAMER_EXECUTABLE = "/usr/bin/vlc"
READER_EXECUTABLE = "/usr/bin/cat"


def movie_file(film_mbit: float) -> str:
    """Return the path of a film in the guest; tests/testbed/images/data.sh makes them."""
    return f"/srv/movie/movie-{film_mbit:g}.ts"


class BadPlan(ValueError):
    """A setting is out of its range; the text names it, its value and the range."""


@dataclass(frozen=True)
class Plan:
    """Settings of one run. Times are seconds, film and link are bits per second / 10^6.

    Sizes that are None are chosen to fit the machine.
    """

    film_mbit: float | None = None
    link_mbit: int | None = None
    disk_bytes_per_s: int | None = None
    readers: int | None = None
    wgets: int = 3
    overload: float | None = None
    control_s: float = 20.0
    unshaped_s: float = 30.0
    auto_s: float = 30.0
    ramp_s: float = 6.0
    settle_most_s: float = 60.0
    media_mib: int = 768
    web_mib: int = 512
    once: bool = True
    method: str = "gate"

    def __post_init__(self) -> None:
        ranges = {
            "link_mbit": (10, 10_000),
            "disk_bytes_per_s": (2_000_000, DISK_MOST_BPS),
            "readers": (1, READERS),
            "wgets": (1, 16),
            "overload": (0.1, 10.0),
            "control_s": (5, 120),
            "unshaped_s": (5, 300),
            "auto_s": (5, 600),
            "ramp_s": (0, 60),
            "settle_most_s": (10, 300),
            # The readers' files are 1920 MiB: a larger guest would have them cached.
            "media_mib": (512, 1536),
            "web_mib": (384, 1024),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise BadPlan(f"{name} is {value}; use {least} to {most}")
        if self.film_mbit not in (None, *FILMS_MBIT):
            films = ", ".join(f"{film:g}" for film in FILMS_MBIT)
            raise BadPlan(f"film_mbit is {self.film_mbit:g}; there are films of {films}")

    @property
    def bars(self) -> "Bars":
        return Bars() if self.method == METHODS[0] else RATES_BARS

    @property
    def asked(self) -> Asked:
        """The sizes that are not to be chosen."""
        return Asked(
            self.film_mbit, self.link_mbit, self.disk_bytes_per_s, self.readers, self.overload
        )

    @property
    def longest_s(self) -> int:
        """An upper bound of how long loads may be needed."""
        phases = self.control_s + self.unshaped_s + self.auto_s + self.settle_most_s
        return int(phases + 2 * self.ramp_s + patience.seconds(60))


@dataclass(frozen=True)
class Bars:
    """The conditions of a successful demo."""

    control: str = "perfect"
    unshaped: str = "poor"
    auto: str = "perfect"
    background_ratio: float = 0.85
    settled_s: float = 10.0


# The papers' way finds its limits step by step.
RATES_BARS = Bars(background_ratio=0.70, settled_s=60.0)
