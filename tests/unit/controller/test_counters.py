# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages are built here from the specification's table, field by field."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.domain.counters import (
    PAGE_BYTES,
    BadPage,
    Window,
    percentile_ms,
    read_page,
)
from unit.controller.shortening import shortened

MS = 1_000_000
HEADER_BYTES, SLOT_BYTES = 128, 256
OFFSETS = {
    "requests": 40,
    "bytes": 48,
    "held_requests": 56,
    "held_ns": 64,
    "dropped_requests": 72,
    "dropped_bytes": 80,
    "backlog_requests": 88,
    "backlog_bytes": 96,
    "limit_bytes_per_second": 104,
    "limit_operations_per_second": 112,
    "burst_bytes": 120,
    "burst_operations": 128,
    "completed_requests": 136,
    "service_ns": 144,
    "in_flight": 152,
}


def header(**changes):
    fields = {
        "magic": b"SLUICEPG",
        "version": 1,
        "header_bytes": 128,
        "slot_bytes": 256,
        "slot_count": 68,
        "created_ns": 5,
        **changes,
    }
    page = bytearray(PAGE_BYTES)
    page[0:8] = fields["magic"]
    struct.pack_into(
        "<IIII",
        page,
        8,
        *(fields[name] for name in ("version", "header_bytes", "slot_bytes", "slot_count")),
    )
    struct.pack_into("<QQQI", page, 24, fields["created_ns"], 3, 1000, 4242)
    page[56:63] = b"sluice0"
    return page


def put(page, tag, resource, name, seq=2, histogram=(), **values):
    offset = HEADER_BYTES + (tag * 4 + resource) * SLOT_BYTES
    struct.pack_into("<IBBBB", page, offset, seq, 1, tag, resource, 5)
    page[offset + 8 : offset + 8 + len(name)] = name.encode()
    for field, value in values.items():
        struct.pack_into("<Q", page, offset + OFFSETS[field], value)
    for i, count in enumerate(histogram):
        struct.pack_into("<Q", page, offset + 160 + 8 * i, count)
    return page


def read(page, at_ns):
    return read_page(lambda offset, length: bytes(page[offset : offset + length]), len(page), at_ns)


MORE_FIELDS = (
    "marked_requests",
    "buffered_requests",
    "buffered_bytes",
    "buffer_requests_max",
    "buffer_bytes_max",
)


def with_second_table(page, entry_bytes=128, offset=PAGE_BYTES):
    page += bytes(68 * entry_bytes)
    struct.pack_into("<I", page, 52, entry_bytes)
    struct.pack_into("<Q", page, 120, offset)
    return page


def put_more(page, tag, resource, values, entry_bytes=128):
    offset = PAGE_BYTES + (tag * 4 + resource) * entry_bytes
    struct.pack_into("<10Q", page, offset, *values)
    return page


def put_tokens(page, tag, resource, in_bytes, in_operations, at_ns):
    offset = PAGE_BYTES + (tag * 4 + resource) * 128 + 80
    struct.pack_into("<qqQ", page, offset, in_bytes, in_operations, at_ns)
    return page


@pytest.mark.parametrize("entry_bytes", [128, 256])
def test_the_second_table_is_read_from_its_place(entry_bytes):
    page = put(with_second_table(header(), entry_bytes), 3, 2, "batch")
    more = read(put_more(page, 3, 2, range(10), entry_bytes), 0).slots["batch", "net-tx"].more
    assert more.drops == (0, 1, 2, 3, 4)
    assert [getattr(more, name) for name in MORE_FIELDS] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("entry_bytes", "offset"),
    [
        (0, 0),
        (127, PAGE_BYTES),
        (128, PAGE_BYTES + 1),
        (128, PAGE_BYTES - 1),
        (128, 0),
        (2**32 - 1, PAGE_BYTES),
        (128, 2**64 - 1),
    ],
)
def test_a_second_table_that_is_not_all_there_is_none(entry_bytes, offset):
    page = put(with_second_table(header()), 3, 2, "batch")
    struct.pack_into("<I", page, 52, entry_bytes)
    struct.pack_into("<Q", page, 120, offset)
    assert read(page, 0).slots["batch", "net-tx"].more is None


