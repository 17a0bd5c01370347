# SPDX-License-Identifier: GPL-2.0-or-later
"""Which accelerator really works here.

That /dev/kvm exists proves nothing: on some nested hosts a guest dies or
crawls under it. So a guest is booted with it, as far as its first program,
within a time limit that a working KVM needs a small part of.
"""

import json
import os
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed import paths

LIFE_SIGN = b"sluice-init: alive"
PROBE_SECONDS = 20.0
CPU = {"kvm": "host", "tcg": "max"}


@dataclass(frozen=True)
class Accelerator:
    """The choice, ``kvm`` or ``tcg``, and one sentence that says why."""

    name: str
    reason: str


def note() -> Path:
    """The file that keeps the probe's answer until the next boot."""
    return paths.layout().notes / "accelerator.json"


def choose(probe_seconds: float = PROBE_SECONDS) -> Accelerator:
    """Return the accelerator to use; the probe's answer holds until the next boot."""
    forced = os.environ.get("SLUICE_TESTBED_ACCELERATOR")
    if forced:
        if forced not in CPU:
            raise ValueError(f"SLUICE_TESTBED_ACCELERATOR={forced}: use one of {', '.join(CPU)}")
        return Accelerator(forced, "SLUICE_TESTBED_ACCELERATOR asks for it")
    if not os.path.exists("/dev/kvm"):
        return Accelerator("tcg", "there is no /dev/kvm")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    kept = note()
    try:
        known = json.loads(kept.read_text())
        if known.pop("boot_id") == boot_id:
            return Accelerator(**known)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = probe(probe_seconds)
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps({"boot_id": boot_id, **asdict(found)}))
    fresh.replace(kept)
    return found


def probe(limit_seconds: float = PROBE_SECONDS) -> Accelerator:
    """Boot a guest under KVM; fall back to TCG if it shows no life in time."""
    started = time.monotonic()
    alive, said = boots("kvm", limit_seconds)
    elapsed = time.monotonic() - started
    if alive:
        return Accelerator("kvm", f"a guest under KVM reached its first program in {elapsed:.1f} s")
    cause = f"ended after {elapsed:.1f} s" if elapsed < limit_seconds else "did not get there"
    hint = f" (QEMU: {said})" if said else ""
    return Accelerator(
        "tcg",
        f"/dev/kvm exists, but a guest under KVM {cause} without reaching its first program "
        f"within {limit_seconds:g} s{hint}",
    )


def boots(accelerator: str, limit_seconds: float) -> tuple[bool, str]:
    """Boot as far as the first program; return whether it spoke, and QEMU's last words."""
    command = [str(paths.emulator()), "-nodefaults", "-no-user-config", "-no-reboot"]
    command += ["-display", "none", "-machine", "q35", "-accel", accelerator]
    command += ["-cpu", CPU.get(accelerator, "max"), "-m", "256", "-serial", "stdio"]
    command += ["-kernel", str(paths.image("vmlinuz")), "-initrd", str(paths.image("initrd.img"))]
    command += ["-append", "console=ttyS0 panic=-1 sluice.probe"]
    # Under a KVM that hangs it would run on by itself, should this process be killed.
    command = ["setpriv", "--pdeathsig", "KILL", *command]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=limit_seconds)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0]
        except BaseException:
            process.kill()
            process.wait()
            raise
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    return LIFE_SIGN in output, lines[-1][:200] if lines else ""
