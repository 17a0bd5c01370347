# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages are built here from the specification's table, field by field."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.domain.counters import PAGE_BYTES, BadPage, GateState, Stream, read_page
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


def read(page, at_ns, before=None):
    def copy(offset, length):
        return bytes(page[offset : offset + length])

    return read_page(copy, len(page), at_ns, before)


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


def put_untagged(page, tag, resource, untagged, of_requests):
    offset = PAGE_BYTES + (tag * 4 + resource) * 128 + 104
    struct.pack_into("<QQ", page, offset, untagged, of_requests)
    return page


def test_untagged_requests_are_read_from_their_place():
    page = put(with_second_table(header()), 0, 3, "default")
    more = read(put_untagged(page, 0, 3, 7, 9), 0).slots["default", "net-rx"].more
    assert (more.untagged_requests, more.untagged_of_requests) == (7, 9)


def test_streams_and_the_gate_are_read_from_their_places():
    page = put(with_second_table(header(), 256), 0, 1, "default")
    struct.pack_into("<16Q", page, PAGE_BYTES + 256 + 128, *range(16))
    more = read(page, 0).slots["default", "blk-write"].more
    assert more.stream == Stream(0, 1, 2, tuple(range(3, 11)))
    assert more.gate == GateState(11, 12, 13, 14, 15)


def test_a_writer_from_before_the_gate_tells_nothing_of_it():
    page = put(with_second_table(header(), 248), 0, 1, "default")
    more = read(page, 0).slots["default", "blk-write"].more
    assert (more.stream, more.gate) == (None, None)


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


def copied(page, taken):
    """A reader of the page, and how it takes copies: (offset, length) of each."""

    def copy(offset, length):
        taken.append((offset, length))
        return bytes(page[offset : offset + length])

    return copy


def test_of_a_page_that_nobody_writes_one_copy_is_taken_and_kept():
    page = put(put(with_second_table(header()), 0, 0, "default"), 1, 3, "batch", bytes=7)
    first, taken = read(page, 0), []
    struct.pack_into("<Q", page, 40, 2000)
    second = read_page(copied(page, taken), len(page), 100 * MS, first)
    assert taken == [(0, HEADER_BYTES + 8 * SLOT_BYTES)]
    assert second.content is first.content
    assert (second.at_ns, second.header.heartbeat_ns) == (100 * MS, 2000)


@pytest.mark.parametrize(("tail", "as_of"), [(0, 100), (63, 100), (64, 60)])
def test_counters_of_a_page_with_a_tail_are_as_old_as_its_heartbeat(tail, as_of):
    page = put(with_second_table(header()), 0, 0, "default") + bytes(tail)
    struct.pack_into("<Q", page, 40, 60 * MS)
    first = read(page, 100 * MS)
    assert (first.at_ns, read(page, 100 * MS, first).at_ns) == (as_of * MS, as_of * MS)
    # Of a time to come nothing is known.
    struct.pack_into("<Q", page, 40, 2**64 - 1)
    assert read(page, 100 * MS).at_ns == 100 * MS


def test_a_slot_that_moved_is_read_anew_and_the_layout_stays():
    page = put(put(with_second_table(header()), 0, 0, "default"), 1, 3, "batch", bytes=7)
    first = read(page, 0)
    put(page, 1, 3, "batch", seq=4, bytes=9)
    put_more(page, 1, 3, range(10))
    second = read(page, 100 * MS, first)
    assert second.content.layout is first.content.layout
    slot = second.slots["batch", "net-rx"]
    assert (slot.bytes, slot.more.buffered_bytes) == (9, 7)
    assert first.slots["batch", "net-rx"].bytes == 7


@pytest.mark.parametrize(("told", "wait_ms"), [(True, 0), (False, 1000)])
def test_a_class_that_is_granted_later_is_found(told, wait_ms):
    """At once by the page's generation, and at the latest a second later without."""
    page = put(header(), 0, 0, "default")
    first = read(page, 0)
    put(page, 9, 2, "late")
    if told:
        struct.pack_into("<Q", page, 32, 4)
    found = read(page, (100 + wait_ms) * MS, first)
    assert found.slots.keys() == {("default", "blk-read"), ("late", "net-tx")}


def test_a_slot_whose_writer_does_not_rest_is_as_it_was():
    """Its QEMU lost the processor in the middle of a write."""
    page = put(put(header(), 1, 0, "batch", requests=7), 2, 1, "web", requests=1)
    first = read(page, 0)
    put(page, 1, 0, "batch", seq=3, requests=8)
    put(page, 2, 1, "web", seq=4, requests=2)
    second = read(page, 100 * MS, first)
    assert second.slots["batch", "blk-read"].requests == 7
    assert second.slots["web", "blk-write"].requests == 2
    # For as long as it stands still there is nothing to be read.
    assert read(page, 200 * MS, second).content is second.content
    put(page, 1, 0, "batch", seq=4, requests=9)
    assert read(page, 300 * MS, second).slots["batch", "blk-read"].requests == 9


