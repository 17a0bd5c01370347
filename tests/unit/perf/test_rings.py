# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.rings: where QEMU has a domain's devices."""

import pytest

from perf.rings import Ring, disk_path, given_back, network_path

XML = """<domain><devices>
<disk><target dev='vda'/><alias name='virtio-disk0'/></disk>
<disk><target dev='vdb'/><alias name='ua-sluice-disk1'/></disk>
<interface><alias name='net0'/></interface>
<interface><alias name='ua-sluice-net1'/></interface>
</devices></domain>"""


def test_devices_are_found_by_their_alias():
    assert disk_path(XML, "vdb") == "/machine/peripheral/ua-sluice-disk1/virtio-backend"
    assert disk_path(XML, "vda") == "/machine/peripheral/virtio-disk0/virtio-backend"
    assert network_path(XML, 1) == "/machine/peripheral/ua-sluice-net1/virtio-backend"


def test_a_disk_that_is_not_there_is_named():
    with pytest.raises(LookupError, match="vdz"):
        disk_path(XML, "vdz")


def test_what_was_given_back_is_told_though_the_counter_goes_round():
    assert given_back(Ring(0, 1024, 65500), Ring(5, 1024, 20)) == 56
    assert given_back(Ring(0, 1024, 20), Ring(5, 1024, 20)) == 0
