# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a class is slow: one leading reason, in a sentence with figures and a remedy."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.counters import GateState
from sluice_controller.domain.group_page import GroupLimit
from sluice_controller.domain.groups import PARTS, Group
from sluice_controller.domain.guests import Throttle
from sluice_controller.domain.limits import RESOURCES, Limit
from sluice_controller.domain.overload import Control
from sluice_controller.domain.processors import Wait
from sluice_controller.domain.tuner_types import UplinkView
from sluice_controller.domain.use import Use
from sluice_controller.domain.why import REASONS, Facts, InGroup, Moved, why

MB = 1e6
WAITS = Use(
    bytes_per_second=2 * MB, requests_per_second=16, held_share=0.9,
    spent_bytes_share=0.0, spent_operations_share=0.0, backlog_requests=4,
)  # fmt: skip
AT_LIMIT = replace(WAITS, spent_bytes_share=1.0, limit_bytes_per_second=2 * MB, burst_bytes=65536)
BUSY = Use(
    bytes_per_second=2 * MB, requests_per_second=16, in_flight=0.98, service_ms=61.0,
    usual_service_ms=4.0,
)  # fmt: skip


def facts(use=WAITS, resource="blk-read", **more):
    return Facts("media", "batch", resource, use, **more)


def disks(resource="blk-read", rate=2 * MB, moved=1.99 * MB, waits=None):
    group = Group("disks", resource, GroupLimit("bytes", round(rate), 65536))
    return InGroup(group, Moved(moved, 100), waits)


