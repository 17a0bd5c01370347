# SPDX-License-Identifier: GPL-2.0-or-later
"""Peers that limit what a guest sends or receives: tc, and libvirt's bandwidth."""

from xml.etree import ElementTree as ET

import libvirt

from measure.experiments.subjects import Unavailable
from testbed import UPLINK, Guest, Testbed

# Burst and queue as Sluice has them by default.
BURST_SECONDS = 0.05
BURST_BYTES_MIN = 65536
QUEUE_SECONDS = 0.05
QUEUE_BYTES_MIN = 128 * 1024
# The kernel may lack what libvirt's bandwidth is made of; asking once tells.
PROBE_BPS = 1024 * 1024


def burst_bytes(rate_bps: int) -> int:
    """Return the bytes that a peer may pass at once after idleness."""
    return max(BURST_BYTES_MIN, int(rate_bps * BURST_SECONDS))


def queue_bytes(rate_bps: int) -> int:
    """Return the bytes that a peer may queue at a rate."""
    return max(QUEUE_BYTES_MIN, int(rate_bps * QUEUE_SECONDS))


class _Tc:
    """A root queueing discipline on the interface by which the traffic leaves the host."""

    def __init__(self, outbound: bool):
        self._outbound = outbound
        self._testbed: Testbed | None = None
        self._device = ""

    def open(self, testbed: Testbed, guest: Guest) -> None:
        self._testbed = testbed
        self._device = UPLINK if self._outbound else tap_of(guest)

    def _tc(self, *words: object) -> None:
        self._testbed.sandbox.run(["tc", *map(str, words)])

    def _clear(self) -> None:
        self._testbed.sandbox.run(["tc", "qdisc", "del", "dev", self._device, "root"], check=False)

    def close(self) -> None:
        """Leave the interface as it was: the uplink is the link, and has a limit of its own."""
        self._clear()
        if self._outbound:
            self._testbed.restore_uplink()


class TcTbf(_Tc):
    name = "tc-tbf"

    def set_rate(self, rate_bps: int | None) -> None:
        self._clear()
        if rate_bps is not None:
            rate = ("rate", f"{rate_bps * 8}bit", "burst", burst_bytes(rate_bps))
            limit = ("limit", queue_bytes(rate_bps))
            self._tc("qdisc", "add", "dev", self._device, "root", "tbf", *rate, *limit)


class TcHtb(_Tc):
    name = "tc-htb"

    def set_rate(self, rate_bps: int | None) -> None:
        self._clear()
        if rate_bps is not None:
            dev = ("dev", self._device)
            burst = burst_bytes(rate_bps)
            rate = ("rate", f"{rate_bps * 8}bit", "burst", burst, "cburst", burst)
            self._tc("qdisc", "add", *dev, "root", "handle", "1:", "htb", "default", "1")
            self._tc("class", "add", *dev, "parent", "1:", "classid", "1:1", "htb", *rate)
            limit = ("limit", queue_bytes(rate_bps))
            self._tc("qdisc", "add", *dev, "parent", "1:1", "handle", "2:", "bfifo", *limit)


class LibvirtBandwidth:
    """``<bandwidth>`` of libvirt: a policer on what the guest sends, htb on the rest."""

    name = "libvirt-bandwidth"

    def __init__(self, outbound: bool):
        # libvirt speaks from the guest's side, in KiB per second.
        self._direction = "outbound" if outbound else "inbound"
        self._guest: Guest | None = None
        self._device = ""

    def open(self, testbed: Testbed, guest: Guest) -> None:
        self._guest = guest
        self._device = tap_of(guest)
        try:
            self.set_rate(PROBE_BPS)
        except libvirt.libvirtError as reason:
            # What libvirt had made of it before it failed would limit all who come after.
            for kind in ("root", "ingress"):
                testbed.sandbox.run(["tc", "qdisc", "del", "dev", self._device, kind], check=False)
            raise Unavailable(
                f"{str(reason).strip()}; load the kernel modules sch_htb, sch_ingress, cls_u32,"
                " cls_fw and act_police"
            ) from None
        self.set_rate(None)

    def set_rate(self, rate_bps: int | None) -> None:
        average = 0 if rate_bps is None else max(1, round(rate_bps / 1024))
        values = {f"{self._direction}.average": average}
        self._guest.domain.setInterfaceParameters(
            self._device, values, libvirt.VIR_DOMAIN_AFFECT_LIVE
        )

    def close(self) -> None:
        """The last ``set_rate(None)`` left nothing."""


def tap_of(guest: Guest) -> str:
    """Return the name of the running guest's network device on the host."""
    return ET.fromstring(guest.domain.XMLDesc()).find("devices/interface/target").get("dev")
