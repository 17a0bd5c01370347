# SPDX-License-Identifier: GPL-2.0-or-later
"""May a night start, must a run end."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_nightly.activity import GuestActivity
from sluice_nightly.config import Abort, Config
from sluice_nightly.decide import HostFacts, Watch, excess, may_start, must_end

QUIET = HostFacts(
    guests=(GuestActivity("web1", 1e5, 1e4, 0.02), GuestActivity("db2", 0, 0, 0.01)),
    pressure={"cpu": 1.0, "io": 0.5, "memory": 0.0},
    guests_pressure={"cpu": 1.0, "io": 0.5, "memory": 0.0},
    load=0.4,
    processors=8,
    memory_available_mib=16_000,
    disk_free_mib=50_000,
    disk_needed_mib=7_500,
)
CONFIG = Config()


def changed(**what) -> HostFacts:
    return dataclasses.replace(QUIET, **what)


def codes(facts: HostFacts, config: Config = CONFIG) -> list[str]:
    return [reason.code for reason in may_start(facts, config)]


def test_on_a_quiet_host_it_starts_and_goes_on():
    assert may_start(QUIET, CONFIG) == []
    assert excess(QUIET, CONFIG.abort) == []


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        (
            {"guests": (GuestActivity("db2", 8e7, 0, 0), GuestActivity("web1", 4e6, 0, 0))},
            "guests-busy",
            "Guests db2 and web1 move 84.0 MB/s on their disks; at most 5 is allowed",
        ),
        (
            {"guests": (GuestActivity("db2", 0, 6e6, 0), GuestActivity("idle", 0, 0, 0))},
            "guests-busy",
            "Guest db2 moves 6.0 MB/s over the network; at most 5 is allowed",
        ),
        (
            {"guests": tuple(GuestActivity(f"g{n}", 0, 0, 0.3) for n in range(5))},
            "guests-busy",
            "Guests g0, g1, g2 and 2 more keep 1.5 processors busy; at most 0.5 is allowed",
        ),
        (
            {"guests": None, "guests_problem": "no socket"},
            "guests-unknown",
            "(no socket); start it, or set start.without_libvirt",
        ),
        ({"streams": ("movie",)}, "stream-plays", "The stream movie plays"),
        (
            {"pressure": {"io": 31.44}},
            "pressure-io",
            "waited for disks 31.4 % of the last minute; at most 10 % is allowed",
        ),
        ({"load": 4.1}, "load", "The load is 4.1; at most 4.0 is allowed on 8 processors"),
        ({"memory_available_mib": 2000}, "memory-low", "2000 MiB of memory are available; 2816"),
        ({"disk_free_mib": 9000}, "disk-low", "9000 MiB are free below /var/lib/sluice-nightly"),
    ],
)
def test_a_refusal_has_value_and_limit(what, code, words):
    (reason,) = may_start(changed(**what), CONFIG)
    assert reason.code == code
    assert words in reason.sentence


def test_all_reasons_are_told_at_once():
    assert codes(changed(load=99.0, disk_free_mib=0, pressure={"cpu": 90, "memory": 50})) == [
        "pressure-cpu",
        "pressure-memory",
        "load",
        "disk-low",
    ]


def test_without_libvirt_only_if_the_settings_say_so():
    without = dataclasses.replace(CONFIG.start, without_libvirt=True)
    assert codes(changed(guests=None), dataclasses.replace(CONFIG, start=without)) == []


def test_what_the_kernel_does_not_tell_is_no_reason():
    assert codes(changed(pressure={}, guests_pressure={})) == []


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"guests": (GuestActivity("db2", 3e7, 0, 0),)}, "guests-busy"),
        ({"guests_pressure": {"cpu": 35.0}}, "pressure-cpu"),
        ({"memory_available_mib": 100}, "memory-low"),
    ],
)
def test_a_run_ends_when_others_need_the_host(what, code):
    busy = changed(**what)
    state, reasons = must_end(Watch(), busy, CONFIG.abort)
    assert reasons == []
    state, reasons = must_end(state, busy, CONFIG.abort)
    assert [reason.code for reason in reasons] == [code]


def test_its_own_load_does_not_end_a_run():
    facts = changed(load=80.0, pressure={"cpu": 95.0, "io": 60.0}, disk_free_mib=0)
    assert excess(facts, CONFIG.abort) == []


def test_one_bad_look_in_between_does_not_end_a_run():
    state, busy = Watch(), changed(memory_available_mib=1)
    for facts in (busy, QUIET, busy, QUIET, busy):
        state, reasons = must_end(state, facts, CONFIG.abort)
        assert reasons == []


ACTIVITY = st.builds(
    GuestActivity,
    st.text(min_size=1, max_size=8),
    st.floats(0, 1e10),
    st.floats(0, 1e10),
    st.floats(0, 100),
)
FACTS = st.builds(
    HostFacts,
    guests=st.none() | st.lists(ACTIVITY, max_size=6).map(tuple),
    pressure=st.dictionaries(st.sampled_from(["cpu", "io", "memory"]), st.floats(0, 100)),
    guests_pressure=st.dictionaries(st.sampled_from(["cpu", "io", "memory"]), st.floats(0, 100)),
    load=st.floats(0, 1e4),
    processors=st.integers(1, 512),
    memory_available_mib=st.floats(0, 1e6),
    disk_free_mib=st.floats(0, 1e6),
)


@given(FACTS, st.floats(1, 100))
def test_more_of_anything_never_turns_a_no_into_a_yes(facts, factor):
    more = dataclasses.replace(
        facts,
        guests=None
        if facts.guests is None
        else tuple(
            dataclasses.replace(
                guest,
                disk_bytes_per_s=guest.disk_bytes_per_s * factor,
                net_bytes_per_s=guest.net_bytes_per_s * factor,
                processors=guest.processors * factor,
            )
            for guest in facts.guests
        ),
        pressure={kind: value * factor for kind, value in facts.pressure.items()},
        load=facts.load * factor,
        memory_available_mib=facts.memory_available_mib / factor,
        disk_free_mib=facts.disk_free_mib / factor,
    )
    assert set(codes(facts)) <= set(codes(more))


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5))
def test_a_run_ends_exactly_after_so_many_bad_looks_in_a_row(looks, samples):
    abort = dataclasses.replace(Abort(), samples=samples)
    state, row = Watch(), 0
    for bad in looks:
        row = row + 1 if bad else 0
        facts = changed(memory_available_mib=0 if bad else 9999)
        state, reasons = must_end(state, facts, abort)
        assert bool(reasons) == (row >= samples)
