# SPDX-License-Identifier: GPL-2.0-or-later
"""What auto-shaping sees: the real database, sampler and pages, on a host of one guest."""

import pytest

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.limits import Limit
from sluice_controller.domain.model import Grant, ShapingClass, Stream
from sluice_controller.domain.scheduling import Scheduling, Window
from sluice_controller.services.auto import Auto
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.sampler import Sampler
from sluice_controller.services.streams import Streams
from unit.controller.test_counters import MS, header, put

NET_TX = 2


class OneGuest:
    """The port to libvirt: one guest, whose page is a file here."""

    def __init__(self, page):
        live = Description(shaper_id="sluice0", page_path=str(page))
        self.guest = Guest("media", "u-1", "running", 1, live, live)

    def connection(self):
        return {"connected": True}

    def guests(self):
        return [self.guest]


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    with store.transaction() as unit:
        unit.remember_domain("media", "u-1")
        for name in ("default", "batch", "movie"):
            unit.put_class(ShapingClass(name, name, is_stream=name == "movie"))
        unit.put_class(ShapingClass("backup", "Backup", unmanaged=True))
        limits = {"net-tx": Limit(30e6), "blk-read": Limit(40e6)}
        scheduling = {
            "net-tx": Scheduling(4e6),
            "blk-read": Scheduling(window=Window(20_000_000, 65536)),
        }
        unit.put_grant(Grant("media", "batch", 1, (), limits, scheduling))
        unit.put_stream(Stream("film", "media", "movie", 875e3))
    yield store
    store.close()


@pytest.fixture
def auto(store, tmp_path):
    """After two looks at a page on which every class sent 1 MB in the second between."""
    file = tmp_path / "media.page"
    now_ns = [0]
    sampler = Sampler(store, OneGuest(file), CountersPages(lambda: now_ns[0]), None, lambda: 1.0)
    for at_ms, sent in ((0, 0), (1000, 1_000_000)):
        page = header()
        for tag, name in enumerate(("default", "batch", "movie", "backup")):
            put(page, tag, NET_TX, name, bytes=sent)
            put(page, tag, 0, name)
        file.write_bytes(page)
        now_ns[0] = at_ms * MS
        sampler.tick(now_ns[0])
    streams = Streams(store, sampler, lambda: 1.0, lambda unit, domain: None)
    return Auto(store, sampler, streams, AutoLimits(), lambda: 1.0, lambda domain: None)


def test_an_unmanaged_class_is_no_background_and_counts_on_the_link(auto):
    seen = auto._observe(2000 * MS)
    assert {load.class_name for load in seen.background} == {"default", "batch"}
    assert seen.unmanaged_net_bytes_per_second == 1_000_000
    assert [view.class_name for view in seen.streams] == ["movie"]


def test_what_is_reserved_comes_with_the_load(auto):
    loads = {load.key: load for load in auto._observe(2000 * MS).background}
    network = loads["media", "batch", "net-tx"]
    assert (network.reserved, network.own_limit) == (4e6, 30e6)
    assert loads["media", "batch", "blk-read"].reserved == 65536 * 50
    assert loads["media", "default", "net-tx"].reserved == 0


def test_a_reservation_that_is_given_later_is_seen_within_a_second(auto, store):
    auto._observe(2000 * MS)
    with store.transaction() as unit:
        unit.put_grant(Grant("media", "batch", 1, (), {}, {"net-tx": Scheduling(9e6)}))
    loads = {load.key: load for load in auto._observe(3000 * MS).background}
    assert loads["media", "batch", "net-tx"].reserved == 9e6
    assert loads["media", "batch", "net-tx"].own_limit is None