GATE = GateState(120_000_000, 262144, 262144, 9, 9)
CASES = {
    "its own rate": (
        facts(AT_LIMIT),
        "limit",
        "media/batch reads 2.00 MB/s in 16 requests/s: its own limit of 2.00 MB/s holds it for 90%"
        " of the time; raise it: sluice limit media batch blk-read 4000kB/s",
    ),
    "its own operations": (
        facts(replace(WAITS, spent_operations_share=1.0, limit_operations_per_second=16)),
        "limit",
        "its own limit of 16 operations/s holds it for 90% of the time; raise it:"
        " sluice limit media batch blk-read --ops=32",
    ),
    "its burst": (
        facts(replace(AT_LIMIT, limit_bytes_per_second=20 * MB)),
        "limit",
        "because it comes in bursts of more than 64 KiB; allow longer ones:"
        " sluice limit media batch blk-read --burst=256KiB",
    ),
    "an older QEMU tells no tokens": (
        facts(replace(AT_LIMIT, spent_bytes_share=None, spent_operations_share=None)),
        "limit",
        "probably its own limit of 2.00 MB/s",
    ),
    "auto-shaping": (
        facts(AT_LIMIT, own=Limit(bytes_per_second=9 * MB), cap=2 * MB),
        "auto-shaping",
        "auto-shaping holds it to 2.00 MB/s for the sake of a stream, for 90% of the time;"
        " its decisions: sluice auto log",
    ),
    "its own limit is below auto-shaping's": (
        facts(AT_LIMIT, own=Limit(bytes_per_second=2 * MB), cap=3 * MB),
        "limit",
        "its own limit of 2.00 MB/s",
    ),
    "the ceiling": (
        facts(ceiling=Limit(bytes_per_second=5 * MB), moved_by_domain=Moved(4.9 * MB, 100)),
        "ceiling",
        "probably the ceiling of media, 5.00 MB/s for all its classes together, holds it for 90%"
        " of the time; raise it: sluice ceiling media blk-read 10000kB/s",
    ),
    "a ceiling of operations": (
        facts(ceiling=Limit(operations_per_second=100), moved_by_domain=Moved(4.9 * MB, 99)),
        "ceiling",
        "sluice ceiling media blk-read --ops=200",
    ),
    "the group, by its page": (
        facts(in_group=disks(moved=MB, waits=True)),
        "group",
        "the group disks, 2.00 MB/s for all its members, of which they move 1.00 MB/s, holds it",
    ),
    "the group, by its rate": (
        facts(in_group=disks("blk")),
        "group",
        "probably the group disks, 2.00 MB/s for all its members, of which they move 1.99 MB/s,"
        " holds it for 90% of the time; raise it: sluice group add disks --resource blk --rate"
        " 4000kB/s",
    ),
    "the gate": (
        facts(gate=GATE, gate_share=0.8),
        "gate",
        "the gate of auto-shaping, whose target is 120 ms in the device and whose window is"
        " 262 kB, holds it for 90% of the time",
    ),
    "no stage that is known": (facts(), "shaper", "see their priorities: sluice show media"),
    "new connections": (
        facts(
            replace(BUSY, refused_per_second=12), "net-rx", control=Control(200, "cut in overload")
        ),
        "connections",
        "its limit of 200 a second of new connections refuses 12 a second (cut in overload)",
    ),
    "libvirt's own throttle": (
        facts(
            BUSY,
            throttles=(Throttle("vda", "iotune", "blk", 2.1 * MB),),
            moved_by_disks=Moved(2 * MB, 16),
        ),
        "throttle",
        "probably libvirt's own <iotune> of vda, 2.10 MB/s, holds it below the shaper, and each"
        " request takes 61 ms there; see and change it: virsh blkdeviotune media vda",
    ),
    "a throttle that is far from full": (
        facts(
            BUSY,
            throttles=(Throttle("vda", "iotune", "blk", 9 * MB),),
            moved_by_disks=Moved(2 * MB, 16),
        ),
        "device",
        "",
    ),
    "a throttle of another disk, which moves less than all": (
        facts(
            BUSY,
            throttles=(Throttle("vda", "iotune", "blk", 2 * MB),),
            moved_by_disks=Moved(60 * MB, 480),
        ),
        "device",
        "",
    ),
    "a card's own bandwidth": (
        facts(
            replace(BUSY, in_flight=0.0, service_ms=0.0), "net-tx",
            throttles=(Throttle("vnet0", "bandwidth", "net-tx", 2 * MB),),
            moved_by_domain=Moved(2 * MB, 16),
        ),
        "throttle",
        "holds it below the shaper; see and change it: virsh domiftune media vnet0",
    ),
    "a slow device": (
        facts(BUSY),
        "device",
        "media/batch reads 2.00 MB/s in 16 requests/s: the device holds it: 1.0 requests are there"
        " in the mean, and each takes 61 ms (usually 4 ms); see who else uses the disk:"
        " sluice live",
    ),
    "one request at a time": (
        facts(replace(BUSY, service_ms=4.1)),
        "device",
        "the guest waits for one request before it sends the next",
    ),
    "the processors": (
        facts(replace(BUSY, service_ms=5.0), processor=Wait(420.0)),
        "processor",
        "probably the host's processors hold it: a thread of media waits 420 ms of each second"
        " for a processor; see and change its share: virsh schedinfo media",
    ),
    "a slow device beside busy processors": (facts(BUSY, processor=Wait(420.0)), "device", ""),
    "the link": (
        facts(
            replace(BUSY, in_flight=0.0), "net-tx",
            uplink=UplinkView(0, 3, 12.4 * MB, 12.5 * MB, True),
        ),
        "link",
        "probably the link beyond this host holds it: 12.4 MB/s of 12.5 MB/s are in use and 3"
        " packets were dropped in the last second",
    ),
    "a link beyond that nobody sees": (
        facts(
            replace(BUSY, in_flight=0.0), "net-tx",
            uplink=UplinkView(
                0, 0, 12.2 * MB, 12.5 * MB, True,
                learnt="movie's round trip was 180 ms over 20 ms",
            ),
        ),
        "link",
        "probably the link beyond this host holds it, which nobody here can see: movie's round trip"
        " was 180 ms over 20 ms, so all that leaves is held to 12.5 MB/s; see: sluice auto status",
    ),
    "nothing, and it is idle": (
        facts(Use(), "net-rx"),
        "nothing",
        "media/batch receives nothing: nothing holds it, it asks for nothing",
    ),
    "nothing, in a VM that waits for processors": (
        facts(Use(), processor=Wait(420.0)),
        "nothing",
        "media/batch reads nothing: nothing holds it, it asks for nothing; perhaps because a"
        " thread of media waits 420 ms of each second for a processor",
    ),
    "nothing, and it asks for little": (
        facts(replace(BUSY, in_flight=0.1, service_ms=4.0)),
        "nothing",
        "nothing here holds it, it asks for no more; the disk has a request of it for 10% of the"
        " time and takes 4 ms for each",
    ),
    "a page that cannot be read": (
        facts(None, unseen="the domain is off"),
        "unseen",
        "media/batch: nothing is known, because the domain is off; see: sluice show media",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_reason_and_its_sentence(name):
    given_facts, reason, words = CASES[name]
    answer = why(given_facts)
    assert (answer.reason, words in answer.sentence) == (reason, True), answer.sentence
    assert answer.certain != ("probably" in answer.sentence) or answer.reason == "shaper"


def test_each_reason_has_a_case():
    assert {reason for _, reason, _ in CASES.values()} == set(REASONS)


def test_the_gate_holds_no_stream():
    assert why(facts(gate=GATE, gate_share=0.8, is_stream=True)).reason == "shaper"


def test_a_full_group_whose_page_says_that_nobody_waits_is_not_the_reason():
    assert why(facts(in_group=disks(waits=False))).reason == "shaper"


AMOUNT = st.floats(0, 1e12)
SHARE = st.floats(0, 1)
SOME = st.none() | st.floats(1, 1e11)
COUNT = st.none() | st.integers(0, 2**40)
USES = st.builds(
    Use, AMOUNT, AMOUNT, SHARE, st.none() | SHARE, st.none() | SHARE, st.integers(0, 2**40),
    AMOUNT, AMOUNT, AMOUNT, st.none() | AMOUNT, SOME, SOME, COUNT, COUNT, AMOUNT,
)  # fmt: skip
LIMITS = st.builds(Limit, bytes_per_second=SOME, operations_per_second=SOME)
MOVED = st.builds(Moved, AMOUNT, AMOUNT)
GROUPS = st.builds(
    Group, st.just("disks"), st.sampled_from(sorted(PARTS)),
    st.builds(
        GroupLimit, st.sampled_from(["bytes", "operations"]), st.integers(1, 10**12),
        st.integers(1, 2**40),
    ),
)  # fmt: skip
THROTTLES = st.builds(
    Throttle, st.just("vda"), st.sampled_from(["iotune", "bandwidth"]),
    st.sampled_from([*RESOURCES, "blk"]), SOME, SOME,
)  # fmt: skip
WORDS = st.integers(0, 2**64 - 1)
FACTS = st.builds(
    Facts, st.text(), st.text(), st.sampled_from(RESOURCES), st.none() | USES, st.text(),
    st.booleans(), LIMITS, SOME, st.none() | st.builds(Control, AMOUNT, st.text()), LIMITS, MOVED,
    MOVED, st.none() | st.builds(InGroup, GROUPS, MOVED, st.none() | st.booleans()),
    st.none() | st.builds(GateState, WORDS, WORDS, WORDS, WORDS, WORDS), st.none() | SHARE,
    st.booleans(), st.lists(THROTTLES, max_size=3).map(tuple),
    st.none() | st.builds(UplinkView, AMOUNT, st.integers(0, 10**9), AMOUNT, SOME, st.booleans()),
    st.none() | st.builds(Wait, st.floats(0, 1000)),
)  # fmt: skip


@given(FACTS)
def test_whatever_is_known_there_is_one_reason_and_one_line(anything):
    answer = why(anything)
    assert answer.reason in REASONS
    assert answer.resource == anything.resource
    assert (answer.bytes_per_second is None) == (anything.use is None) == (
        answer.reason == "unseen"
    )  # fmt: skip
    assert len(answer.sentence) > 20


@given(FACTS.filter(lambda one: one.use is not None), st.sampled_from(RESOURCES))
def test_a_class_that_waits_in_the_shaper_is_held_by_a_stage_of_it(anything, resource):
    held = replace(anything, use=replace(anything.use, held_share=0.5), resource=resource)
    stages = {"limit", "auto-shaping", "ceiling", "group", "gate", "shaper"}
    assert why(held).reason in stages
    free = replace(anything, use=replace(anything.use, held_share=0.0), resource=resource)
    assert why(free).reason not in stages
