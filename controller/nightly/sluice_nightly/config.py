# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of the nightly run. Every one has a default; a file changes some.

An installed run takes programs from their packages and keeps its files in
/var/lib/sluice-nightly. In a checkout it takes the build's products.
"""

import math
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from demo.plan import BadPlan, Bars, Plan
from demo.scale import DISK_MOST_BPS, FILMS_MBIT
from testbed import patience
from testbed.paths import BUILD, TOP, Layout, checkout

INSTALLED = Path("/usr/lib/sluice/nightly")
DEFAULT_FILE = Path("/etc/sluice/nightly.toml")
ACCELERATORS = ("auto", "kvm", "tcg")


class BadConfig(ValueError):
    """A setting cannot be; the text names it, its value and the remedy."""


def ranged(default: float, least: float, most: float) -> Any:
    """A field with its default and its range."""
    return field(default=default, metadata={"range": (least, most)})


@dataclass(frozen=True)
class Run:
    """The sizes of a run. ``limit_s`` ends a run that takes too long."""

    accelerator: str = "auto"
    probe_s: float = ranged(20, 5, 600)
    link_mbit: int = ranged(200, 50, 10_000)
    readers: int = ranged(12, 1, 12)
    wgets: int = ranged(3, 1, 16)
    overload: float = ranged(1.5, 1, 10)
    control_s: float = ranged(20, 5, 120)
    unshaped_s: float = ranged(30, 5, 300)
    auto_s: float = ranged(30, 5, 600)
    media_mib: int = ranged(768, 512, 1536)
    web_mib: int = ranged(512, 384, 1024)
    patience: float = ranged(1, patience.LEAST, patience.MOST)
    limit_s: float = ranged(1200, 60, 7200)


@dataclass(frozen=True)
class Checks:
    """The bars that the result must hold, beside "shaped is perfect"."""

    background_ratio: float = ranged(0.70, 0, 1)
    settled_s: float = ranged(60, 1, 600)


@dataclass(frozen=True)
class Start:
    """At most this may go on when a run starts; more, and other guests would suffer.

    Guests are all running domains of the host together. Pressures are the
    kernel's shares of time in which something waited, in per cent.
    """

    guest_disk_mb_per_s: float = ranged(5, 0, 1e6)
    guest_net_mb_per_s: float = ranged(5, 0, 1e6)
    guest_processors: float = ranged(0.5, 0, 1e4)
    pressure_cpu: float = ranged(10, 0, 100)
    pressure_io: float = ranged(10, 0, 100)
    pressure_memory: float = ranged(1, 0, 100)
    load_per_processor: float = ranged(0.5, 0, 100)
    memory_spare_mib: int = ranged(1024, 0, 1_000_000)
    disk_spare_mib: int = ranged(2048, 0, 100_000_000)
    watch_s: float = ranged(5, 1, 60)
    without_libvirt: bool = False


@dataclass(frozen=True)
class Abort:
    """More than this, ``samples`` times in a row, ends a run.

    ``pressure`` is that of the host's guests alone (machine.slice), without the run itself.
    """

    guest_disk_mb_per_s: float = ranged(20, 0, 1e6)
    guest_net_mb_per_s: float = ranged(20, 0, 1e6)
    guest_processors: float = ranged(1, 0, 1e4)
    pressure: float = ranged(20, 0, 100)
    memory_spare_mib: int = ranged(512, 0, 1_000_000)
    every_s: float = ranged(5, 1, 60)
    samples: int = ranged(2, 1, 100)


@dataclass(frozen=True)
class Keep:
    """How many results sluiced and this host keep, and how many runs' logs."""

    results: int = ranged(90, 1, 1000)


@dataclass(frozen=True)
class Paths:
    """Where things are."""

    state: Path = Path("/var/lib/sluice-nightly")
    socket: Path = Path("/run/sluice/sluiced.sock")
    token_file: Path = Path("/etc/sluice/api-token")
    emulator: Path = Path("/usr/lib/sluice/qemu/bin/qemu-system-x86_64")
    libvirt_uri: str = "qemu:///system"


