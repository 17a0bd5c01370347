# SPDX-License-Identifier: GPL-2.0-or-later
"""sluiced's own queue discipline on an uplink's ports, by tc and netlink."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ..domain.uplink_first import HANDLE, MAJOR, OTHERS
from ..services.ports import ClassReading
from .uplink import root_disciplines

log = logging.getLogger(__name__)

_TC_SECONDS = 10.0
_OTHERS = f"{MAJOR:x}:{OTHERS:x}"


class LinuxUplinkQueues:
    def other(self, port: str) -> str | None:
        """An operator's discipline on the port, in words; None if there is none.

        The kernel's own choice has no number. Raises OSError.
        """
        root = self._root(port)
        if root is None or root["handle"] in (0, HANDLE):
            return None
        return f"{root.get_attr('TCA_KIND')} {root['handle'] >> 16:x}:"

    def owned(self) -> list[str]:
        """The interfaces that have sluiced's discipline. Raises OSError."""
        with _route() as route:
            names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in route.get_links()}
        roots = root_disciplines(names)
        return sorted(names[index] for index, root in roots.items() if root["handle"] == HANDLE)

    def classes(self, port: str) -> dict[int, ClassReading] | None:
        """By number; None where the discipline is not sluiced's. Raises OSError."""
        root = self._root(port)
        if root is None or root["handle"] != HANDLE:
            return None
        with _route() as route:
            found = route.get_classes(index=root["index"])
            return {one["handle"]: _reading(one) for one in found}

    def change(self, lines: Sequence[str]) -> None:
        """Raises OSError with tc's words."""
        _tc("-batch", "-", said="".join(f"{line}\n" for line in lines))

    def make_fair(self, port: str) -> None:
        """Has flows beside the streams share by turns, where the kernel can."""
        try:
            _tc("qdisc", "replace", "dev", port, "parent", _OTHERS, "fq_codel")
        except OSError as error:
            log.info("%s: what does not go first waits in one queue, not fq_codel: %s", port, error)

    def remove(self, port: str) -> None:
        """The kernel's own discipline is back then. Raises OSError."""
        _tc("qdisc", "del", "dev", port, "root")

    def _root(self, port: str) -> Any:
        with _route() as route:
            indices = route.link_lookup(ifname=port)
        if not indices:
            raise OSError(f"there is no interface {port}")
        return root_disciplines(indices).get(indices[0])


@contextlib.contextmanager
def _route() -> Any:
    try:
        with IPRoute() as route:
            yield route
    except NetlinkError as error:
        raise OSError(str(error)) from error


def _tc(*words: str, said: str = "") -> None:
    try:
        subprocess.run(
            ["tc", *words],
            input=said,
            capture_output=True,
            text=True,
            timeout=_TC_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise OSError("there is no tc: install iproute2") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"tc has not ended after {_TC_SECONDS:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise OSError(" ".join(error.stderr.split()) or f"tc ended with {error.returncode}") from (
            error
        )


def _reading(found: Any) -> ClassReading:
    stats = found.get_attr("TCA_STATS2")
    basic, queue = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
    return ClassReading(basic["bytes"], queue["backlog"], queue["drops"])
