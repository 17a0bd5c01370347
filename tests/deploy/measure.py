# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs on a host: the rates of a guest, as the host's kernel counts them.

    python3 - DOMAIN SECONDS <measure.py

Prints JSON: bytes per second over the window, by the host's monotonic clock.

* ``blk_read_bps``: ``read_bytes`` of the guest's QEMU in /proc/PID/io, which the
  kernel counts where a read reaches the block device. The guest's disk is
  opened with O_DIRECT, so a byte is counted once for each time it is read.
* ``net_tx_bps``: bytes that the kernel received on the guest's tap.
* ``net_rx_bps``: bytes that the kernel sent into the guest's tap, less those that
  the shaper dropped (from its counters page): QEMU takes a packet from the tap
  before it drops it.
* ``page``: the same from the counters page alone, for comparison.
* ``idle_looks``: how often, of ``looks``, no request of the resource waited in the
  shaper. A guest that had nothing to send says nothing about its limit.

"""

import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

RESOURCES = ("blk_read", "blk_write", "net_tx", "net_rx")
HEADER_BYTES = 128
HEARTBEAT_OFFSET = 40
SLOT_BYTES = 256
CLASS_SLOTS = 64
LOOK_SECONDS = 0.5


def page_sums(domain):
    """Return admitted and dropped bytes by resource, all classes together, and when
    they were so: QEMU writes the page up to ten times a second."""
    page = Path(f"/run/sluice/pages/{domain}.page")
    if not page.exists():
        return None
    data = page.read_bytes()
    sums = {name: [0, 0] for name in RESOURCES}
    for slot in range(CLASS_SLOTS):
        at = HEADER_BYTES + slot * SLOT_BYTES
        resource = RESOURCES[slot % 4]
        sums[resource][0] += struct.unpack_from("<Q", data, at + 48)[0]
        sums[resource][1] += struct.unpack_from("<Q", data, at + 80)[0]
    return sums, struct.unpack_from("<Q", data, HEARTBEAT_OFFSET)[0] / 1e9


def backlogs(domain):
    """Return how many requests wait in the shaper, by resource, all classes together."""
    data = Path(f"/run/sluice/pages/{domain}.page").read_bytes()
    waiting = dict.fromkeys(RESOURCES, 0)
    for slot in range(CLASS_SLOTS):
        at = HEADER_BYTES + slot * SLOT_BYTES
        waiting[RESOURCES[slot % 4]] += struct.unpack_from("<Q", data, at + 88)[0]
    return waiting


def look_on(domain, seconds):
    """Wait, and count how often nothing of a resource waited; return that and the looks."""
    idle = dict.fromkeys(RESOURCES, 0)
    looks = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, waiting in backlogs(domain).items():
            idle[name] += waiting == 0
        looks += 1
        time.sleep(LOOK_SECONDS)
    return idle, looks


def sample(domain, pid, tap):
    io = Path(f"/proc/{pid}/io").read_text()
    statistics = Path(f"/sys/class/net/{tap}/statistics")
    return {
        "blk_read": int(re.search(r"^read_bytes: (\d+)$", io, re.MULTILINE)[1]),
        "net_tx": int((statistics / "rx_bytes").read_text()),
        "net_rx": int((statistics / "tx_bytes").read_text()),
        "page": page_sums(domain),
        "at": time.monotonic(),
    }


def main():
    domain, seconds = sys.argv[1], float(sys.argv[2])
    pid = int(Path(f"/run/libvirt/qemu/{domain}.pid").read_text())
    listing = subprocess.run(
        ["virsh", "domiflist", domain], capture_output=True, text=True, check=True
    ).stdout
    tap = re.search(r"^\s*(vnet\d+)\s", listing, re.MULTILINE)[1]
    first = sample(domain, pid, tap)
    idle, looks = look_on(domain, seconds)
    last = sample(domain, pid, tap)
    elapsed = last["at"] - first["at"]
    rates = {f"{name}_bps": (last[name] - first[name]) / elapsed for name in ("blk_read", "net_tx")}
    rates["net_rx_bps"] = (last["net_rx"] - first["net_rx"]) / elapsed
    page = None
    if first["page"] and last["page"]:
        (sums, at), (old_sums, old_at) = last["page"], first["page"]
        page_seconds = at - old_at
        change = {
            name: [new - old for new, old in zip(sums[name], old_sums[name], strict=True)]
            for name in RESOURCES
        }
        rates["net_rx_bps"] -= change["net_rx"][1] / page_seconds
        page = {f"{name}_bps": change[name][0] / page_seconds for name in RESOURCES}
        page["net_rx_dropped_bytes"] = change["net_rx"][1]
    found = {"seconds": elapsed, "pid": pid, "tap": tap, **rates, "page": page}
    print(json.dumps({**found, "idle_looks": idle, "looks": looks}))


main()