def test_drops_by_reason_and_marks_are_rates():
    window = Window()
    for at_ms, values in ((0, [10] * 10), (2000, [10, 12, 10, 14, 10, 16, 3, 4000, 500, 131072])):
        page = put(with_second_table(header()), 0, 3, "default", dropped_requests=sum(values[:5]))
        window.add(read(put_more(page, 0, 3, values), at_ms * MS))
    sample = window.samples()["default"]["net-rx"]
    assert sample["dropped_per_second"] == 3
    assert sample["drops_per_second"] == {
        "backlog": 0,
        "codel": 1,
        "connection": 0,
        "window": 2,
        "reset": 0,
    }
    assert sample["marked_per_second"] == 3
    assert (sample["buffered_bytes"], sample["buffer_bytes_max"]) == (4000, 131072)


UNLIMITED = 2**63 - 1


@pytest.mark.parametrize(
    ("in_page", "in_sample"),
    [
        ((4096, 3, 7), (4096, 3)),
        ((-2288, UNLIMITED, 1), (-2288, None)),
        ((UNLIMITED, -(2**62), 2**63), (None, -(2**62))),
        ((0, 0, 1), (0, 0)),
        # Written before there were tokens.
        ((0, 0, 0), (None, None)),
    ],
)
def test_tokens_are_gauges_where_there_is_a_limit(in_page, in_sample):
    window = Window()
    page = put(with_second_table(header()), 3, 0, "batch")
    window.add(read(put_tokens(page, 3, 0, *in_page), 0))
    sample = window.samples()["batch"]["blk-read"]
    assert (sample["tokens_bytes"], sample["tokens_operations"]) == in_sample


def test_bursts_are_told_where_there_is_a_limit():
    slot = {"limit_bytes_per_second": 20_000_000, "burst_bytes": 65536, "burst_operations": 7}
    sample = window_of((0, slot), (1000, slot)).samples()["default"]["blk-read"]
    assert (sample["burst_bytes"], sample["burst_operations"]) == (65536, None)
    slot = {"limit_operations_per_second": 50, "burst_bytes": 65536, "burst_operations": 7}
    sample = window_of((0, slot), (1000, slot)).samples()["default"]["blk-read"]
    assert (sample["burst_bytes"], sample["burst_operations"]) == (None, 7)


def test_a_page_without_a_second_table_tells_nothing_of_tokens():
    sample = window_of((0, {}), (1000, {})).samples()["default"]["blk-read"]
    assert (sample["tokens_bytes"], sample["tokens_operations"]) == (None, None)


def test_an_older_page_tells_nothing_of_reasons():
    sample = window_of((0, {}), (1000, {"dropped_requests": 5})).samples()["default"]["blk-read"]
    assert sample["dropped_per_second"] == 5
    assert (sample["drops_per_second"], sample["marked_per_second"]) == (None, None)


def test_fields_are_read_from_their_places():
    values = {name: 1000 + i for i, name in enumerate(OFFSETS)}
    page = put(header(), 3, 1, "batch", histogram=range(12), **values)
    reading = read(page, 7)
    slot = reading.slots["batch", "blk-write"]
    assert {name: getattr(slot, name) for name in OFFSETS} == values
    assert slot.histogram == tuple(range(12))
    assert (slot.tag, slot.priority) == (3, 5)
    head = reading.header
    assert (head.created_ns, head.generation, head.heartbeat_ns, head.pid, head.shaper_id) == (
        5,
        3,
        1000,
        4242,
        "sluice0",
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": b"SLUICEPX"},
        {"version": 2},
        {"slot_bytes": 128},
        {"slot_count": 69},
        {"header_bytes": 64},
    ],
)
def test_another_format_is_refused(changes):
    with pytest.raises(BadPage, match="expected"):
        read(header(**changes), 0)


def test_a_short_page_is_refused():
    with pytest.raises(BadPage, match="bytes"):
        read(header()[:-1], 0)


def test_a_slot_that_is_being_written_is_left_out():
    page = put(header(), 1, 0, "batch", seq=3)
    reading = read(page, 0)
    assert (reading.slots, reading.unsettled) == ({}, {4})


def test_a_slot_whose_writer_does_not_rest_is_as_it_was():
    """Its QEMU lost the processor in the middle of a write."""
    pages = [
        put(put(header(), 1, 0, "batch", seq=2, requests=7), 2, 1, "web", requests=count)
        for count in (1, 2)
    ]
    put(pages[1], 1, 0, "batch", seq=3, requests=8)
    window = Window()
    for at_ms, page in enumerate(pages):
        window.add(read(page, at_ms * MS))
    assert window.samples().keys() == {"batch", "web"}
    assert window.readings[-1].slots["batch", "blk-read"].requests == 7
    assert window.readings[-1].slots["web", "blk-write"].requests == 2


