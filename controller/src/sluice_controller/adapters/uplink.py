# SPDX-License-Identifier: GPL-2.0-or-later
"""The queue of an interface, from the kernel over netlink."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ..services.ports import UplinkReading

_ROOT = 0xFFFFFFFF


class LinuxUplinks:
    def __init__(self) -> None:
        self._route: IPRoute | None = None
        self._lock = threading.Lock()

    def _open(self) -> IPRoute:
        if self._route is None:
            self._route = IPRoute()
        return self._route

    def names(self) -> list[str]:
        with self._lock:
            links = self._open().get_links()
        return sorted(link.get_attr("IFLA_IFNAME") for link in links if link["index"] != 1)

    def read(self, name: str) -> UplinkReading:
        """Raises OSError where there is no such interface."""
        with self._lock:
            route = self._open()
            try:
                indices = route.link_lookup(ifname=name)
                if not indices:
                    raise OSError(f"there is no interface {name}")
                qdiscs = [
                    q
                    for q in route.get_qdiscs(index=indices[0])
                    if q["index"] == indices[0] and q["parent"] == _ROOT
                ]
            except NetlinkError as error:
                raise OSError(f"interface {name}: {error}") from error
            if not qdiscs:
                raise OSError(f"interface {name} has no queue discipline")
            rate = _link_rate(route, indices[0], name, qdiscs[0])
        return _reading(qdiscs[0], rate)

    def close(self) -> None:
        with self._lock:
            if self._route is not None:
                self._route.close()
                self._route = None


def _reading(qdisc: Any, rate: float | None) -> UplinkReading:
    stats = qdisc.get_attr("TCA_STATS2")
    queue = stats.get_attr("TCA_STATS_QUEUE") if stats else None
    basic = stats.get_attr("TCA_STATS_BASIC") if stats else None
    if queue is None or basic is None:
        raise OSError("the queue discipline has no statistics")
    return UplinkReading(
        backlog_bytes=queue["backlog"],
        dropped_packets=queue["drops"],
        bytes=basic["bytes"],
        link_bytes_per_second=rate,
    )


def _link_rate(route: IPRoute, index: int, name: str, qdisc: Any) -> float | None:
    """Bytes per second: the discipline's limit, else the interface's speed."""
    kind = qdisc.get_attr("TCA_KIND")
    if kind == "tbf":
        parameters = qdisc.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
        if parameters is not None:
            return float(parameters["rate"])
    if kind == "htb":
        ceilings = [
            c.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["ceil"]
            for c in route.get_classes(index=index)
            if c["parent"] == _ROOT
        ]
        if ceilings:
            return float(max(ceilings))
    try:
        megabits = int(Path(f"/sys/class/net/{name}/speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 125_000 if megabits > 0 else None
