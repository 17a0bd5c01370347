# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Who listens on a TCP port, from what the kernel shows in /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from dataclasses import dataclass

LISTEN = "0A"


@dataclass(frozen=True)
class Listener:
    """A listening socket: its address, its port and its inode."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    inode: int


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel prints words of 32 bits in the processor's order, here the little end first."""
    words = bytes.fromhex(text)
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    return ipaddress.ip_address(packed)


def read_table(text: str) -> list[Listener]:
    """The listening sockets of /proc/net/tcp or tcp6."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            address, _colon, port = fields[1].partition(":")
            found.append(Listener(_address(address), int(port, 16), int(fields[9])))
    return found


def tables(proc: str = "/proc") -> list[Listener]:
    """All listening sockets."""
    found = []
    for name in ("tcp", "tcp6"):
        path = f"{proc}/net/{name}"
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                found += read_table(file.read())
    return found


def sockets_of(pid: int, proc: str = "/proc") -> set[int]:
    """Inodes of the sockets that a process holds; none if it is gone."""
    folder, found = f"{proc}/{pid}/fd", set()
    try:
        names = os.listdir(folder)
    except OSError:
        return set()
    for name in names:
        # One may be closed meanwhile.
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{name}")
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def in_the_way(host: str, port: int, listeners: list[Listener]) -> list[Listener]:
    """Those that keep a listener from an address: on it, or on all where one of both is that.

    A name may be any address.
    """
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        wanted = None
    return [
        one
        for one in listeners
        if one.port == port
        and (
            wanted is None
            or wanted.is_unspecified
            or one.address.is_unspecified
            or wanted == one.address
        )
    ]
