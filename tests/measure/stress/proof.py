# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the checks would see a wrong block: a stale block, put there.

A run that finds nothing says something only if its checks can find something
here: with these versions of fio and of the kernel, and these options. So each
is given a block that is older than it should be, before the run.
"""

from measure.stress import rewriter
from measure.stress.loads import UNIT, VERIFY, start_verify
from measure.stress.scene import REWRITE_OFFSET_BYTES, VERIFY_MIB, StressError
from testbed import patience
from testbed.guest import Guest
from testbed.sandbox import CommandFailed

BLOCK_BYTES = 4096
SECONDS = 180.0


def prove(guest: Guest, verify_command: str, rewrite_command: str) -> None:
    """Show that both see a stale block; StressError if one does not."""
    start_verify(guest, verify_command)
    said = spoil(guest, UNIT, VERIFY, VERIFY_MIB * 2**20 - BLOCK_BYTES)
    if "bad header numberio" not in said:
        raise StressError(f"fio does not see a stale block: {said[:500]!r}")
    rewriter.start(guest, rewrite_command)
    said = spoil(guest, rewriter.UNIT, rewriter.OUTPUT, REWRITE_OFFSET_BYTES + BLOCK_BYTES)
    if "holds write" not in said:
        raise StressError(f"the rewriter does not see a stale block: {said[:500]!r}")


def spoil(guest: Guest, unit: str, output: str, offset_bytes: int) -> str:
    """Put a block's content of a moment ago over it until the unit ends; return its output.

    Now and then that falls between two writes and goes unseen; so it is done
    again and again. Zeros are no older write: they are waited out.
    """
    block = offset_bytes // BLOCK_BYTES
    again = (
        f"while systemctl is-active --quiet {unit}; do "
        f"dd if=/dev/vdb of=/run/stale bs={BLOCK_BYTES} skip={block} count=1 iflag=direct; "
        f"if cmp -s -n {BLOCK_BYTES} /run/stale /dev/zero; then sleep 0.1; continue; fi; "
        "sleep 0.$((RANDOM % 10)); "
        f"dd if=/run/stale of=/dev/vdb bs={BLOCK_BYTES} seek={block} oflag=direct; done 2>/dev/null"
    )
    try:
        guest.ssh(f"bash -c '{again}'", timeout_seconds=SECONDS)
    except CommandFailed:
        guest.kill_unit(unit)
        limit_seconds = patience.seconds(SECONDS)
        raise StressError(f"{unit} saw no stale block in {limit_seconds:g} s") from None
    return guest.ssh(f"cat {output}").stdout