def test_a_slot_is_as_it_was_only_in_the_same_page():
    before = read(put(header(), 1, 0, "batch", requests=7), 0)
    replaced = read(put(header(created_ns=6), 1, 0, "batch", seq=3), MS)
    assert replaced.settled(before).slots == replaced.settled(None).slots == {}


def test_a_slot_that_nobody_uses_any_more_is_gone():
    before = read(put(header(), 1, 0, "batch", requests=7), 0)
    page = put(put(header(), 1, 0, "batch"), 2, 1, "web", seq=3)
    page[HEADER_BYTES + 4 * SLOT_BYTES + 4] = 0
    assert read(page, MS).settled(before).slots == {}


@pytest.mark.parametrize(("writes", "found"), [(1, True), (3, True), (100, False)])
def test_a_slot_that_is_written_meanwhile_is_read_again(writes, found):
    """Each copy of the slot meets a writer between its beginning and its end."""
    page, left = put(header(), 1, 0, "batch", requests=1, bytes=1), [writes]
    offset = HEADER_BYTES + 4 * SLOT_BYTES

    def copy(at, length):
        taken = bytearray(page[at : at + length])
        if at == offset and length == SLOT_BYTES and left[0]:
            left[0] -= 1
            for field in ("requests", "bytes"):
                (value,) = struct.unpack_from("<Q", page, offset + OFFSETS[field])
                struct.pack_into("<Q", page, offset + OFFSETS[field], value + 1)
            struct.pack_into("<I", page, offset, struct.unpack_from("<I", page, offset)[0] + 2)
            # The copy has the new count of bytes, and the rest of before.
            taken[OFFSETS["bytes"]] += 1
        return bytes(taken)

    slots = read_page(copy, PAGE_BYTES, 0).slots
    assert bool(slots) == found
    for slot in slots.values():
        assert slot.requests == slot.bytes == writes + 1


def test_a_second_table_that_is_cut_off_meanwhile_is_refused():
    page = bytes(put(with_second_table(header()), 3, 2, "batch"))

    def copy(offset, length):
        return page[: PAGE_BYTES if offset else len(page)][offset : offset + length]

    with pytest.raises(BadPage, match="the page was shortened: it ends before byte"):
        read_page(copy, len(page), 0)


@given(st.integers(0, PAGE_BYTES - 1))
def test_a_page_that_ends_anywhere_is_refused(length):
    whole = bytes(put(header(), 15, 3, "batch"))
    copies = iter([whole])

    def copy(offset, wanted):
        return next(copies, whole[:length])[offset : offset + wanted]

    if length <= HEADER_BYTES + 63 * SLOT_BYTES + SLOT_BYTES - 1:
        with pytest.raises(BadPage, match="the page was shortened: it ends before byte"):
            read_page(copy, PAGE_BYTES, 0)
    else:
        assert read_page(copy, PAGE_BYTES, 0).slots


@given(st.binary(min_size=SLOT_BYTES, max_size=SLOT_BYTES), st.integers(0, 67))
def test_any_slot_content_is_survived(content, index):
    page = header()
    offset = HEADER_BYTES + index * SLOT_BYTES
    page[offset : offset + SLOT_BYTES] = content
    for slot in read(page, 0).slots.values():
        assert slot.resource in ("blk-read", "blk-write", "net-tx", "net-rx")


def window_of(*steps):
    window = Window()
    for at_ms, values in steps:
        page = put(header(), 0, 0, "default", **values)
        window.add(read(page, at_ms * MS))
    return window


