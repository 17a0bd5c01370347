# SPDX-License-Identifier: GPL-2.0-or-later
"""Where programs and images are, and where the testbed keeps its runs.

In a checkout these are the products of the build. The nightly run uses the installed programs
of its host: it sets another ``Layout`` before it begins.
"""

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# The folder that has the package testbed.
PACKAGES = Path(__file__).resolve().parents[1]
BUILD = TOP / "build"
VENV_BIN = BUILD / "venv" / "bin"
# The distribution's, and one built from the same source and options as ours.
STOCK_QEMU = Path("/usr/bin/qemu-system-x86_64")
STOCK_BUILD = BUILD / "qemu-stock" / "qemu-system-x86_64"


class Missing(Exception):
    """A program or an image that the testbed needs is not there."""


@dataclass(frozen=True)
class Layout:
    """Places of all parts, and the commands that bring missing ones.

    ``programs`` are folders with sluiced, sluice and sluice-web; ``agent`` has the guest agent
    and its unit; ``notes`` keeps findings about the machine. ``remedies`` maps a name of this
    class to a command.
    """

    runs: Path
    images: Path
    programs: tuple[Path, ...]
    agent: Path
    rotdisk: Path
    emulator: Path
    notes: Path
    remedies: dict[str, str] = field(default_factory=dict)


def cache_folder() -> Path:
    """The cache shared by all checkouts, as tools/setup/common.sh has it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SLUICE_CACHE") or base / "sluice")


def checkout() -> Layout:
    """Return the layout of this checkout's build."""
    return Layout(
        runs=BUILD / "testbed",
        images=BUILD / "images",
        programs=(VENV_BIN,),
        agent=BUILD / "agent",
        rotdisk=BUILD / "rotdisk" / "rotdisk.so",
        emulator=BUILD / "qemu" / "qemu-system-x86_64",
        notes=cache_folder(),
        remedies={
            "programs": "make venv",
            "agent": "make agent",
            "rotdisk": "make rotdisk",
            "emulator": "make qemu",
            "images": "make images",
        },
    )


_layout = checkout()


def use(layout: Layout) -> None:
    """Take programs and images from elsewhere from now on."""
    global _layout
    _layout = layout


def layout() -> Layout:
    return _layout


def require(path: Path, how: str) -> Path:
    """Return ``path``, or say which command makes it."""
    if not path.exists():
        raise Missing(f"{path} is missing; run `{how}` first")
    return path


def _part(path: Path, name: str) -> Path:
    return require(path, _layout.remedies.get(name, f"install {name}"))


def emulator() -> Path:
    """The patched QEMU, or the QEMU of SLUICE_TESTBED_EMULATOR."""
    chosen = os.environ.get("SLUICE_TESTBED_EMULATOR")
    if chosen:
        return require(Path(chosen), "unset SLUICE_TESTBED_EMULATOR")
    return _part(_layout.emulator, "emulator")


def qemu_img() -> Path:
    """The qemu-img that was built with the emulator, or the machine's."""
    beside = emulator().resolve().parent / "qemu-img"
    found = beside if beside.exists() else shutil.which("qemu-img")
    return Path(found) if found else _part(beside, "emulator")


def program(name: str) -> Path:
    """One of Sluice's programs."""
    found = [folder / name for folder in _layout.programs if (folder / name).exists()]
    return found[0] if found else _part(_layout.programs[0] / name, "programs")


def agent() -> Path:
    """The guest agent."""
    return _part(_layout.agent / "sluice-agent", "agent")


def agent_unit() -> Path:
    """The agent's systemd unit, for the guest."""
    return _part(_layout.agent / "sluice-agent.service", "agent")


def agent_rule() -> Path:
    """The udev rule that enables the agent's device in the guest."""
    return _part(_layout.agent / "70-sluice-channel.rules", "agent")


def rotdisk_plugin() -> Path:
    """The nbdkit plugin with the model of a disk."""
    return _part(_layout.rotdisk, "rotdisk")


def image(name: str) -> Path:
    """A guest's or a disk's image, with links resolved (libvirt shows this path)."""
    return _part(_layout.images / name, "images").resolve()


def python_module(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run a module of ours."""
    return [sys.executable, "-m", name], {"PYTHONPATH": str(PACKAGES)}
