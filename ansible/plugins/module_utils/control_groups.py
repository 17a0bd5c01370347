# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Which service of systemd a process belongs to. Pure."""

from __future__ import annotations


def service_of(control_groups: str) -> str | None:
    """The service that a process belongs to, by what /proc/PID/cgroup says.

    >>> service_of("0::/system.slice/polkit.service\\n")
    'polkit.service'
    """
    for line in control_groups.splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers in ("", "name=systemd"):
            for part in path.split("/"):
                if part.endswith(".service"):
                    return part
    return None
