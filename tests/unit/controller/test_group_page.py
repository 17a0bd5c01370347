# SPDX-License-Identifier: GPL-2.0-or-later
"""Group pages: the bytes, held against the C code that QEMU reads them with."""

import os
import stat
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.group_pages import GroupPages
from sluice_controller.domain.errors import BadValue, NotFound
from sluice_controller.domain.group_page import (
    AHEAD_NS,
    BURST_MAX,
    COUNTER_MAX,
    PAGE_BYTES,
    RATE_MAX,
    REAP_NS,
    UNITS,
    GroupLimit,
    check_identity,
    members,
    new_page,
    read_limit,
    seal,
    write_limit,
)
from unit.controller.shortening import shortened

TOP = Path(__file__).resolve().parents[3]
SOURCES = TOP / "qemu-patches" / "src"
HEADER_BYTES = 512
LIMIT = GroupLimit("bytes", 1_000_000, 50_000)


class Oracle:
    """The C code, as a process that answers line by line."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words: object) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def set(self, command: str, limit: GroupLimit, now_ns: int) -> str:
        return self.ask(command, UNITS.index(limit.unit), limit.rate, limit.burst, now_ns)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    program = tmp_path_factory.mktemp("oracle") / "oracle"
    sources = [SOURCES / "sluice" / f"{n}.c" for n in ("group", "group-member", "group-page")]
    here = Path(__file__).parent / "group_page_oracle.c"
    command = ["cc", "-std=gnu11", "-O1", f"-I{SOURCES / 'include'}", here, *sources, "-o", program]
    subprocess.run(command, check=True)
    running = Oracle(program)
    yield running
    running.process.stdin.close()
    running.process.wait()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "page"


def changed(page: bytes, limit: GroupLimit, now_ns: int) -> bytes:
    copy = bytearray(page)
    write_limit(page, limit, now_ns, lambda at, word: struct.pack_into("=Q", copy, at, word))
    return bytes(copy)


limits = st.builds(
    GroupLimit,
    st.just("bytes"),
    st.one_of(st.integers(1, 20), st.integers(1, RATE_MAX)),
    st.integers(1, BURST_MAX),
)
waits_ns = st.one_of(st.integers(0, 10**9), st.integers(0, 10**17))


@given(start=st.integers(0, 2**60), first=limits, later=st.lists(st.tuples(waits_ns, limits)))
def test_every_change_gives_the_bytes_that_qemu_would_write(oracle, start, first, later):
    page = new_page("disks", first, start)
    assert oracle.set("init", first, start) == page[:HEADER_BYTES].hex()
    for wait_ns, limit in later[:8]:
        start += wait_ns
        page = changed(page, limit, start)
        assert oracle.set("configure", limit, start) == page[:HEADER_BYTES].hex()
        assert read_limit(page, start) == limit


words = st.one_of(st.integers(0, 5), st.integers(0, 2**41), st.integers(0, 2**64 - 1))


@given(
    now_ns=st.integers(0, 2**60),
    found=st.tuples(words, st.integers(0, 2), words, words, words, words),
    ahead_ns=st.one_of(st.none(), st.integers(-2, 2)),
    whole=st.booleans(),
    tat=words,
)
def test_any_limit_is_repaired_as_qemu_would(oracle, scratch, now_ns, found, ahead_ns, whole, tat):
    """Whoever may write the page can give any words a check that matches."""
    if ahead_ns is not None:
        found = (2, 0, *found[2:4], now_ns + AHEAD_NS + ahead_ns, found[5])
    page = bytearray(new_page("disks", LIMIT, 0))
    struct.pack_into("=7Q", page, 128, *(seal(found) if whole else (*found, 0)))
    struct.pack_into("=Q", page, 256, tat)
    scratch.write_bytes(page)
    oracle.ask("load", scratch)
    asked = oracle.set("configure", LIMIT, now_ns)
    try:
        assert asked == changed(bytes(page), LIMIT, now_ns)[:HEADER_BYTES].hex()
    except BadValue:
        assert asked == "refused"


def test_a_clock_far_ahead_is_damage_and_its_repair_gives_no_tokens():
    now_ns = 10**12
    page = bytearray(new_page("disks", LIMIT, now_ns + AHEAD_NS))
    assert read_limit(bytes(page), now_ns) == LIMIT
    page = bytearray(new_page("disks", LIMIT, now_ns + AHEAD_NS + 1))
    struct.pack_into("=Q", page, 256, 123_456_789)
    assert read_limit(bytes(page), now_ns) is None
    after = changed(bytes(page), LIMIT, now_ns)
    assert read_limit(after, now_ns) == LIMIT
    assert struct.unpack_from("=2Q", after, 160) == (now_ns, 123_456_789 - LIMIT.burst)


@pytest.mark.parametrize("stores", range(8))
def test_a_writer_that_is_killed_leaves_a_page_that_the_next_repairs(stores):
    page = bytearray(new_page("disks", LIMIT, 0))
    fast = GroupLimit("bytes", 9_000_000, 7_000)

    class Killed(Exception):
        pass

    def put(at, word, left=[stores]):  # noqa: B006 - counts across calls
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        struct.pack_into("=Q", page, at, word)

    with pytest.raises(Killed):
        write_limit(bytes(page), fast, 10**9, put)
    assert read_limit(bytes(page), 10**9) == (None if stores else LIMIT)
    assert read_limit(changed(bytes(page), fast, 10**9), 10**9) == fast


def test_what_is_out_of_range_is_refused_whole():
    for bad in (
        GroupLimit("frames", 1, 1),
        GroupLimit("bytes", 0, 1),
        GroupLimit("bytes", RATE_MAX + 1, 1),
        GroupLimit("bytes", 1, 0),
        GroupLimit("bytes", 1, BURST_MAX + 1),
    ):
        with pytest.raises(BadValue):
            new_page("disks", bad, 0)
        with pytest.raises(BadValue):
            changed(new_page("disks", LIMIT, 0), bad, 0)
    with pytest.raises(BadValue, match="counts bytes"):
        changed(new_page("disks", LIMIT, 0), GroupLimit("operations", 1, 1), 0)
    with pytest.raises(BadValue, match="too long"):
        new_page("x" * 64, LIMIT, 0)


def test_foreign_files_are_refused():
    page = new_page("disks", LIMIT, 0)
    assert check_identity(page) == "disks"
    for bad in (page[:-1], b"X" + page[1:], page[:8] + b"\2" + page[9:]):
        with pytest.raises(BadValue):
            check_identity(bad)


def test_members_are_those_with_a_sign_of_life():
    page = bytearray(new_page("disks", LIMIT, 0))
    now_ns = 10 * REAP_NS
    for slot, (owner, beat) in enumerate(((0, now_ns), (7 << 32 | 42, now_ns), (9, REAP_NS))):
        struct.pack_into(
            "=8Q64s", page, 512 + 128 * slot, owner, beat, 300, 0, now_ns + 1, 0, 5, 6, b"vm1 x\xff"
        )
    (only,) = members(bytes(page), now_ns)
    assert (only.pid, only.weight, only.waiting) == (42, 300, True)
    assert (only.requests, only.units, only.label) == (5, 6, "vm1 x\ufffd")


@pytest.mark.parametrize(
    ("weight", "shown"), [(0, 0), (10000, 10000), (10001, 0), (2**32 + 5, 0), (2**64 - 1, 0)]
)
def test_a_member_is_shown_as_it_can_be(weight, shown):
    page = bytearray(new_page("disks", LIMIT, 0))
    # Escape sequences, a change of the reading direction, the end of a line.
    label = b"vm1 \x1b[2Jx\xe2\x80\xaey\nz"
    most = 2**64 - 1
    struct.pack_into("=8Q64s", page, 512, most, 5, weight, most, most, most, most, most, label)
    (only,) = members(bytes(page), 5)
    assert (only.weight, only.requests, only.units) == (shown, COUNTER_MAX, COUNTER_MAX)
    assert (only.pid, only.waiting) == (2**32 - 1, True)
    assert only.label == "vm1 \ufffd[2Jx\ufffdy\ufffdz"
    assert members(bytes(page), 5 + REAP_NS) == []


# Files


def test_a_file_is_created_whole_changed_in_place_and_taken_up_again(tmp_path, oracle):
    folder = tmp_path / "groups"
    pages = GroupPages(folder, None, lambda: 5 * 10**9)
    pages.ensure("disks", LIMIT)
    path = pages.path("disks")
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o660 and status.st_size == PAGE_BYTES
    assert os.listdir(folder) == ["disks.group"] and pages.names() == ["disks"]
    assert oracle.ask("load", path) == "0"
    # A second at the first limit, then one at the second: another daemon's change.
    later = GroupPages(folder, None, lambda: 6 * 10**9)
    fast = GroupLimit("bytes", 3_000_000, 80_000)
    later.ensure("disks", fast)
    assert path.stat().st_ino == status.st_ino
    assert later.limit("disks") == fast
    assert oracle.ask("load", path) == "0"
    assert oracle.ask("clock", 7 * 10**9) == "4000000"
    before = path.read_bytes()
    later.ensure("disks", fast)
    assert path.read_bytes() == before
    later.remove("disks")
    later.remove("disks")
    with pytest.raises(NotFound):
        later.limit("disks")


def test_a_page_of_an_earlier_boot_is_made_anew(tmp_path):
    GroupPages(tmp_path, None, lambda: 10**15).ensure("disks", LIMIT)
    pages = GroupPages(tmp_path, None, lambda: 10**9)
    before = pages.path("disks").stat().st_ino
    pages.ensure("disks", LIMIT)
    assert pages.path("disks").stat().st_ino != before
    assert pages.created_ns("disks") == 10**9


def test_a_clock_far_ahead_is_repaired_and_the_page_stays(tmp_path):
    pages = GroupPages(tmp_path, None, lambda: 10**12)
    pages.ensure("disks", LIMIT)
    page = pages.path("disks")
    before = page.stat().st_ino
    for ahead_ns in (AHEAD_NS + 1, 10**15, 2**63):
        hostile = bytearray(page.read_bytes())
        # Who wrote that says, too, that the page was made in another time.
        struct.pack_into("=Q", hostile, 24, 10**12 + ahead_ns)
        struct.pack_into("=7Q", hostile, 128, *seal((8, 0, 10**6, 50_000, 10**12 + ahead_ns, 0)))
        with page.open("r+b") as file:
            file.write(hostile)
        assert pages.limit("disks") is None
        pages.ensure("disks", LIMIT)
        assert pages.limit("disks") == LIMIT
        assert page.stat().st_ino == before
        assert pages.created_ns("disks") == 10**12
        assert struct.unpack_from("=Q", page.read_bytes(), 160) == (10**12,)


def identity(offset, content):
    return lambda path: path.write_bytes(
        path.read_bytes()[:offset] + content + path.read_bytes()[offset + len(content) :]
    )


def no_file(make):
    def put(path):
        path.unlink()
        make(path)

    return put


DAMAGE = {
    "short": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "long": lambda path: os.truncate(path, PAGE_BYTES + 1),
    "magic": identity(0, b"X"),
    "version": identity(8, b"\2"),
    "sizes": identity(20, b"\0\0\0\0"),
    "another group's": identity(32, b"others\0"),
    "no text": identity(32, b"\xff" * 64),
    "zeroes": lambda path: path.write_bytes(bytes(PAGE_BYTES)),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * (PAGE_BYTES // 256)),
    "another unit": lambda path: identity(
        128, struct.pack("=7Q", *seal((8, 1, 10**6, 50_000, 10**9, 0)))
    )(path),
    "for everybody": lambda path: path.chmod(0o666),
    "a link": no_file(lambda path: path.symlink_to("/etc/passwd")),
    "a link to nowhere": no_file(lambda path: path.symlink_to("nowhere")),
    "a pipe": no_file(os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_page_that_is_damaged_is_made_anew(tmp_path, damage, oracle, caplog):
    now_ns = [10**12]
    pages = GroupPages(tmp_path, None, lambda: now_ns[0])
    pages.ensure("disks", LIMIT)
    path = pages.path("disks")
    made_ns = pages.created_ns("disks")
    held = os.open(path, os.O_RDWR)
    DAMAGE[damage](path)
    now_ns[0] += 10**9
    pages.ensure("disks", LIMIT)
    status = path.lstat()
    assert stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o660
    # Those who have the old one keep it until they join the new one, which they know by this.
    assert os.fstat(held).st_ino != status.st_ino
    os.close(held)
    assert pages.created_ns("disks") != made_ns
    assert pages.limit("disks") == LIMIT and pages.members("disks") == []
    assert oracle.ask("load", path) == "0"
    # And it begins without a token.
    (tat,) = struct.unpack_from("=Q", path.read_bytes(), 256)
    assert tat - int(oracle.ask("clock", now_ns[0])) == LIMIT.burst
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert "group disks: its page is made anew" in caplog.text
    before = path.read_bytes()
    pages.ensure("disks", LIMIT)
    assert path.read_bytes() == before and path.lstat().st_ino == status.st_ino


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_a_page_of_another_user_is_made_anew(tmp_path):
    pages = GroupPages(tmp_path, None, lambda: 10**12)
    pages.ensure("disks", LIMIT)
    os.chown(pages.path("disks"), 65534, -1)
    with pytest.raises(BadValue, match="belongs to user 65534"):
        pages.members("disks")
    pages.ensure("disks", LIMIT)
    assert pages.path("disks").stat().st_uid == 0


def test_a_folder_where_a_page_should_be_keeps_no_other_group_from_its_page(tmp_path):
    pages = GroupPages(tmp_path, None, lambda: 10**12)
    pages.path("disks").mkdir(parents=True)
    with pytest.raises((BadValue, OSError)):
        pages.ensure("disks", LIMIT)
    pages.ensure("nets", LIMIT)
    assert pages.limit("nets") == LIMIT


def test_a_file_that_is_shortened_while_it_is_changed_is_named(tmp_path):
    done = shortened("write_while_it_is_shortened", tmp_path)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert f"group page '{tmp_path}/disks.group' is unusable" in done.stdout


def test_a_file_that_is_shortened_while_it_is_read_ends_nobody(tmp_path):
    done = shortened("read_while_it_is_shortened", tmp_path)
    assert done.returncode == 0, (done.returncode, done.stderr)
    lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    whole = [line for line in lines if line == "True"]
    others = [line for line in lines if line != "True"]
    assert all(line.startswith("refused: group page") for line in others), done.stdout
    assert whole and others, done.stdout


def test_a_file_of_another_length_is_unusable(tmp_path):
    pages = GroupPages(tmp_path, None, lambda: 0)
    pages.ensure("disks", LIMIT)
    page = pages.path("disks").read_bytes()
    for content in (b"", page[:-1], page + b"x"):
        pages.path("disks").write_bytes(content)
        for read in (pages.limit, pages.members, pages.created_ns):
            with pytest.raises(BadValue, match=r"disks\.group' is unusable: .* bytes were read"):
                read("disks")