def test_a_slot_is_as_it_was_only_in_the_same_page():
    before = read(put(header(), 1, 0, "batch", requests=7), 0)
    page = put(header(created_ns=6), 1, 0, "batch", seq=3)
    assert read(page, MS, before).slots == read(page, MS).slots == {}


def test_a_slot_that_nobody_uses_any_more_is_gone():
    before = read(put(header(), 1, 0, "batch", requests=7), 0)
    page = put(put(header(), 1, 0, "batch", seq=4), 2, 1, "web", seq=3)
    page[HEADER_BYTES + 4 * SLOT_BYTES + 4] = 0
    for at_ms in (1, 2000):
        assert read(page, at_ms * MS, before).slots == {}


def test_a_slot_that_says_another_place_of_itself_is_none():
    page = put(header(), 1, 0, "batch")
    page[HEADER_BYTES + 4 * SLOT_BYTES + 5] = 2
    assert read(page, 0).slots == {}


@pytest.mark.parametrize("with_before", [False, True])
@pytest.mark.parametrize(("writes", "found"), [(1, True), (3, True), (100, False)])
def test_a_slot_that_is_written_meanwhile_is_read_again(writes, found, with_before):
    """Each copy of the slot meets a writer between its beginning and its end."""
    page, left = put(header(), 1, 0, "batch", requests=1, bytes=1), [writes]
    offset = HEADER_BYTES + 4 * SLOT_BYTES
    before = read(page, 0) if with_before else None
    put(page, 1, 0, "batch", seq=4, requests=2, bytes=2)

    def copy(at, length):
        taken = bytearray(page[at : at + length])
        if at <= offset < at + length and left[0]:
            left[0] -= 1
            for field in ("requests", "bytes"):
                (value,) = struct.unpack_from("<Q", page, offset + OFFSETS[field])
                struct.pack_into("<Q", page, offset + OFFSETS[field], value + 1)
            struct.pack_into("<I", page, offset, struct.unpack_from("<I", page, offset)[0] + 2)
            # The copy has the new count of bytes, and the rest of before.
            taken[offset - at + OFFSETS["bytes"]] += 1
        return bytes(taken)

    reading = read_page(copy, PAGE_BYTES, 0, before)
    if found:
        slot = reading.slots["batch", "blk-read"]
        assert slot.requests == slot.bytes == writes + 2
    else:
        # As it was, if it was known, and nothing is made up.
        assert {slot.bytes for slot in reading.slots.values()} == ({1} if with_before else set())
        left[0] = 0
        later = read_page(copy, PAGE_BYTES, 100 * MS, reading).slots["batch", "blk-read"]
        assert later.requests == later.bytes


def test_a_second_table_that_is_cut_off_meanwhile_is_refused():
    page = bytes(put(with_second_table(header()), 3, 2, "batch"))

    def copy(offset, length):
        return page[: PAGE_BYTES if offset else len(page)][offset : offset + length]

    with pytest.raises(BadPage, match="the page was shortened: it ends before byte"):
        read_page(copy, len(page), 0)


@given(st.integers(0, PAGE_BYTES - 1), st.booleans())
def test_a_page_that_ends_anywhere_is_refused(length, is_known):
    """While it is read: of what was there, or of what has moved since the reading before."""
    whole = put(header(), 15, 3, "batch")
    before = read(whole, 0) if is_known else None
    put(whole, 15, 3, "batch", seq=4)
    copies = iter([bytes(whole)])

    def copy(offset, wanted):
        return next(copies, bytes(whole)[:length])[offset : offset + wanted]

    if length <= HEADER_BYTES + 63 * SLOT_BYTES + SLOT_BYTES - 1:
        with pytest.raises(BadPage, match="the page was shortened: it ends before byte"):
            read_page(copy, PAGE_BYTES, 0, before)
    else:
        assert read_page(copy, PAGE_BYTES, 0, before).slots


@given(st.binary(min_size=SLOT_BYTES, max_size=SLOT_BYTES), st.integers(0, 67))
def test_any_slot_content_is_survived(content, index):
    page = header()
    offset = HEADER_BYTES + index * SLOT_BYTES
    page[offset : offset + SLOT_BYTES] = content
    for slot in read(page, 0).slots.values():
        assert slot.resource in ("blk-read", "blk-write", "net-tx", "net-rx")


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
