# SPDX-License-Identifier: GPL-2.0-or-later
"""An emulator linked anew, with its functions in another order.

Where a program's functions happen to lie in memory can be worth more than what is to be
measured (T. Mytkowicz, A. Diwan, M. Hauswirth, P. Sweeney: Producing Wrong Data Without Doing
Anything Obviously Wrong!, ASPLOS 2009). Whatever a series adds to QEMU moves all that is
linked behind it, so one stock build and one patched one are one draw each of a lottery, however
many processes run. Here the same objects are linked in an order that is drawn: many draws of
both, and their mean is what the code is worth.
"""

import json
import random
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "qemu-system-x86_64"
# Where an emulator that runs from its build looks for its firmware.
DATA = "qemu-bundle"
OBJECT, ARCHIVE = ".o", ".a"


def shuffled(words: Sequence[str], chance: random.Random, ending: str) -> list[str]:
    """Return the words, with those of an ending in another order among their places."""
    found = list(words)
    places = [at for at, word in enumerate(found) if word.endswith(ending)]
    drawn = [found[at] for at in places]
    chance.shuffle(drawn)
    for at, word in zip(places, drawn, strict=True):
        found[at] = word
    return found


def link_command(told: str) -> list[str]:
    """Return how the emulator is linked, from what ninja tells of links, in JSON.

    Raises LookupError if it tells nothing of that.
    """
    for step in json.loads(told):
        if step["output"] == PROGRAM:
            return shlex.split(step["command"])
    raise LookupError(f"the build does not tell how {PROGRAM} is linked; build it again")


def relink(build: Path, seed: int, folder: Path) -> Path:
    """Link a build's emulator into a folder of its own, in an order drawn by a seed.

    Objects come in another order, and so do the members of each archive. Returns the program.
    Raises LookupError as ``link_command``, and CalledProcessError if linking fails.
    """
    folder.mkdir(parents=True)
    (folder / DATA).symlink_to(build / DATA)
    chance = random.Random(seed)
    links = ("ninja", "-t", "compdb", "-x", "c_LINKER", "c_LINKER_RSP")
    command = shuffled(link_command(_told(links, build)), chance, OBJECT)
    for at, word in enumerate(command):
        # The system's are no part of the build.
        if word.endswith(ARCHIVE) and not Path(word).is_absolute():
            command[at] = str(_archive(build, word, chance, folder))
    program = folder / PROGRAM
    command[command.index("-o") + 1] = str(program)
    _told(command, build)
    return program


def _archive(build: Path, name: str, chance: random.Random, folder: Path) -> Path:
    """Make an archive of the same members, which stay where they are, in another order."""
    members = shuffled(_told(("ar", "t", name), build).splitlines(), chance, OBJECT)
    output = folder / Path(name).name
    _told(("ar", "rcsT", str(output), *(str(build / member) for member in members)), build)
    return output


def _told(command: Sequence[str], build: Path) -> str:
    return subprocess.run(command, cwd=build, check=True, stdout=subprocess.PIPE, text=True).stdout