@dataclass(frozen=True)
class Config:
    """All settings, checked."""

    run: Run = Run()
    checks: Checks = Checks()
    start: Start = Start()
    abort: Abort = Abort()
    keep: Keep = Keep()
    paths: Paths = Paths()
    installed: bool = True

    def plan(self) -> Plan:
        """The demo's plan for a night."""
        r = self.run
        # Nights are compared with one another, so their sizes stay.
        return Plan(
            film_mbit=FILMS_MBIT[0],
            disk_bytes_per_s=DISK_MOST_BPS,
            link_mbit=r.link_mbit,
            readers=r.readers,
            wgets=r.wgets,
            overload=r.overload,
            control_s=r.control_s,
            unshaped_s=r.unshaped_s,
            auto_s=r.auto_s,
            media_mib=r.media_mib,
            web_mib=r.web_mib,
        )

    def bars(self) -> Bars:
        checks = self.checks
        return Bars(background_ratio=checks.background_ratio, settled_s=checks.settled_s)

    def guests_memory_mib(self) -> int:
        """Memory of both guests, and of QEMU, the disk and the clients beside it."""
        return self.run.media_mib + self.run.web_mib + 512

    def layout(self) -> Layout:
        """Where the testbed finds programs and images."""
        if not self.installed:
            return replace(checkout(), runs=self.paths.state / "runs")
        return Layout(
            runs=self.paths.state / "runs",
            images=self.paths.state / "images",
            programs=(Path("/usr/sbin"), Path("/usr/bin")),
            agent=INSTALLED / "agent",
            rotdisk=INSTALLED / "rotdisk.so",
            # The version that runs now; an upgrade under way changes the link.
            emulator=self.paths.emulator.resolve(),
            notes=self.paths.state,
            remedies={
                "programs": "apt install sluice-controller",
                "agent": "apt install --reinstall sluice-nightly",
                "rotdisk": "apt install --reinstall sluice-nightly",
                "emulator": "apt install sluice-qemu",
                "images": "sluice-nightly prepare",
            },
        )


SECTIONS = {
    "run": Run, "checks": Checks, "start": Start, "abort": Abort, "keep": Keep, "paths": Paths
}  # fmt: skip


def _value(name: str, kind: Any, raw: Any, bounds: tuple[float, float] | None) -> Any:
    if kind is Path:
        if not isinstance(raw, str) or not raw.startswith("/"):
            raise BadConfig(f"{name} {raw!r} is not an absolute path; give one in quotes")
        return Path(raw)
    if kind in (str, bool):
        if not isinstance(raw, kind):
            words = "true or false" if kind is bool else "a string in quotes"
            raise BadConfig(f"{name} {raw!r} has the wrong type; give {words}")
        return raw
    number = not isinstance(raw, bool) and isinstance(raw, (int, float)) and math.isfinite(raw)
    if not number or (kind is int and raw != int(raw)):
        words = "a whole number" if kind is int else "a number"
        raise BadConfig(f"{name} {raw!r} has the wrong type; give {words}")
    least, most = bounds
    if not least <= raw <= most:
        raise BadConfig(f"{name} {raw:g} is out of range; give {least:g} to {most:g}")
    return kind(raw)


def _section(name: str, default: Any, raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise BadConfig(f"{name} is not a table; write [{name}] on a line of its own")
    known = {item.name: item for item in fields(default)}
    for key in raw:
        if key not in known:
            raise BadConfig(f"{name}.{key} is not a setting; use {', '.join(known)}")
    return replace(
        default,
        **{
            key: _value(f"{name}.{key}", known[key].type, value, known[key].metadata.get("range"))
            for key, value in raw.items()
        },
    )


def parse(raw: dict[str, Any], default: Config) -> Config:
    """Return ``default`` with the file's settings; BadConfig for anything odd."""
    for name in raw:
        if name not in SECTIONS:
            raise BadConfig(f"[{name}] is not a section; use {', '.join(SECTIONS)}")
    found = {name: _section(name, getattr(default, name), values) for name, values in raw.items()}
    config = replace(default, **found)
    if config.run.accelerator not in ACCELERATORS:
        raise BadConfig(
            f"run.accelerator {config.run.accelerator!r} is not known; "
            f"use one of {', '.join(ACCELERATORS)}"
        )
    try:
        config.plan()
    except BadPlan as problem:
        raise BadConfig(f"run.{problem}") from None
    return config


def default_config() -> Config:
    """The defaults of an installed run, or of one in a checkout."""
    if TOP == INSTALLED:
        return Config()
    build = checkout()
    where = Paths(state=BUILD / "nightly", emulator=build.emulator)
    return Config(paths=where, installed=False)


def load(path: Path | None) -> Config:
    """Read the file; without one given, the host's if there is one."""
    default = default_config()
    chosen = path or (DEFAULT_FILE if default.installed else None)
    if chosen is None:
        return default
    try:
        raw = tomllib.loads(chosen.read_text())
    except FileNotFoundError:
        if path is None:
            return default
        raise BadConfig(f"{path} does not exist; create it, or leave --config out") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise BadConfig(f"{chosen} cannot be read: {problem}") from None
    try:
        return parse(raw, default)
    except BadConfig as problem:
        raise BadConfig(f"{chosen}: {problem}") from None
