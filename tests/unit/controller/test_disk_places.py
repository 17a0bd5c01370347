# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at images: some hang, some fail, and nobody waits for them."""

import logging
from concurrent.futures import Future

import pytest

from at_once import AtOnce
from sluice_controller.services.disk_places import (
    LOOK_AGAIN_NS,
    MOST_SWEEPS,
    NO_END,
    PATIENCE_NS,
    UNKNOWN_DEVICE,
    DiskPlaces,
)

SECOND = 10**9


class Host:
    """The devices under images. A look at an image of `hanging` folders raises `Hangs`."""

    def __init__(self):
        self.under_path = {"/a/1": "sda", "/a/2": "sda", "/b/1": "sdb", "/nas/1": "nas"}
        self.hanging, self.faults, self.looks = set(), {}, []

    def under(self, path):
        self.looks.append(path)
        if path.rpartition("/")[0] in self.hanging:
            raise Hangs
        if path in self.faults:
            raise self.faults[path]
        return self.under_path[path]


class Hangs(BaseException):
    pass


class Threads:
    """A thread whose call hangs is left at it, and goes on when it is told to."""

    def __init__(self):
        self.hung = []

    def submit(self, what, *arguments):
        answer = Future()
        self._carry_out(answer, what, arguments)
        return answer

    def _carry_out(self, answer, what, arguments):
        try:
            answer.set_result(what(*arguments))
        except Hangs:
            self.hung.append((answer, what, arguments))

    def wake(self):
        hung, self.hung = self.hung, []
        for one in hung:
            self._carry_out(*one)


class Looking:
    def __init__(self, *images):
        self.host, self.threads, self.now_ns = Host(), Threads(), 10**6 * SECOND
        self.places = DiskPlaces(self.host, self.threads)
        self.images, self.names = images, {}
        self.places.use(images, self.now_ns)

    def run(self, seconds=0.1):
        for _ in range(round(10 * seconds)):
            self.now_ns += SECOND // 10
            self.places.tend(self.now_ns)
        return [self.of(image) for image in self.images]

    def of(self, image):
        place = self.places.of(image, self.names)
        return place and (place.device, place.because)


def test_images_are_looked_at_once():
    looking = Looking("/a/1", "/b/1")
    assert looking.run(100) == [("sda", None), ("sdb", None)]
    assert sorted(looking.host.looks) == ["/a/1", "/b/1"]


def test_a_named_image_and_one_without_a_path_need_no_look():
    looking = Looking("/nas/1", "rbd:vms/film", None)
    looking.names = {"/nas": "array", "rbd:": "ceph"}
    places = [looking.places.of(image, looking.names) for image in looking.images]
    assert [(p.device, p.named_by, p.because) for p in places] == [
        ("array", "/nas", None),
        ("ceph", "rbd:", None),
        (UNKNOWN_DEVICE, None, "no path on this host leads there"),
    ]


def test_a_look_that_hangs_is_waited_for_a_short_while_alone():
    looking = Looking("/a/1", "/nas/1", "/b/1")
    looking.host.hanging = {"/nas"}
    looking.run(PATIENCE_NS / SECOND + 0.3)
    assert looking.of("/a/1") == ("sda", None)
    assert looking.of("/b/1") == ("sdb", None)
    assert looking.of("/nas/1") == (UNKNOWN_DEVICE, NO_END)
    looking.host.hanging = set()
    looking.threads.wake()
    looking.run()
    assert looking.of("/nas/1") == ("nas", None)


def test_the_device_that_was_seen_last_counts_while_a_look_hangs_or_fails():
    looking = Looking("/nas/1")
    looking.run()
    looking.host.hanging = {"/nas"}
    looking.places.refresh(["/nas/1"], looking.now_ns)
    assert looking.run(1) == [("nas", None)]
    assert looking.run(2) == [("nas", NO_END)]
    looking.host.hanging, looking.host.faults = set(), {"/nas/1": OSError("gone")}
    looking.threads.wake()
    assert looking.run(1) == [("nas", "gone")]
    looking.host.faults = {}
    assert looking.run(LOOK_AGAIN_NS / SECOND + 1) == [("nas", None)]


def test_hanging_looks_keep_few_threads(caplog):
    looking = Looking(*(f"/nas{number}/1" for number in range(50)))
    looking.host.hanging = {f"/nas{number}" for number in range(50)}
    looking.run(3)
    assert len(looking.threads.hung) <= 2
    looking.run(100)
    assert len(looking.threads.hung) == MOST_SWEEPS
    assert {because for _device, because in looking.run()} == {NO_END}


def test_many_images_of_a_slow_host_are_given_no_reason():
    looking = Looking(*(f"/c/{number}" for number in range(100)))
    looking.threads.submit = lambda *_arguments: Future()
    for _ in range(40):
        # The thread goes from image to image.
        looking.run()
        looking.places._sweeps[0].position += 1
    assert set(map(looking.of, looking.images)) == {None}


@pytest.mark.parametrize("fault", [FileNotFoundError("not there"), ValueError("null byte")])
def test_an_image_that_cannot_be_looked_at_is_said_once_for_each_change(fault, caplog):
    looking = Looking("/a/1")
    looking.host.faults = {"/a/1": fault}
    with caplog.at_level(logging.INFO):
        assert looking.run(300) == [(UNKNOWN_DEVICE, str(fault))]
        assert len(looking.host.looks) >= 4
        assert len(caplog.records) == 1
        looking.host.faults = {"/a/1": OSError("another fault")}
        looking.run(70)
        looking.host.faults = {}
        looking.run(70)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_an_unforeseen_fault_of_one_image_hides_no_other():
    looking = Looking("/a/1", "/b/1")
    looking.host.faults = {"/a/1": RuntimeError("a bug")}
    assert looking.run(1) == [(UNKNOWN_DEVICE, "a bug"), ("sdb", None)]


def test_images_that_nobody_uses_are_forgotten():
    looking = Looking("/a/1", "/b/1")
    looking.run()
    looking.places.use(["/b/1"], looking.now_ns)
    looking.places.use(["/a/1", "/b/1"], looking.now_ns)
    looking.run()
    assert sorted(looking.host.looks) == ["/a/1", "/a/1", "/b/1"]


def test_it_does_the_same_with_threads_that_are_done_at_once():
    places = DiskPlaces(Host(), AtOnce())
    places.use(["/a/1"], 0)
    assert places.tend(0)
    assert places.of("/a/1", {}).device == "sda"
    assert not places.tend(1)
