# SPDX-License-Identifier: GPL-2.0-or-later
"""A sandbox with a network and a guest, for the runs that need one machine."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from measure.stress.bare import Files, LiveGuest, Machine
from testbed import accelerator, network, paths, runs
from testbed.sandbox import Sandbox, Task

DATA_MIB = 16
# fio has the first; the rewriter has blocks from the other on.
VERIFY_MIB = 1
REWRITE_OFFSET_BYTES = 8 * 2**20
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
    """The parts of a run."""

    folder: Path
    sandbox: Sandbox
    files: Files
    accelerator: str
    guest: LiveGuest

    def machine(self, name: str, **options: object) -> Machine:
        return Machine(name, self.sandbox, self.files, self.accelerator, **options)

    def client(self, command: list[str]) -> Task:
        """Start a program at the network's other end."""
        log = self.folder / "logs" / "iperf3.log"
        return self.sandbox.popen(command, name="iperf3", netns=network.CLIENTS, log=log)


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


def verify_command(depth: int = 16, tagged: bool = True) -> str:
    """The fio command that writes and verifies on the data disk, in class bulk.

    It goes over the same 256 blocks again and again, in passes. Each block is read back and
    compared soon after it was written, and JSON with the findings ends the output. Not
    ``tagged``, its class is the agent's to give.

    A lost write leaves the block of the pass before, whose checksum is right. Only the number
    of the write tells the two apart, which fio compares only without ``--time_based`` and with
    a random map: hence passes, and no time. The seed in the header would tell, too, but fio
    does not know the right one with ``--verify_backlog``.
    """
    before, after = (f"{BULK_COMMAND} ", "--prioclass=1 --prio=2 ") if tagged else ("", "")
    return (
        f"{before}fio --name=verify --filename=/dev/vdb --direct=1 --ioengine=libaio "
        f"--iodepth={depth} --rw=randwrite --bs=4k --size={VERIFY_MIB}m --loops=1000000000 "
        "--verify=crc32c --verify_backlog=64 --verify_write_sequence=1 --verify_fatal=1 "
        f"--verify_state_save=0 {after}--output-format=json"
    )
