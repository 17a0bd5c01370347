# SPDX-License-Identifier: GPL-2.0-or-later
"""``rewrite.c`` in a guest: few blocks, written anew and compared all the time.

It sees mistakes that ``fio --verify`` cannot: fio compares a block once, soon after it was
written, and later changes of the block are written over unseen.
"""

import base64
import gzip
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed.guest import Guest

SOURCE = Path(__file__).with_name("rewrite.c")
PROGRAM = "/usr/local/bin/rewrite"
UNIT = "rewrite"
OUTPUT = f"/run/{UNIT}.out"
# One request each.
WRITERS = 8


@dataclass(frozen=True)
class Rewritten:
    """The outcome; ``errors`` is empty if every block was right."""

    writes: int = 0
    longest_ms: float = 0.0
    errors: str = ""


def build(program: Path, *flags: str) -> None:
    """Compile it; ``-static`` for a guest, whose C library may be another."""
    command = ["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", *flags]
    subprocess.run([*command, "-o", str(program), str(SOURCE)], check=True, timeout=300)


def install(guest: Guest, folder: Path) -> None:
    """Bring it into a guest, whose image has no compiler."""
    program = folder / UNIT
    build(program, "-static", "-s")
    packed = base64.b64encode(gzip.compress(program.read_bytes())).decode()
    guest.ssh(
        f"base64 -d | gzip -d >{PROGRAM} && chmod 0755 {PROGRAM}", input=packed, timeout_seconds=60
    )


def command(offset_bytes: int, prefix: str = "") -> str:
    """The command that rewrites blocks of the data disk from an offset on."""
    return f"{prefix}{PROGRAM} /dev/vdb {offset_bytes} {WRITERS}"


def start(guest: Guest, command: str) -> None:
    guest.spawn(f"{command} >{OUTPUT} 2>&1", unit=UNIT)


def outcome(text: str) -> Rewritten:
    """Read its output: one line of JSON, or its error."""
    try:
        said = json.loads(text)
        return Rewritten(said["writes"], said["longest_ms"])
    except (ValueError, KeyError, TypeError):
        return Rewritten(errors=text.strip()[:500] or "it has said nothing")


def read(guest: Guest) -> Rewritten:
    return outcome(guest.ssh(f"cat {OUTPUT}").stdout)
