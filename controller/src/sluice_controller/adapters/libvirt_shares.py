# SPDX-License-Identifier: GPL-2.0-or-later
"""Running domains' shares of the processors: libvirt sets the weights of their control groups.

Definitions stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import libvirt

from ..domain.easing import NO_QUOTA_US, Share
from ..domain.errors import Unavailable
from .libvirt_host import LibvirtHost

Answer = TypeVar("Answer")

WEIGHT = libvirt.VIR_DOMAIN_SCHEDULER_CPU_SHARES
QUOTA = libvirt.VIR_DOMAIN_SCHEDULER_VCPU_QUOTA
PERIOD = libvirt.VIR_DOMAIN_SCHEDULER_VCPU_PERIOD

# libvirt takes no larger one, and answers one for "no quota".
LARGEST_QUOTA_US = 17592186044415


class LibvirtShares:
    def __init__(self, host: LibvirtHost) -> None:
        self.host = host

    def read(self, name: str) -> Share:
        """Unavailable where libvirt cannot tell, as without control groups of processors."""
        domain = self.host.domain(name)
        found = self._tried(
            name, lambda: domain.schedulerParametersFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE)
        )
        # A kernel without quotas has weights alone.
        share = Share(found[WEIGHT])
        if QUOTA not in found:
            return share
        has_quota = 0 < found[QUOTA] <= LARGEST_QUOTA_US
        quota_us = found[QUOTA] if has_quota else NO_QUOTA_US
        return Share(share.weight, quota_us, found[PERIOD])

    def set(self, name: str, before: Share, share: Share) -> None:
        """Sets the parts that differ."""
        values: dict[str, int] = {}
        if share.weight != before.weight:
            values[WEIGHT] = share.weight
        if share.quota_us != before.quota_us:
            values[QUOTA] = share.quota_us
        if not values:
            return
        domain = self.host.domain(name)
        self._tried(
            name,
            lambda: domain.setSchedulerParametersFlags(values, libvirt.VIR_DOMAIN_AFFECT_LIVE),
        )

    def _tried(self, name: str, call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except libvirt.libvirtError as error:
            self.host.lost(error)
            raise Unavailable(
                "processors of domain",
                name,
                f"cannot be shared out ({error})",
                "see that libvirt may use control groups of processors (cgroup_controllers in"
                " qemu.conf); sluiced tries again by itself",
            ) from error
