# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything that the shaper takes for scheduling and queues, for properties."""

from hypothesis import strategies as st

from sluice_controller.domain.limits import DISK_RESOURCES, NET_RX, RESOURCES, Limit
from sluice_controller.domain.queues import AQMS, QUEUE_RESOURCES, Queue
from sluice_controller.domain.scheduling import CHARGES, DYNAMICS, POLICIES, Scheduling, Window

MOST = 10**12
# A reservation may be as high as a limit.
MOST_RESERVED = 10**11


@st.composite
def windows(draw, most):
    """Those that reserve no more than `most` bytes per second."""
    period_ns = draw(st.integers(max(1000, -(-(10**9) // most)), 3600 * 10**9))
    of = draw(st.integers(1, 1000))
    return Window(
        period_ns,
        draw(st.integers(1, min(2**32 - 1, most * period_ns // 10**9))),
        draw(st.integers(0, of - 1)),
        of,
    )


@st.composite
def schedulings(draw, resource, limit):
    """Sound for the resource and within its limit."""
    most = limit.bytes_per_second or MOST_RESERVED
    policy = draw(st.sampled_from(POLICIES if limit.bytes_per_second else POLICIES[:2]))
    reservation, window = draw(
        st.just((None, None))
        | st.tuples(st.integers(1, int(most)) | st.floats(1, most), st.none())
        | st.tuples(st.none(), windows(most))
    )
    return Scheduling(
        reservation,
        policy,
        draw(st.integers(int(most) + 1, MOST)) if policy == "token-leaky" else None,
        draw(st.none() | st.integers(0, 2**20)),
        draw(st.sampled_from(DYNAMICS)),
        draw(st.sampled_from(CHARGES if resource in DISK_RESOURCES else CHARGES[:1])),
        window,
    )


@st.composite
def queues(draw, resource):
    aqm = draw(st.sampled_from(AQMS))
    rate = draw(st.none() | st.integers(1, MOST)) if resource == NET_RX else None
    return Queue(
        draw(st.none() | st.integers(1, 2**26)),
        draw(st.none() | st.integers(1, 2**18)),
        aqm,
        aqm != "none" and draw(st.booleans()),
        rate,
        None if rate is None else draw(st.none() | st.integers(1, 2**40)),
    )


def limits():
    rate = st.integers(1024, 10**9)
    return st.dictionaries(
        st.sampled_from(RESOURCES),
        st.builds(
            Limit,
            bytes_per_second=rate,
            burst_bytes=st.none() | rate,
            operations_per_second=st.none() | rate,
        ),
        max_size=3,
    )


@st.composite
def knobs(draw):
    """(limits, scheduling, queues) of a grant, without what is as by default."""
    of = draw(limits())
    chosen = draw(st.sets(st.sampled_from(RESOURCES)))
    scheduling = {r: draw(schedulings(r, of.get(r, Limit()))) for r in chosen}
    queued = {r: draw(queues(r)) for r in draw(st.sets(st.sampled_from(QUEUE_RESOURCES)))}
    return (
        of,
        {r: one for r, one in scheduling.items() if one != type(one)()},
        {r: one for r, one in queued.items() if one != type(one)()},
    )
