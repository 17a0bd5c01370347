# SPDX-License-Identifier: GPL-2.0-or-later
"""The queue of an interface, or of the ports beneath it, from the kernel over netlink."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ..domain.uplinks import NO_QUEUE, Link, ports
from ..services.ports import UplinkReading

_ROOT = 0xFFFFFFFF
_LOOPBACK = 1
# A bond may have another port in use, a bridge another port.
_PORTS_LAST_S = 2.0


class LinuxUplinks:
    def __init__(self) -> None:
        self._route: IPRoute | None = None
        self._lock = threading.Lock()
        # Of the interface read last: its ports, and since when they are known.
        self._known: tuple[str, float, list[Link]] | None = None

    def _open(self) -> IPRoute:
        if self._route is None:
            self._route = IPRoute()
        return self._route

    def names(self) -> list[str]:
        """The interfaces that can be watched."""
        with self._lock:
            links = self._links()
        return sorted(link.name for link in links if _can_be_watched(links, link.name))

    def ports(self, name: str) -> list[str]:
        """Raises ValueError where ``name`` cannot be watched, with the reason and the remedy."""
        with self._lock:
            return [port.name for port in self._ports(name)]

    def read(self, name: str) -> UplinkReading:
        """The sum of its ports. Raises OSError where there is none, with the reason."""
        with self._lock:
            route = self._open()
            try:
                if self._known is None or self._known[0] != name or self._is_old():
                    self._known = (name, time.monotonic(), self._ports(name))
                # The kernel lists those of all interfaces, whichever are asked for.
                roots = {
                    qdisc["index"]: qdisc
                    for qdisc in route.get_qdiscs()
                    if qdisc["parent"] == _ROOT
                }
                readings = [_reading(route, port, roots.get(port.index)) for port in self._known[2]]
            except (NetlinkError, ValueError) as error:
                self._known = None
                raise OSError(str(error)) from error
            except OSError:
                self._known = None
                raise
        return _sum(readings)

    def _is_old(self) -> bool:
        return self._known is not None and time.monotonic() - self._known[1] > _PORTS_LAST_S

    def _ports(self, name: str) -> list[Link]:
        with contextlib.suppress(NetlinkError):
            for found in self._open().link("get", ifname=name):
                own = link_of(found)
                # Most have a queue of their own. A list of all takes long on a host of many guests.
                if own.name == name and own.index != _LOOPBACK and own.queue != NO_QUEUE:
                    return [own]
        return ports(self._links(), name)

    def _links(self) -> list[Link]:
        return [link_of(link) for link in self._open().get_links() if link["index"] != _LOOPBACK]

    def close(self) -> None:
        with self._lock:
            if self._route is not None:
                self._route.close()
                self._route = None


def _can_be_watched(links: list[Link], name: str) -> bool:
    try:
        ports(links, name)
    except ValueError:
        return False
    return True


def link_of(link: Any) -> Link:
    info = link.get_attr("IFLA_LINKINFO")
    data = info.get_attr("IFLA_INFO_DATA") if info else None
    kind = (info.get_attr("IFLA_INFO_KIND") if info else None) or ""
    # A number of another network namespace names no interface here.
    is_elsewhere = link.get_attr("IFLA_LINK_NETNSID") is not None
    return Link(
        index=link["index"],
        name=link.get_attr("IFLA_IFNAME"),
        kind=kind,
        queue=link.get_attr("IFLA_QDISC") or "",
        master=link.get_attr("IFLA_MASTER"),
        beneath=None if is_elsewhere else link.get_attr("IFLA_LINK"),
        active=data.get_attr("IFLA_BOND_ACTIVE_SLAVE") if kind == "bond" and data else None,
    )


def _reading(route: IPRoute, port: Link, root: Any) -> UplinkReading:
    if root is None:
        raise OSError(f"interface {port.name} has no queue discipline")
    stats = root.get_attr("TCA_STATS2")
    queue = stats.get_attr("TCA_STATS_QUEUE") if stats else None
    basic = stats.get_attr("TCA_STATS_BASIC") if stats else None
    if queue is None or basic is None:
        raise OSError(f"the queue discipline of interface {port.name} has no statistics")
    return UplinkReading(
        backlog_bytes=queue["backlog"],
        dropped_packets=queue["drops"],
        bytes=basic["bytes"],
        link_bytes_per_second=_link_rate(route, port, root),
        ports=(port.name,),
    )


def _sum(readings: list[UplinkReading]) -> UplinkReading:
    rates = [reading.link_bytes_per_second for reading in readings]
    return UplinkReading(
        backlog_bytes=sum(reading.backlog_bytes for reading in readings),
        dropped_packets=sum(reading.dropped_packets for reading in readings),
        bytes=sum(reading.bytes for reading in readings),
        link_bytes_per_second=None if None in rates else sum(filter(None, rates)),
        ports=tuple(port for reading in readings for port in reading.ports),
    )


def _link_rate(route: IPRoute, port: Link, qdisc: Any) -> float | None:
    """Bytes per second: the discipline's limit, else the interface's speed."""
    limited = shaped_rate(qdisc)
    if limited is None and qdisc.get_attr("TCA_KIND") == "htb":
        ceilings = [
            c.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["ceil"]
            for c in route.get_classes(index=port.index)
            if c["parent"] == _ROOT
        ]
        limited = float(max(ceilings, default=0)) or None
    if limited is not None:
        return limited
    try:
        megabits = int(Path(f"/sys/class/net/{port.name}/speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 125_000 if megabits > 0 else None


def shaped_rate(qdisc: Any) -> float | None:
    """Bytes per second that a discipline without classes lets through; None: it has no limit."""
    options = qdisc.get_attr("TCA_OPTIONS")
    match qdisc.get_attr("TCA_KIND"):
        case "tbf":
            parameters = options.get_attr("TCA_TBF_PARMS")
            rate = parameters["rate"] if parameters else 0
        case "cake":
            rate = options.get_attr("TCA_CAKE_BASE_RATE64")
        case "netem":
            parameters = options.get_attr("TCA_NETEM_RATE")
            rate = parameters["rate"] if parameters else 0
        case _:
            rate = 0
    return float(rate) if rate else None
