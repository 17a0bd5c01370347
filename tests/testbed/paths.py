# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the build's products are, and where the testbed keeps its runs."""

import os
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / "build"
RUNS = BUILD / "testbed"
IMAGES = BUILD / "images"
VENV_BIN = BUILD / "venv" / "bin"
AGENT = BUILD / "agent" / "sluice-agent"
AGENT_UNIT = BUILD / "agent" / "sluice-agent.service"
PATCHED_QEMU = BUILD / "qemu" / "qemu-system-x86_64"
# The distribution's, and one built from the same source and options as ours.
STOCK_QEMU = Path("/usr/bin/qemu-system-x86_64")
STOCK_BUILD = BUILD / "qemu-stock" / "qemu-system-x86_64"


class Missing(Exception):
    """A product of the build that the testbed needs is not there."""


def require(path: Path, how: str) -> Path:
    """Return ``path``, or say which command makes it."""
    if not path.exists():
        raise Missing(f"{path} is missing; run `{how}` first")
    return path


def emulator() -> Path:
    """The patched QEMU, or the one that SLUICE_TESTBED_EMULATOR names instead."""
    chosen = os.environ.get("SLUICE_TESTBED_EMULATOR")
    if chosen:
        return require(Path(chosen), "unset SLUICE_TESTBED_EMULATOR")
    return require(PATCHED_QEMU, "make qemu")


def qemu_img() -> Path:
    """The qemu-img that was built with the emulator."""
    return require(emulator().resolve().parent / "qemu-img", "make qemu")


def image(name: str) -> Path:
    """A file of build/images, with links resolved (libvirt shows this path)."""
    return require(IMAGES / name, "make images").resolve()


def cache_folder() -> Path:
    """The cache shared by all checkouts, as tools/setup/common.sh has it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SLUICE_CACHE") or base / "sluice")
