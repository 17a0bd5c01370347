# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.withdrawn: held requests in a trace."""

from measure.stress.withdrawn import withdrawn

TRACE = """\
shaper_withdraw request 0x55d0c0 blk-write tag 1 bytes 4096
4711@1700000000.000001:shaper_withdraw request 0x55d0c1 blk-write tag 1 bytes 4096
sluice_net_rx_drop pair 0x1 shaper_withdraw
shaper_release request 0x55d0c2 blk-read tag 1 bytes 4096
shaper_withdraw request 0x55d0c3 net-tx tag 0 bytes 1514
shaper_withdraw request 0x55d0
"""


def test_requests_are_counted_by_resource():
    assert withdrawn(TRACE) == {"blk-write": 2, "net-tx": 1}


def test_an_empty_trace_has_none():
    assert withdrawn("").total() == 0
