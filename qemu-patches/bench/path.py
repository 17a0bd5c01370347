# SPDX-License-Identifier: GPL-2.0-or-later
"""What shaping adds to the whole path of a disk request, beside QEMU's throttle filter.

Rows, all of 4 KiB reads of null-co in an I/O thread, of the same emulator, in turn:

    path-stock, path-shaper, path-throttle
                        processor time of the I/O thread for a request that passes: without
                        shaping; with a shaper, class and ceiling limited; with QEMU's throttle
                        filter, limited too. No limit is ever reached
    release-shaper, release-throttle
                        processor time of the whole QEMU for a request that had to wait, at
                        10,000 a second, with the burst that each has by default
"""

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from disk_driver import RING_SIZE, Machine

ROUNDS = 120
RELEASE_RATE = 10_000
RELEASE_RINGS = 12
AMPLE = {
    "resource": "blk-read",
    "bytes-per-second": 10**12,
    "burst-bytes": 10**12,
    "operations-per-second": 10**11,
    "burst-operations": 10**11,
}
AMPLE_THROTTLE = "x-iops-total=1000000000,x-bps-total=1000000000000"


def default_limit(machine: Machine, limit: dict[str, object]) -> None:
    machine.qmp("shaper-set-class", id="sluice0", tag=0, limits=[limit], **{"class": "default"})


def fill(machine: Machine) -> None:
    """The whole ring once."""
    for number in range(RING_SIZE):
        machine.add(number)
    machine.kick()
    machine.wait()


def quartiles(samples: list[float]) -> tuple[float, float, float]:
    first, median, third = statistics.quantiles(samples, n=4)
    return median, first, third


def paths(qemu: Path, folder: Path) -> dict[str, tuple[float, float, float]]:
    kinds = {
        "path-stock": {},
        "path-shaper": {"shaper": True},
        "path-throttle": {"throttle": AMPLE_THROTTLE},
    }
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    with ExitStack() as stack:
        machines = {}
        for name, options in kinds.items():
            (folder / name).mkdir()
            machines[name] = stack.enter_context(Machine(qemu, folder / name, **options))
        default_limit(machines["path-shaper"], AMPLE)
        machines["path-shaper"].qmp("shaper-set-ceiling", id="sluice0", limits=[AMPLE])
        for number in range(ROUNDS + 5):
            for name in list(kinds) if number % 2 else reversed(kinds):
                before_ns = machines[name].cpu_ns("IO io0")
                fill(machines[name])
                fill(machines[name])
                cost_ns = (machines[name].cpu_ns("IO io0") - before_ns) / (2 * RING_SIZE)
                if number >= 5:
                    samples[name].append(cost_ns)
    return {name: quartiles(each) for name, each in samples.items()}


def releases(qemu: Path, folder: Path, name: str) -> tuple[float, float, float]:
    (folder / name).mkdir()
    shaped = name == "release-shaper"
    throttle = "" if shaped else f"x-iops-total={RELEASE_RATE}"
    samples = []
    with Machine(qemu, folder / name, shaper=shaped, throttle=throttle) as machine:
        if shaped:
            default_limit(machine, {"resource": "blk-read", "operations-per-second": RELEASE_RATE})
        fill(machine)  # uses up what burst there is
        for _ in range(RELEASE_RINGS):
            before_ns = machine.cpu_ns()
            fill(machine)
            samples.append((machine.cpu_ns() - before_ns) / RING_SIZE)
    return quartiles(samples)


def measure(qemu: Path) -> dict[str, tuple[float, float, float]]:
    """Median, lower and upper quartile of each row, in nanoseconds."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rows = paths(qemu, Path(folder))
        for name in ("release-shaper", "release-throttle"):
            rows[name] = releases(qemu, Path(folder), name)
    return rows
