# SPDX-License-Identifier: GPL-2.0-or-later
"""Limits of libvirt's own, from a domain's XML."""

from sluice_controller.adapters.domain_xml import describe
from sluice_controller.domain.guests import Throttle

DISK = """
<disk type='file' device='disk'><target dev='vda' bus='virtio'/>
  <iotune><total_bytes_sec>2000000</total_bytes_sec><read_iops_sec>100</read_iops_sec>
  <write_bytes_sec>0</write_bytes_sec></iotune></disk>
<disk type='file' device='disk'><target dev='vdb' bus='virtio'/></disk>
"""
CARD = """
<interface type='network'><target dev='vnet0'/><model type='virtio'/>
  <bandwidth><inbound average='1000' peak='2000'/><outbound average='125'/></bandwidth>
</interface>
"""


def throttles(devices):
    return describe(f"<domain><devices>{devices}</devices></domain>").throttles


def test_of_disks_and_cards():
    assert throttles(DISK + CARD) == (
        Throttle("vda", "iotune", "blk", 2_000_000.0, None),
        Throttle("vda", "iotune", "blk-read", None, 100.0),
        # As libvirt names them, seen from the guest; in kilobytes.
        Throttle("vnet0", "bandwidth", "net-rx", 1_000_000.0),
        Throttle("vnet0", "bandwidth", "net-tx", 125_000.0),
    )


def test_what_is_no_number_of_libvirts_limits_nothing():
    assert throttles(DISK.replace("2000000", "-1").replace("100", "²")) == ()
    assert throttles(CARD.replace("average", "floor")) == ()