def test_rates_over_the_last_second():
    steps = [(t, {"bytes": t * 2000, "requests": t // 100}) for t in range(0, 3001, 100)]
    sample = window_of(*steps).samples()["default"]["blk-read"]
    assert sample["bytes_per_second"] == pytest.approx(2e6)
    assert sample["requests_per_second"] == pytest.approx(10)


def test_means_of_waiting_and_service():
    sample = window_of(
        (0, {}),
        (
            1000,
            {
                "requests": 10,
                "held_requests": 4,
                "held_ns": 40 * MS,
                "completed_requests": 8,
                "service_ns": 80 * MS,
                "limit_bytes_per_second": 5000,
            },
        ),
    ).samples()["default"]["blk-read"]
    assert sample["held_mean_ms"] == 10
    assert sample["service_mean_ms"] == 10
    assert sample["limit_bytes_per_second"] == 5000
    assert sample["limit_operations_per_second"] is None


def test_counters_that_began_anew_give_no_negative_rate():
    sample = window_of((0, {"bytes": 10**9}), (1000, {"bytes": 5})).samples()
    assert sample["default"]["blk-read"]["bytes_per_second"] == 0


def test_a_new_qemu_clears_the_window():
    window = window_of((0, {"bytes": 0}))
    window.add(read(put(header(created_ns=9), 0, 0, "default", bytes=10**9), 1000 * MS))
    assert window.samples()["default"]["blk-read"]["bytes_per_second"] == 0


def test_the_slowest_tick_counts():
    window = window_of(
        (0, {}),
        (100, {"completed_requests": 1, "service_ns": 10 * MS}),
        (200, {"completed_requests": 2, "service_ns": 90 * MS}),
        (300, {"completed_requests": 4, "service_ns": 100 * MS}),
    )
    assert window.worst_service_ms("default", "blk-read") == 80


def test_a_request_that_does_not_come_back_counts_while_it_waits():
    window = window_of(*((t, {"in_flight": 1}) for t in range(0, 901, 100)))
    assert window.worst_service_ms("default", "blk-read") == 900


def test_percentiles_are_upper_edges():
    assert percentile_ms((99, 1), 0.99) == 0.004
    assert percentile_ms((0,) * 11 + (1,), 0.99) == 4**12 / 1000
    assert percentile_ms((), 0.99) == 0


def test_p99_counts_requests_that_did_not_wait():
    steps = ((0, {}), (1000, {"requests": 1000, "histogram": (0, 0, 0, 0, 0, 5)}))
    assert window_of(*steps).samples()["default"]["blk-read"]["held_p99_ms"] == 0
    steps = ((0, {}), (1000, {"requests": 100, "histogram": (0, 0, 0, 0, 0, 5)}))
    assert window_of(*steps).samples()["default"]["blk-read"]["held_p99_ms"] == 4**6 / 1000


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=30))
def test_recent_rates_are_never_negative(counts):
    window = window_of(*((i * 100, {"bytes": count}) for i, count in enumerate(counts)))
    assert window.recent_bytes_per_second("default", "blk-read") >= 0
    assert window.samples()["default"]["blk-read"]["bytes_per_second"] >= 0


# Files


@pytest.fixture
def page_file(tmp_path):
    path = tmp_path / "web1.page"
    path.write_bytes(put(header(), 3, 1, "batch", bytes=7))
    return path


def test_a_page_is_read_from_its_file_and_from_the_one_that_replaces_it(page_file):
    pages = CountersPages(lambda: 5)
    assert pages.read(str(page_file)).slots["batch", "blk-write"].bytes == 7
    newer = page_file.with_name("new")
    newer.write_bytes(put(header(), 3, 1, "batch", bytes=8))
    newer.rename(page_file)
    assert pages.read(str(page_file)).slots["batch", "blk-write"].bytes == 8
    # A second table after the page is none of ours.
    with page_file.open("ab") as file:
        file.write(b"x" * 4096)
    assert pages.read(str(page_file)).at_ns == 5


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    """QEMU's group may write the folder of pages."""
    pages = CountersPages(lambda: 0)
    pipe = tmp_path / "pipe.page"
    os.mkfifo(pipe)
    with pytest.raises(BadPage, match="is no regular file"):
        pages.read(str(pipe))
    link = tmp_path / "link.page"
    link.symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        pages.read(str(link))


def test_a_page_that_is_shortened_while_it_is_read_is_named(page_file):
    done = shortened("read_counters_that_are_shortened_then", page_file)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.startswith("refused: the page has 0 bytes, expected")


def test_a_page_that_is_shortened_over_and_over_ends_nobody(page_file):
    done = shortened("read_counters_while_they_are_shortened", page_file)
    assert done.returncode == 0, (done.returncode, done.stderr)
    lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    others = [line for line in lines if line != "True"]
    assert "True" in lines and others, done.stdout
    assert all(line.startswith("refused: the page") for line in others), done.stdout
