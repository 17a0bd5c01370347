# SPDX-License-Identifier: GPL-2.0-or-later
"""A class's use of a resource, from the readings of a second."""

import struct

from sluice_controller.domain.use import gate_of, use_of
from sluice_controller.domain.window import Window
from unit.controller.test_counters import MS, PAGE_BYTES, header, put, read, with_second_table

KEY = ("batch", "blk-read")
UNLIMITED = 2**63 - 1


def page(tokens=(UNLIMITED, UNLIMITED), gate=(0, 0, 0, 0, 0), **values):
    made = put(with_second_table(header(), 256), 0, 0, "batch", **values)
    struct.pack_into("<qqQ", made, PAGE_BYTES + 80, *tokens, 7)
    struct.pack_into("<5Q", made, PAGE_BYTES + 216, *gate)
    return made


def window(*pages):
    found = Window()
    for i, one in enumerate(pages):
        found.add(read(one, i * 100 * MS))
    return found


def test_shares_are_of_the_looks():
    looks = [page((-5, UNLIMITED), backlog_requests=3, limit_bytes_per_second=2_000_000)] * 6
    looks += [page((5, UNLIMITED), backlog_requests=3, limit_bytes_per_second=2_000_000)] * 2
    looks += [page((5, UNLIMITED), limit_bytes_per_second=2_000_000)] * 2
    use = use_of(window(*looks), KEY)
    assert (use.held_share, use.spent_bytes_share) == (0.8, 0.75)
    # There is no limit of operations that could be used up.
    assert use.spent_operations_share is None
    assert use.limit_bytes_per_second == 2_000_000


def test_a_class_that_never_waited_says_nothing_of_tokens():
    use = use_of(window(page(), page()), KEY)
    assert (use.held_share, use.spent_bytes_share) == (0.0, None)


def test_requests_in_the_device_in_the_mean_and_how_long_each_takes():
    before = page(completed_requests=100, service_ns=400 * MS, in_flight=1)
    after = page(completed_requests=102, service_ns=480 * MS, in_flight=1)
    use = use_of(window(before, after), KEY)
    assert (use.in_flight, use.service_ms) == (0.8, 40.0)
    assert use.usual_service_ms == 480 / 102


def test_a_request_that_does_not_come_back_counts_for_as_long_as_it_waits():
    use = use_of(window(*[page(in_flight=2)] * 6), KEY)
    assert (use.in_flight, use.service_ms) == (2.0, 500.0)


def test_a_class_that_the_page_has_not_is_not_known():
    assert use_of(window(page()), ("movie", "blk-read")) is None


def test_the_gates_share_of_the_time():
    before = page(gate=(9 * MS, 4096, 512, 3, 10 * MS))
    after = page(gate=(9 * MS, 8192, 512, 4, 60 * MS))
    gate, share = gate_of(window(before, after), KEY)
    assert (gate.window_bytes, share) == (8192, 0.5)


def test_without_a_gate_there_is_no_share():
    assert gate_of(window(page(), page()), KEY) == (None, None)


def test_a_gate_of_another_qemu_has_not_held_for_less_than_no_time():
    window_of_both = window(
        page(gate=(9 * MS, 4096, 512, 3, 60 * MS)), page(gate=(9 * MS, 1, 1, 1, 5))
    )
    assert gate_of(window_of_both, KEY)[1] == 0.0
