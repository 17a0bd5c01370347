# SPDX-License-Identifier: GPL-2.0-or-later
"""The queue of an interface, or of the ports beneath it, from the kernel over netlink."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_GETQDISC, RTMGRP_LINK, RTMGRP_TC
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from ..domain.uplink_first import HANDLE, ROOT_CLASS, UNLIMITED_BPS
from ..domain.uplinks import NO_QUEUE, Link, ports
from ..services.ports import UplinkReading

_ROOT = 0xFFFFFFFF
_LOOPBACK = 1
# Of a netlink message, and the part of a queue discipline's that comes first in it.
_HEADER = struct.Struct("=IHHII")
_DISCIPLINE = struct.Struct("=BBHiIII")
_MOST_BYTES = 1 << 17
_ANSWERS_S = 5.0


class LinuxUplinks:
    def __init__(self) -> None:
        self._route: IPRoute | None = None
        self._changes: socket.socket | None = None
        self._lock = threading.Lock()
        # The interface read last, and its ports.
        self._known: tuple[str, list[Link]] | None = None

    def _open(self) -> IPRoute:
        if self._route is None:
            self._route = IPRoute()
        return self._route

    def names(self) -> list[str]:
        """The interfaces that can be watched. Raises OSError where the kernel does not tell."""
        with self._lock, _as_os_error():
            links = self._links()
        return sorted(link.name for link in links if _can_be_watched(links, link.name))

    def ports(self, name: str) -> list[str]:
        """Raises ValueError where ``name`` cannot be watched, with the reason and the remedy;
        OSError where the kernel does not tell."""
        with self._lock, _as_os_error():
            return [port.name for port in self._ports(name)]

    def read(self, name: str) -> UplinkReading:
        """The sum of its ports. Raises OSError where there is none, with the reason."""
        with self._lock:
            route = self._open()
            try:
                if self._has_changed() or self._known is None or self._known[0] != name:
                    self._known = (name, self._ports(name))
                found = self._known[1]
                roots = root_disciplines({port.index for port in found})
                readings = [_reading(route, port, roots.get(port.index)) for port in found]
            except (NetlinkError, ValueError) as error:
                self._known = None
                raise OSError(str(error)) from error
            except OSError:
                self._known = None
                raise
        return _sum(readings)

    def _has_changed(self) -> bool:
        """Whether any interface or discipline is another since the last call: a bond may have
        another port in use, a bridge another port, and a name may be another interface's."""
        if self._changes is None:
            self._changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
            self._changes.bind((0, RTMGRP_LINK | RTMGRP_TC))
            return True
        changed = False
        while True:
            try:
                self._changes.recv(_MOST_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return changed
            except OSError as error:
                # More changes than there was room for.
                if error.errno != errno.ENOBUFS:
                    raise
            changed = True

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
            for opened in filter(None, (self._route, self._changes)):
                opened.close()
            self._route = self._changes = None


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        raise OSError(str(error)) from error


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


def root_disciplines(indices: Collection[int]) -> dict[int, Any]:
    """{number of an interface: its root discipline}, for these.

    The kernel lists the disciplines of all interfaces, whichever are asked for, and to decode
    those of hundreds of guests takes longer than all else of a tick. Raises OSError.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(_ANSWERS_S)
        kernel.bind((0, 0))
        asked = _DISCIPLINE.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0)
        flags = NLM_F_REQUEST | NLM_F_DUMP
        size = _HEADER.size + len(asked)
        kernel.send(_HEADER.pack(size, RTM_GETQDISC, flags, 1, 0) + asked)
        found = {}
        while True:
            answer = kernel.recv(_MOST_BYTES)
            for kind, message in _messages(answer):
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", message, _HEADER.size)[0]
                    raise OSError(number, os.strerror(number))
                _, _, _, index, _, parent, _ = _DISCIPLINE.unpack_from(message, _HEADER.size)
                if index in indices and parent == _ROOT:
                    found[index] = tcmsg(message)
                    found[index].decode()


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the bytes of each message."""
    at = 0
    while at + _HEADER.size <= len(answer):
        size, kind, _, _, _ = _HEADER.unpack_from(answer, at)
        if size < _HEADER.size:
            raise OSError(errno.EPROTO, "the kernel's answer has a message without a length")
        yield kind, answer[at : at + size]
        at += (size + 3) & ~3


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
    if qdisc["handle"] == HANDLE:
        limited = _own_rate(route, port)
    elif limited is None and qdisc.get_attr("TCA_KIND") == "htb":
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


def _own_rate(route: IPRoute, port: Link) -> float | None:
    """Of sluiced's own discipline: None where it limits nothing."""
    for one in route.get_classes(index=port.index):
        if one["handle"] == HANDLE | ROOT_CLASS:
            options = one.get_attr("TCA_OPTIONS")
            rate = float(
                options.get_attr("TCA_HTB_CEIL64") or options.get_attr("TCA_HTB_PARMS")["ceil"]
            )
            return rate if rate < UNLIMITED_BPS else None
    return None


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
