# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of auto-shaping in sentences."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.auto_words import SHOWN, UNHEEDED, listed, sentences

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), unique=True, min_size=1, max_size=12)


def device(name, **values):
    return {
        "name": name,
        "domains": ["media", "web"],
        "named_by": [],
        "target_ms": 16.04,
        "open_because": None,
        "adjust": 0.45,
        "window_bytes": 2_721_420,
        "background_bytes_per_second": 22e6,
        "streams": [],
        "held": [],
        **values,
    }


def waiting(stream, **values):
    return {"stream": stream, "waits_ms": 120, "bears_ms": 300, "is_elsewhere": False, **values}


def beyond(rate=None, because=None, streams=(), without_signal=()):
    told = {"streams": streams, "without_signal": without_signal}
    return {"bytes_per_second": rate, "because": because, **told}


def status(*devices, **others):
    empty = dict.fromkeys(("without_gate", "names_without_disk", "assumed", "eased"), ())
    return {"devices": devices, "round_trips": True, "beyond": beyond(), **empty, **others}


def eased(domain, **values):
    share = {"weight": 128, "own_weight": 1024, "processors_per_vcpu": None, "refused": None}
    return {"domain": domain, **share, **values}


@given(NAMES)
def test_of_a_list_some_are_named_and_all_are_counted(names):
    said = listed(names)
    head, _, more = said.partition(" and ")
    named = head.split(", ")
    assert named == sorted(names)[: len(named)]
    assert len(named) + int(more.partition(" ")[0] or 0) == len(names)
    assert len(named) <= SHOWN + 1


def test_a_gate_that_is_set_says_what_it_leaves_and_who_waits_for_how_long():
    movie, news = waiting("movie"), waiting("news", waits_ms=301.2, is_elsewhere=True)
    assert sentences(status(device("sda", streams=[movie, news]))) == [
        "Gate of sda (media, web) leaves 16.0 ms of work of others in flight (adjusted × 0.45),"
        " in windows of 2.72 MB; others move 22.0 MB/s",
        "movie waits 120 of the 300 ms that it can bear on sda",
        "news waits 301 of the 300 ms that it can bear on sda, for something else than the others",
    ]


def test_a_gate_of_a_dry_run_is_open_and_says_what_it_would_leave():
    rehearsed = device("sda", open_because="auto-shaping only rehearses")
    (said,) = sentences(status({**rehearsed, "streams": [waiting("movie")]}))[:1]
    assert said.startswith("Gate of sda (media, web) open: auto-shaping only rehearses; it would")


def test_open_gates_come_last_and_those_without_a_stream_are_one_sentence():
    idle = [device(n, target_ms=None, open_because="no stream reads it") for n in ("sdc", "sdb")]
    helpless = device(
        "sdd", target_ms=None, open_because="cuts help none", streams=[waiting("movie")]
    )
    said = sentences(status(*idle, helpless, device("sda")))
    assert [one.split(" (")[0] for one in said[:2]] == ["Gate of sda", "Gate of sdd"]
    assert said[2].startswith("movie waits") and said[3:] == [
        "Gates of sdb, sdc open: no stream reads it"
    ]


def test_domains_without_a_gate_and_shares_of_processors_are_named():
    said = sentences(
        status(
            without_gate=[{"domain": "old", "because": "its page cannot be read"}],
            eased=[
                eased("build", processors_per_vcpu=0.125),
                eased("db", weight=None, own_weight=None, refused="does not answer"),
            ],
        )
    )
    assert said == [
        "old has no gate: its page cannot be read",
        "build leaves processors to streams: it has a weight of 128 for its own 1024 and 12.5% of"
        " each vCPU's time",
        "db's share of the processors cannot be changed: it does not answer",
    ]


def test_names_of_devices_and_what_is_assumed_of_disks_is_said():
    names = {"/srv/san1": "san1", "/typo": "san2"}
    why = "no path on this host leads there"
    disks = [
        {"domain": domain, "image": image, "device": "unknown device", "because": why}
        for domain, image in (("media", "rbd:vms/a"), ("web", "rbd:vms/b"), ("web", None))
    ]
    named = device("san1", target_ms=None, open_because="why", named_by=["/srv/san1"])
    said = sentences(status(named, device_names=names, names_without_disk=["/typo"], assumed=disks))
    assert said[1:] == [
        "san1 is named by the operator, for /srv/san1",
        "No running domain has a disk under /typo, which the operator names san2",
        "Taken to lie on unknown device: a disk of web, rbd:vms/a, rbd:vms/b; no path on this"
        " host leads there",
    ]


def test_round_trips_that_are_not_heeded_are_said_to_be():
    assert sentences(status(round_trips=False)) == [UNHEEDED]


def test_a_link_that_nobody_sees_is_said_with_its_reason_and_who_tells_of_none():
    trip = {"stream": "movie", "round_trip_ms": 21.4, "least_ms": 20.0, "is_elsewhere": False}
    without = [{"stream": name, "because": "its guest tells nothing"} for name in ("news", "tv")]
    because = "movie's round trip was 180 ms over 20 ms"
    streams = [trip, {**trip, "stream": "show", "is_elsewhere": True}]
    assert sentences(status(beyond=beyond(4.65e6, because, streams, without))) == [
        "Nobody here can see the link beyond the host: movie's round trip was 180 ms over 20 ms, so"
        " all that leaves is held to 4.65 MB/s",
        "movie's round trip is 21 ms over 20 ms",
        "show's round trip is 21 ms over 20 ms, for something else than the others here",
        "A short link beyond the host is not seen for news, tv: its guest tells nothing",
    ]
