# SPDX-License-Identifier: GPL-2.0-or-later
"""A sandbox with a network and a guest, for the runs that need one machine."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stress.machine import Files, LiveGuest, Machine
from testbed import accelerator, network, paths, runs
from testbed.sandbox import Sandbox

DATA_MIB = 128
LINK_BPS = 200_000_000
BOOT_SECONDS = 600.0
# Tag 2, as the agent would set it: the real-time class, which root may use.
BULK = "bulk"
BULK_TAG = 2
BULK_COMMAND = "ionice -c1 -n2"


class StressError(Exception):
    """The guest or its loads did not survive; the text says which."""


@dataclass
class Scene:
    """What a run works with."""

    folder: Path
    sandbox: Sandbox
    files: Files
    accelerator: str
    guest: LiveGuest

    def machine(self, name: str, **options: object) -> Machine:
        return Machine(name, self.sandbox, self.files, self.accelerator, **options)


@contextlib.contextmanager
def scene(label: str) -> Iterator[Scene]:
    """Make namespaces, network and disks; all ends with the context."""
    chosen = accelerator.choose().name
    folder = runs.make(label)
    disks = folder / "disks"
    disks.mkdir()
    files = Files(folder, disks / "root.qcow2", disks / "data.img")
    command = [str(paths.qemu_img()), "create", "-q", "-f", "qcow2", "-F", "raw"]
    subprocess.run([*command, "-b", str(paths.image("root.img")), str(files.root)], check=True)
    with files.data.open("wb") as image:
        image.truncate(DATA_MIB * 2**20)
    sandbox = Sandbox(folder, {})
    try:
        sandbox.open()
        network.set_up(sandbox, LINK_BPS, None, network.LINK_QUEUE_BYTES)
        yield Scene(folder, sandbox, files, chosen, LiveGuest(sandbox, files, chosen))
    finally:
        sandbox.close()
        runs.remove_disks(folder)


def verify_command(seconds: int, depth: int = 16, tagged: bool = True) -> str:
    """The fio command that writes and verifies on the data disk, in class bulk.

    Every block is read back and compared soon after it was written, and JSON
    with what it found ends the output. Not ``tagged``, its class is the agent's
    to give.
    """
    before, after = (f"{BULK_COMMAND} ", "--prioclass=1 --prio=2 ") if tagged else ("", "")
    return (
        f"{before}fio --name=verify --filename=/dev/vdb --direct=1 --ioengine=libaio "
        f"--iodepth={depth} --rw=randwrite --bs=4k --size={DATA_MIB - 8}m --verify=crc32c "
        f"--verify_backlog=256 --verify_fatal=1 --time_based --runtime={seconds} "
        f"{after}--output-format=json"
    )
