# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.passage: what has passed in each second."""

import struct

from measure.stress.passage import Meter, totals


def test_totals_are_in_the_slots_of_the_ceiling():
    """As docs/specs/counters-page.md has them: behind those of sixteen tags."""
    page = bytearray(128 + 68 * 256)
    for index in range(68):
        struct.pack_into("<QQ", page, 128 + index * 256 + 40, 7, 1000 + index)
    assert totals(bytes(page)) == {
        "blk-read": 1064,
        "blk-write": 1065,
        "net-tx": 1066,
        "net-rx": 1067,
    }


def test_a_second_ends_with_the_first_look_after_it():
    meter = Meter(10.0, {"net-tx": 500})
    assert not meter.due(10.9) and meter.due(11.0)
    meter.look(11.0, {"net-tx": 800})
    assert not meter.due(11.9)
    meter.look(13.0, {"net-tx": 1800})
    meter.look(14.0, {"net-tx": 1800})
    assert meter.rates == {"net-tx": [300.0, 500.0, 0.0]}
