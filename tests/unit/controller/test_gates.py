# SPDX-License-Identifier: GPL-2.0-or-later
"""The closed loop of sluiced: gates of several guests, from their pages to the commands."""

import re
import struct
from concurrent.futures import Future

import pytest

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.counters import PAGE_BYTES
from sluice_controller.domain.errors import Conflict, Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import Grant, ShapingClass, Stream
from unit.controller.sampling import parts
from unit.controller.test_counters import MS, header, put, with_second_table

SECOND = 1000 * MS
READ, WRITE = 0, 1
CLASSES = ("default", "batch", "movie")
READ_BYTES = 128 * 1024
NOMINAL = 1024 * 1024
# A read is due so often.
DUE_NS = 125 * MS


class Qemu:
    """A guest's QEMU: its page, and the commands that it took.

    `waits` is the share of the time that the stream's reads are under way; `rate` that at which
    it reads; `holds`: the gate, if there is one, holds the batch.
    """

    def __init__(self, name, folder, images=("/images/a",), entry_bytes=256):
        self.name, self.entry_bytes = name, entry_bytes
        self.page = folder / f"{name}.page"
        self.images, self.incarnation, self.created_ns = images, 1, 5
        self.waits, self.rate, self.batch, self.holds = 0.1, 0.0, 0.0, True
        self.beats, self.target_ns = True, 0
        self.moved = dict.fromkeys(CLASSES, 0.0)
        self.busy_ns = self.service_ns = self.held_times = 0
        self.taken, self.refuses = [], None

    def guest(self):
        live = Description(shaper_id="sluice0", page_path=str(self.page), images=tuple(self.images))
        return Guest(self.name, f"u-{self.name}", "running", self.incarnation, live, live)

    def restart(self):
        self.incarnation, self.created_ns, self.target_ns = self.incarnation + 1, 6, 0
        self.moved = dict.fromkeys(CLASSES, 0.0)
        self.busy_ns = self.service_ns = self.held_times = 0

    def execute(self, arguments):
        if self.refuses:
            raise self.refuses
        self.taken.append(arguments)
        self.target_ns = arguments.get("target-ns", 0)

    def write(self, now_ns, passed_ns):
        if not self.beats:
            return
        self.moved["batch"] += self.batch * passed_ns / SECOND
        self.moved["movie"] += self.rate * passed_ns / SECOND
        waited_ns = round(self.waits * passed_ns) if self.rate else 0
        self.service_ns += waited_ns
        if self.target_ns:
            self.busy_ns += waited_ns
            self.held_times += 2 if self.holds and self.batch else 0
        page = with_second_table(header(created_ns=self.created_ns), self.entry_bytes)
        struct.pack_into("<Q", page, 24, self.created_ns)
        struct.pack_into("<Q", page, 40, now_ns)
        for tag, name in enumerate(CLASSES):
            done = int(self.moved[name] / READ_BYTES)
            for resource in (READ, WRITE):
                values = {"bytes": done * READ_BYTES, "requests": done}
                if (name, resource) == ("movie", READ):
                    values |= {"completed_requests": done, "service_ns": self.service_ns}
                put(page, tag, resource, name, seq=2 * (now_ns // MS), **values)
        if self.entry_bytes >= 256:
            sums = (self.busy_ns, self.busy_ns, 0, self.moved["movie"] // READ_BYTES)
            struct.pack_into("<4Q", page, self._beside(2, READ), *map(int, sums))
            gate = (self.target_ns, self.target_ns and 4 << 20, 0, self.held_times, 0)
            struct.pack_into("<5Q", page, self._beside(0, READ) + 88, *gate)
        page += bytes(64)
        struct.pack_into("<Q", page, len(page) - 64, now_ns)
        self.page.write_bytes(page)

    def _beside(self, tag, resource):
        return PAGE_BYTES + (tag * 4 + resource) * self.entry_bytes + 128


class Host:
    """libvirt, QMP and the disks of some guests."""

    def __init__(self, qemus):
        self.qemus, self.away = {q.name: q for q in qemus}, False
        self.under_path = {}

    def guests(self):
        if self.away:
            raise Unavailable("libvirt", "test", "cannot be reached", "start it")
        return [qemu.guest() for qemu in self.qemus.values()]

    def execute(self, domain, command, arguments):
        assert (command, arguments["id"]) == ("shaper-set-gate", "sluice0")
        if self.away:
            raise Unavailable("libvirt", "test", "cannot be reached", "start it")
        self.qemus[domain].execute(arguments)

    def under(self, path):
        if path not in self.under_path:
            raise FileNotFoundError(path)
        return self.under_path[path]


class Hanging:
    """Threads whose calls do not end."""

    def submit(self, what, *arguments):
        return Future()


class Running:
    """A sluiced on a host with two guests on one disk; `media` has the stream."""

    def __init__(self, folder, **settings):
        self.now_ns, self.folder = 10**6 * SECOND, folder
        self.media, self.batch = Qemu("media", folder), Qemu("batch", folder)
        self.media.rate, self.batch.batch = 1.0 * NOMINAL, 50e6
        self.host = Host([self.media, self.batch])
        self.host.under_path = {"/images/a": "sda", "/images/b": "sdb"}
        self.store = SqlStore(f"sqlite:///{folder / 'sluice.db'}")
        with self.store.transaction() as unit:
            for name in CLASSES:
                unit.put_class(ShapingClass(name, name, is_stream=name == "movie"))
            for domain in self.host.qemus:
                unit.remember_domain(domain, f"u-{domain}")
                for tag, name in enumerate(CLASSES):
                    unit.put_grant(Grant(domain, name, tag))
            unit.put_stream(Stream("film", "media", "movie", NOMINAL))
            unit.put_value("auto", {"enabled": True, **settings})
        self.start()

    def start(self):
        pages = CountersPages(lambda: self.now_ns)
        self.parts = parts(
            self.store, self.host, pages, lambda: self.now_ns / SECOND,
            monotonic=lambda: self.now_ns / SECOND, shapers=self.host, devices=self.host,
        )  # fmt: skip
        self.auto = self.parts.auto

    def run(self, seconds):
        for _ in range(round(10 * seconds)):
            self.now_ns += 100 * MS
            for qemu in self.host.qemus.values():
                qemu.write(self.now_ns, 100 * MS)
            self.parts.sampler.tick(self.now_ns)
            self.auto.tick(self.now_ns)
            self.parts.records.round()

    def targets(self):
        return {name: qemu.target_ns for name, qemu in self.host.qemus.items()}

    def log(self, reason=""):
        entries = [e for e in self.auto.log() if e["reason"].startswith(reason)]
        return [entry["sentence"] for entry in reversed(entries)]


@pytest.fixture
def running(tmp_path):
    made = []

    def make(**settings):
        made.append(Running(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.store.close()


OPEN = {"media": 0, "batch": 0}


def test_a_stream_that_reads_sets_one_target_for_all_guests_on_the_disk(running):
    host = running()
    host.run(2)
    targets = host.targets()
    assert targets["media"] == targets["batch"] > 0.3 * DUE_NS
    assert host.media.taken[-1]["streams"] == ["movie"]
    assert host.batch.taken[-1]["streams"] == []
    (device,) = host.auto.status()["devices"]
    assert (device["name"], device["domains"]) == ("sda", ["batch", "media"])
    assert device["target_ms"] == pytest.approx(targets["media"] / MS, rel=0.03)


def test_a_stream_that_waits_lowers_the_target_and_one_at_ease_lets_it_rise(running):
    host = running()
    host.run(3)
    before = host.targets()["batch"]
    host.media.waits = 0.9
    host.run(2)
    low = host.targets()["batch"]
    assert low < before / 4
    assert any(taken["window-percent"] == 70 for taken in host.batch.taken)
    host.media.waits = 0.1
    host.run(10)
    assert 0.7 * before < host.targets()["batch"] < before
    host.run(25)
    assert host.targets()["batch"] >= before


def test_a_gate_that_holds_nobody_stays_as_it_is(running):
    host = running()
    host.batch.holds = False
    host.run(60)
    assert {taken["target-ns"] for taken in host.batch.taken} == {50 * MS}
    assert len(host.batch.taken) == 1


def test_what_is_held_is_shown_with_its_rate(running):
    host = running()
    host.run(3)
    host.batch.moved["default"] = 1
    (device,) = host.auto.status()["devices"]
    assert device["background_bytes_per_second"] == pytest.approx(2 * 50e6, rel=0.1)
    assert device["window_bytes"] == 2 * (4 << 20)
    assert [one["stream"] for one in device["streams"]] == ["film"]


@pytest.mark.parametrize(
    "change",
    [
        {"enabled": False},
        {"dry_run": True},
        {"method": "rates"},
    ],
)
def test_settings_open_the_gates(running, change):
    host = running()
    host.run(2)
    assert all(host.targets().values())
    host.auto.put(change)
    host.run(0.2)
    assert host.targets() == OPEN
    assert len(host.log("gate off")) == 1
    taken = len(host.batch.taken)
    host.run(5)
    assert (host.targets(), len(host.batch.taken)) == (OPEN, taken)


def test_a_removed_stream_opens_the_gates_at_once(running):
    host = running()
    host.run(2)
    with host.store.transaction() as unit:
        unit.delete_stream("film")
    host.run(0.3)
    assert host.targets() == OPEN


def test_a_stream_that_pauses_opens_the_gates_after_half_a_minute(running):
    host = running()
    host.run(2)
    host.media.rate = 0.0
    host.run(28)
    assert all(host.targets().values())
    host.run(5)
    assert host.targets() == OPEN
    (said,) = host.log("gate off")
    assert said == "Gate of sda opened: no stream reads it"


def test_a_stream_of_the_network_alone_sets_no_gate(running):
    host = running()
    host.media.rate = 0.0
    host.run(5)
    assert (host.targets(), host.batch.taken) == (OPEN, [])
    assert host.log() == []


def test_gates_of_an_earlier_sluiced_are_opened(running):
    host = running(enabled=False)
    host.media.target_ns = host.batch.target_ns = 20 * MS
    host.run(0.3)
    assert host.targets() == OPEN


def test_an_open_gate_says_why_and_the_past_has_its_target_while_it_was_set(running):
    host = running()
    host.run(3)
    (device,) = host.auto.status()["devices"]
    assert device["open_because"] is None
    host.auto.put({"dry_run": True})
    host.run(3)
    (device,) = host.auto.status()["devices"]
    assert device["open_because"] == "auto-shaping only rehearses" and device["target_ms"]
    past = host.auto.past(step=1.0)
    assert len(past["at"]) in (6, 7)
    targets = past["series"]["sda/target_ms"]
    assert all(targets[1:3]) and targets[-2:] == [None, None]
    assert all(0 < value < 1 for value in past["series"]["disk/pressure"][1:])
    # Nobody watches an uplink or a processor.
    assert set(past["series"]["network/pressure"] + past["series"]["processors/pressure"]) == {None}
    host.auto.put({"dry_run": False})
    host.media.rate = 0.0
    host.run(35)
    (device,) = host.auto.status()["devices"]
    assert device["open_because"] == "no stream reads it"


def test_a_gate_that_no_guest_can_have_is_no_set_one(running):
    host = running()
    host.media.entry_bytes = host.batch.entry_bytes = 128
    host.run(3)
    (device,) = host.auto.status()["devices"]
    assert device["open_because"] == "no domain with a disk there has one"
    assert len(host.auto.status()["without_gate"]) == 2
    # Of rates none is wanted.
    assert host.auto.put({"method": "rates"})["without_gate"] == []


@pytest.mark.parametrize("settings", [{"enabled": False}, {"dry_run": True}, {"method": "rates"}])
def test_a_gate_is_opened_though_its_image_cannot_be_looked_at(running, settings):
    host = running(**settings)
    host.batch.target_ns = 20 * MS
    host.auto.gates.members.disks.pool = Hanging()
    host.run(1)
    assert host.targets() == OPEN


def test_a_start_of_sluiced_beside_a_stream_that_reads_seldom_opens_no_gate(running):
    host = running()
    host.media.rate = READ_BYTES / 0.7
    host.run(4)
    for _ in range(7):
        host.start()
        taken = len(host.batch.taken)
        host.run(1.5)
        assert all("target-ns" in one for one in host.batch.taken[taken:])


def test_a_start_of_sluiced_leaves_no_moment_without_a_gate(running):
    host = running()
    host.run(2)
    host.start()
    taken = len(host.batch.taken)
    host.run(2)
    assert all("target-ns" in one for one in host.batch.taken[taken:])
    assert all(host.targets().values())


def test_a_qemu_that_starts_anew_gets_its_gate_again(running):
    host = running()
    host.run(2)
    host.batch.restart()
    host.run(1)
    assert host.targets()["batch"] > 0


def test_a_gate_that_somebody_else_removes_is_set_again(running):
    host = running()
    host.run(2)
    host.batch.target_ns = 0
    host.run(2.5)
    assert host.targets()["batch"] > 0


def test_a_qemu_that_refuses_is_asked_again_and_is_named(running):
    host = running()
    host.batch.refuses = Conflict("shaper of domain", "batch", "refused it (why)", "see the log")
    host.run(3)
    assert host.targets()["media"] and not host.targets()["batch"]
    (one,) = host.auto.status()["without_gate"]
    assert one["domain"] == "batch" and "(why)" in one["because"]
    host.batch.refuses = None
    host.run(2)
    assert host.targets()["batch"] and host.auto.status()["without_gate"] == []


def test_no_news_of_a_stream_loosens_nothing(running):
    host = running()
    host.run(2)
    host.media.waits = 0.9
    host.run(2)
    low = host.targets()["batch"]
    host.media.beats = False
    for _ in range(25):
        host.run(1)
        assert 0 < host.targets()["batch"] <= 1.03 * low
    host.run(10)
    assert host.targets()["batch"] == 0


def test_no_news_of_a_held_guest_loosens_nothing(running):
    host = running()
    host.run(2)
    host.batch.beats = False
    host.run(3)
    before = host.targets()["media"]
    host.run(15)
    assert host.targets()["media"] <= 1.03 * before


def test_while_libvirt_is_away_nothing_changes_and_then_all_goes_on(running):
    host = running()
    host.run(2)
    before = host.targets()
    host.host.away = True
    host.run(5)
    assert host.targets() == before
    host.host.away = False
    host.media.waits = 0.9
    host.run(3)
    assert host.targets()["batch"] < before["batch"] / 2


def test_a_guest_on_another_disk_is_left_alone(running):
    host = running()
    host.batch.images = ["/images/b"]
    host.run(3)
    assert host.targets()["media"] and not host.targets()["batch"]
    names = {d["name"]: d["target_ms"] for d in host.auto.status()["devices"]}
    assert names["sdb"] is None and names["sda"] > 0


def test_a_guest_on_two_disks_has_the_target_of_the_stream(running):
    host = running()
    host.batch.images = ["/images/b", "/images/a"]
    host.run(3)
    assert host.targets()["batch"] == host.targets()["media"] > 0


def test_devices_of_the_same_guests_are_one(running):
    host = running()
    host.media.images = host.batch.images = ["/images/a", "/images/b"]
    host.run(3)
    (device,) = host.auto.status()["devices"]
    assert (device["name"], device["domains"]) == ("sda and sdb", ["batch", "media"])
    (said,) = host.log("gate")
    assert said.startswith("Gate on sda and sdb: film waits ")


def shared(host):
    members = host.auto.gates.members
    return {name: members.shared_by(member) for name, member in members.by_name.items()}


@pytest.mark.parametrize(
    ("media", "batch", "groups"),
    [
        (["/images/a"], ["/images/a"], ("sda", "sda")),
        (["/images/a"], ["/images/b"], ("sda", "sdb")),
        (["/images/a", "/images/b"], ["/images/b", "/images/a"], ("sda and sdb", "sda and sdb")),
        # A VM of a network's storage and a disk here, as most are.
        ([None, "/images/a"], [None, "/images/a"], ("sda and unknown device",) * 2),
        # Which of both devices makes the media wait cannot be told by one window.
        (["/images/a", "/images/b"], ["/images/a"], (None, "sda")),
    ],
)
def test_gates_share_a_window_where_no_figure_tells_their_devices_apart(
    running, media, batch, groups
):
    host = running()
    host.media.images, host.batch.images = media, batch
    host.run(3)
    assert shared(host) == {"media": groups[0], "batch": groups[1]}


@pytest.mark.parametrize("images", [[None], ["/gone"], [None, "/gone"]])
def test_disks_that_lie_nowhere_known_share_one(running, images):
    host = running()
    host.media.images = host.batch.images = images
    host.run(3)
    assert all(host.targets().values())
    (device,) = host.auto.status()["devices"]
    assert (device["name"], device["domains"]) == ("unknown device", ["batch", "media"])


def test_the_operator_names_the_device_of_disks_that_the_host_does_not_see(running):
    host = running(device_names={"rbd:vms": "ceph"})
    host.media.images = ["rbd:vms/film"]
    host.batch.images = ["rbd:vms/batch", "rbd:others/batch"]
    host.run(3)
    assert all(host.targets().values())
    status = host.auto.status()
    devices = {one["name"]: one for one in status["devices"]}
    assert devices["ceph"]["domains"] == ["batch", "media"]
    assert devices["ceph"]["named_by"] == ["rbd:vms"]
    assert devices["unknown device"]["named_by"] == []
    assert status["assumed"] == [
        {
            "domain": "batch",
            "image": "rbd:others/batch",
            "device": "unknown device",
            "because": "no path on this host leads there",
        }
    ]


def test_several_luns_of_one_array_are_named_as_one(running):
    host = running()
    host.batch.images = ["/images/b"]
    host.run(3)
    assert not host.targets()["batch"]
    host.auto.put({"device_names": {"/images": "array", "/else": "array"}})
    host.run(1)
    assert host.targets()["batch"] == host.targets()["media"] > 0
    status = host.auto.status()
    (device,) = status["devices"]
    assert (device["name"], device["named_by"]) == ("array", ["/images"])
    assert status["names_without_disk"] == ["/else"]
    host.auto.put({"device_names": {"/images": None, "/else": None}})
    host.run(1)
    assert not host.targets()["batch"]


def test_a_backing_file_elsewhere_is_named_by_its_device(running):
    host = running(device_names={"/images/b": "sda"})
    host.batch.images = ["/images/b"]
    host.run(3)
    assert host.targets()["batch"] == host.targets()["media"] > 0


def test_a_change_of_names_restarts_no_loop(running):
    host = running()
    host.media.waits = 0.9
    host.run(3)
    low = host.targets()["media"]
    host.auto.put({"device_names": {"/images/a": "array"}})
    host.media.waits = 0.7
    host.run(1)
    assert host.targets()["media"] == low
    assert len(host.log("gate on")) == 1


def test_the_loop_goes_on_as_guests_with_disks_elsewhere_come_and_go(running, tmp_path):
    host = running()
    host.media.images = host.batch.images = ["/images/a", "/images/b"]
    host.media.waits = 0.9
    host.run(3)
    low = host.targets()["media"]
    host.media.waits = 0.7
    third = Qemu("third", tmp_path, images=["/images/b"])
    with host.store.transaction() as unit:
        unit.remember_domain("third", "u-third")
    host.host.qemus["third"] = third
    host.run(1)
    assert {one["name"] for one in host.auto.status()["devices"]} == {"sda", "sdb"}
    assert host.targets()["media"] == low
    del host.host.qemus["third"]
    host.run(1)
    assert host.targets()["media"] == low
    assert len(host.log("gate on")) == 1


def test_while_a_look_at_an_image_hangs_its_guest_is_held_all_the_same(running):
    host = running()
    host.media.images = host.batch.images = ["/images/a"]
    host.auto.gates.members.disks.pool = Hanging()
    host.run(1)
    assert host.targets() == OPEN
    host.run(4)
    assert all(host.targets().values())
    status = host.auto.status()
    assert [one["name"] for one in status["devices"]] == ["unknown device"]
    assert {one["because"] for one in status["assumed"]} == {"a look at it does not end"}


def test_a_disk_that_is_plugged_in_later_is_found(running):
    host = running()
    host.batch.images = ["/images/b"]
    host.run(3)
    host.batch.images = ["/images/b", "/images/a"]
    host.run(1)
    assert host.targets()["batch"] > 0


def test_a_guest_of_an_earlier_qemu_is_named_and_left_to_rates(running):
    host = running()
    host.batch.entry_bytes = 128
    host.run(3)
    assert host.targets()["media"] and not host.batch.taken
    (one,) = host.auto.status()["without_gate"]
    assert one["domain"] == "batch" and "before the gate" in one["because"]
    loads = {load.domain for load in host.auto._observe(host.now_ns).background}
    assert loads == {"batch"}


def test_rates_leave_the_disk_to_the_gate(running):
    host = running()
    host.run(1)
    resources = {load.resource for load in host.auto._observe(host.now_ns).background}
    assert not resources & {"blk-read", "blk-write"}


def test_rates_do_not_act_where_there_is_a_gate_even_at_the_first_tick(running):
    host = running(enabled=False)
    host.media.waits = 0.9
    host.run(2)
    host.auto.put({"enabled": True})
    host.parts.streams.report("film", {"window_ms": 1000, "stalls": 1, "stall_seconds": 1})
    host.run(0.1)
    assert host.parts.limits.snapshot() == {}
    assert not [said for said in host.log("disk")]
    assert all(host.targets().values())


def test_a_rehearsal_says_and_sets_nothing(running):
    host = running(dry_run=True)
    host.media.waits = 0.9
    host.run(5)
    assert (host.targets(), host.batch.taken) == (OPEN, [])
    (entry, *_) = host.auto.log()
    assert entry["dry_run"] and "film waits" in entry["sentence"]


def test_a_stream_that_moves_more_than_it_declares_gives_no_pressure(running):
    host = running()
    host.run(2)
    before = host.targets()["batch"]
    host.media.rate, host.media.waits = 3.0 * NOMINAL, 1.0
    host.run(2.5)
    # Until then it might have been a peak of a film.
    cut = host.targets()["batch"]
    host.run(6)
    assert host.targets()["batch"] >= cut and cut < before
    host.run(5)
    assert host.targets() == OPEN
    assert "more than they declare" in host.log("gate off")[0]


def test_each_change_of_regime_is_one_sentence(running):
    host = running()
    host.run(3)
    (on,) = host.log("gate")
    assert on.startswith("Gate on sda: film waits ")
    assert " of 125 ms that it can bear; the background may keep 50 ms of work in sda" in on
    host.media.waits = 0.9
    host.run(4.5)
    host.media.waits = 0.7
    host.run(5)
    moved = host.log("gate moved")
    assert 1 <= len(moved) <= 2
    assert "may keep 2.5 ms of work" in moved[-1] and " MB/s now" in moved[-1]


def test_a_fault_from_before_the_gate_came_on_is_no_riddle(running):
    report = {"window_ms": 500, "stalls": 1, "stall_seconds": 0.3}
    host = running()
    host.run(1)
    host.parts.streams.report("film", report)
    host.run(2)
    assert not host.log("stream")
    host.run(60)
    host.parts.streams.report("film", report)
    host.run(2)
    (said,) = host.log("stream")
    assert said.startswith("Fault on film without a cause here")


def test_a_starving_stream_is_said_seldom(running):
    host = running()
    host.run(2)
    host.media.waits, host.media.rate = 1.0, 0.5 * NOMINAL
    host.run(4)
    (starving,) = host.log("gate starving")
    assert re.match(r"film starves, with \d+ kB/s of 1.05 MB/s: film waits 125 of 125 ms", starving)


# A stream that waits for something else


def test_cuts_that_do_not_help_are_given_back_and_tried_again(running):
    host = running()
    host.run(2)
    host.media.waits, host.media.rate = 1.0, 0.5 * NOMINAL
    host.run(9)
    assert host.targets() == OPEN
    (said,) = host.log("gate elsewhere")
    assert said.startswith("film waits for something else than the others on sda: it waits 1")
    assert said.endswith("its gate is open, tried again in 30 s")
    (device,) = host.auto.status()["devices"]
    assert device["streams"][0]["is_elsewhere"]
    host.run(25)
    assert host.targets() == OPEN
    host.run(6)
    assert all(host.targets().values())
    host.run(6)
    assert host.log("gate elsewhere")[1].endswith("tried again in 60 s")


def test_a_nominal_rate_that_is_too_high_is_asked_about(running):
    host = running()
    with host.store.transaction() as unit:
        unit.put_stream(Stream("film", "media", "movie", 10 * NOMINAL))
    host.media.waits = 1.0
    host.run(20)
    (said,) = host.log("gate elsewhere")
    assert re.search(
        r"it has \S+ [kM]B/s of the 10\.5 MB/s .*which may be too high; its gate is", said
    )
    assert host.targets() == OPEN


def test_streams_that_need_more_than_the_disk_gives_are_told_with_their_priorities(running):
    host = running()
    with host.store.transaction() as unit:
        unit.put_class(ShapingClass("movie", "Movie", 1, is_stream=True))
        unit.put_stream(Stream("tv", "batch", "default", NOMINAL))
        unit.put_stream(Stream("radio", "batch", "movie", NOMINAL))
    host.batch.rate = 1.0 * NOMINAL
    host.run(2)
    host.media.waits, host.media.rate = 1.0, 0.5 * NOMINAL
    host.run(9)
    (said,) = host.log("gate elsewhere")
    assert re.search(r"sda gives its streams 1\.\d+ MB/s, and they need [23]\.\d+ MB/s: ", said)
    listed = said.split(" MB/s: ")[1]
    assert re.match(
        r"film \(priority 1\) has 5\d\d kB/s of 1\.05 MB/s, radio \(priority 1\) is", listed
    )


def test_cuts_that_help_stay(running):
    host = running()
    host.run(2)
    host.media.waits, host.media.rate = 1.0, 0.3 * NOMINAL
    host.run(2)
    # Better, though not well.
    host.media.waits, host.media.rate = 1.0, 0.9 * NOMINAL
    host.run(30)
    assert all(host.targets().values())
    assert host.log("gate elsewhere") == []


def test_a_stream_that_waits_alone_is_no_reason_to_give_up(running):
    host = running()
    host.batch.batch = 0.0
    host.media.waits = 0.95
    host.run(20)
    assert all(host.targets().values())
    assert host.log("gate elsewhere") == []


def test_a_stream_beside_it_keeps_its_gate(running):
    host = running()
    host.batch.rate = 1.0 * NOMINAL
    with host.store.transaction() as unit:
        unit.put_stream(Stream("news", "batch", "movie", NOMINAL))
    host.run(2)
    host.media.waits, host.media.rate = 1.0, 0.5 * NOMINAL
    host.run(9)
    (said,) = host.log("gate elsewhere")
    assert said.startswith("film waits") and "the gate stays for others" in said
    host.run(5)
    assert host.targets()["media"] > 0.3 * DUE_NS


def test_a_stream_that_has_been_at_ease_is_helped_at_once(running):
    host = running()
    host.run(2)
    host.media.waits, host.media.rate = 1.0, 0.5 * NOMINAL
    host.run(9)
    assert host.targets() == OPEN
    host.media.waits, host.media.rate = 0.1, 1.0 * NOMINAL
    host.run(8)
    assert all(host.targets().values())


# A stream without a declared rate


def undeclared(host, **changes):
    """From a start without a rate: the answer of the API about it."""
    for name, value in changes.items():
        setattr(host.media, name, value)
    with host.store.transaction() as unit:
        unit.put_stream(Stream("film", "media", "movie"))
    host.parts.declared.fresh()
    return lambda: host.parts.streams.list_json()[0]


def test_the_rate_is_learnt_while_nothing_holds_the_stream_up(running):
    host = running()
    film = undeclared(host, rate=0.4 * NOMINAL)
    host.run(2)
    before = host.targets()["batch"]
    assert film()["nominal"]["source"] == "supposed"
    host.run(45)
    assert film()["nominal_bytes_per_second"] is None
    assert film()["nominal"]["source"] == "learnt"
    assert film()["nominal"]["bytes_per_second"] == pytest.approx(0.4 * NOMINAL, rel=0.05)
    # Its reads are due more seldom than those of the film that was supposed.
    assert host.targets()["batch"] > 1.5 * before


def test_a_stream_that_is_held_up_teaches_no_rate_and_is_protected_all_the_same(running):
    host = running()
    film = undeclared(host, rate=0.1 * NOMINAL, waits=0.95)
    host.run(60)
    assert film()["nominal"]["source"] == "supposed"
    assert "0 of 30 s" in film()["nominal"]["sentence"]
    assert any(taken["window-percent"] == 70 for taken in host.batch.taken)
    # Nobody knows whether it has what it needs.
    assert host.log("gate starving") == []


def test_a_learnt_rate_outlives_sluiced(running):
    host = running()
    film = undeclared(host, rate=0.4 * NOMINAL)
    host.run(110)
    learnt = film()["nominal"]
    host.start()
    host.run(1)
    assert host.parts.streams.list_json()[0]["nominal"]["source"] == "learnt"
    assert learnt["bytes_per_second"] == pytest.approx(0.4 * NOMINAL, rel=0.05)


def test_a_stream_that_reads_150_mb_s_and_declares_nothing_starves_nobody(running):
    host = running()
    film = undeclared(host, rate=150e6, waits=0.5)
    host.run(60)
    assert host.targets() == OPEN
    assert film()["nominal"]["bytes_per_second"] == 12.5e6
    host.media.waits = 1.0
    taken = len(host.batch.taken)
    host.run(30)
    assert (host.targets(), len(host.batch.taken)) == (OPEN, taken)


def test_a_learnt_stream_whose_film_needs_more_is_not_greedy(running):
    host = running()
    undeclared(host, rate=0.4 * NOMINAL)
    host.run(45)
    host.media.rate = 4.0 * NOMINAL
    host.run(15)
    assert all(host.targets().values())


def test_a_declared_rate_that_is_ten_times_too_high_is_doubted_where_it_is_shown(running):
    host = running()
    with host.store.transaction() as unit:
        unit.put_stream(Stream("film", "media", "movie", 10 * NOMINAL))
    host.parts.declared.fresh()
    host.run(340)
    (film,) = host.parts.streams.list_json()
    assert film["nominal"]["bytes_per_second"] == 10 * NOMINAL
    assert "it has moved 1.05 MB/s for 5 min" in film["nominal"]["sentence"]
