# SPDX-License-Identifier: GPL-2.0-or-later
"""How near each stream is to its edge on each resource, and which is to blame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .processors import BEARABLE_MS_PER_SECOND
from .shares import Load
from .tuner_types import (
    DISK,
    LARGEST_OVERHEAD,
    NETWORK,
    SEGMENT_OVERHEAD,
    Observation,
    Policy,
    Pressure,
    StreamView,
    UplinkView,
)

# Shares of a deadline. The guest reads ahead by one request, so the mean decides
# whether the stream keeps up; the player's buffer covers a late one.
MEAN_EDGE = 0.6
WORST_EDGE = 2.0
# A player buffers as long for a slow film (VLC: one second): no more than at 7 Mbit/s.
LONGEST_DEADLINE_MS = 150.0
# Fewer requests in a second have no mean worth the name: one of them was late.
REQUESTS_OF_A_MEAN = 3
# Share of a link whose queue is not seen. Beyond it a queue grows there, unknown to this host.
FULL_LINK = 0.95
# Of a resource that a client's fault is laid to, at least.
FAULT_PRESSURE = 1.5
# Below this pressure a resource is not blamed for a client's report.
BLAME_PRESSURE = 0.6


def disk_deadline_ms(stream: StreamView) -> float:
    """Return how long a read of the stream may take so that it keeps up, in milliseconds.

    A stream of a low rate reads seldom, and its player has no larger buffer for that.
    """
    request = stream.disk_request_bytes or 128 * 1024
    lasts_ms = 1000 * request / stream.nominal_bytes_per_second
    return min(LONGEST_DEADLINE_MS, max(20.0, lasts_ms))


def _disk_pressure(stream: StreamView) -> Pressure:
    deadline_ms = disk_deadline_ms(stream)
    value = stream.disk_worst_ms / (WORST_EDGE * deadline_ms)
    if stream.disk_requests >= REQUESTS_OF_A_MEAN:
        value = max(value, stream.disk_mean_ms / (MEAN_EDGE * deadline_ms))
    latest = stream.disk_latest_ms / (MEAN_EDGE * deadline_ms)
    words = (
        f"disk wait {stream.disk_mean_ms:.0f} ms, at most {stream.disk_worst_ms:.0f} ms, "
        f"with a read due each {deadline_ms:.0f} ms"
    )
    return Pressure(value, latest, stream.name, words)


def network_pressure(stream: str, uplink: UplinkView | None, policy: Policy) -> Pressure:
    if uplink is None:
        return Pressure(0.0, 0.0, stream, "no uplink is watched")
    if stream in uplink.first:
        # Cuts of the others cannot help: they wait for it already.
        return Pressure(0.0, 0.0, stream, "it goes first on the uplink")
    delay_ms = 0.0
    # A queue that stands empties at the link's rate, known or not.
    rate = uplink.link_bytes_per_second or uplink.bytes_per_second
    if rate:
        delay_ms = 1000 * uplink.backlog_bytes / rate
    value = delay_ms / policy.queue_delay_ms
    words = f"uplink queue {delay_ms:.0f} ms"
    if uplink.is_beyond and rate:
        used = uplink.bytes_per_second / (FULL_LINK * rate)
        if used > value:
            value = used
            words = f"link in use {100 * uplink.bytes_per_second / rate:.0f} %"
    if uplink.dropped:
        value, words = max(2.0, value), f"{words}, {uplink.dropped} packets dropped"
    return Pressure(value, value, stream, words)


def pressures(observation: Observation, policy: Policy) -> dict[str, dict[str, Pressure]]:
    """{arm: {stream: its pressure}}, client faults laid to one of the arms."""
    found: dict[str, dict[str, Pressure]] = {DISK: {}, NETWORK: {}}
    for stream in observation.streams:
        on = {
            DISK: _disk_pressure(stream),
            NETWORK: network_pressure(stream.name, observation.uplink, policy),
        }
        if stream.net_bytes_per_second <= 0 and not stream.lost:
            on[NETWORK] = Pressure(stream=stream.name)
        if stream.stalled or stream.lost:
            blamed = _blame(stream, on)
            if blamed is not None:
                what = "the client stalled" if stream.stalled else "the client lost data"
                hit = on[blamed]
                on[blamed] = replace(
                    hit,
                    value=max(FAULT_PRESSURE, hit.value),
                    words=f"{what}, {hit.words}",
                    fault=True,
                    fault_began_ns=stream.fault_began_ns,
                    without_fault=hit,
                )
        for arm, pressure in on.items():
            found[arm][stream.name] = pressure
    return found


def values_of(of_streams: Mapping[str, Pressure]) -> dict[str, float]:
    return {name: pressure.value for name, pressure in of_streams.items()}


def worst(of_streams: Iterable[Pressure]) -> Pressure:
    return max(of_streams, key=lambda pressure: pressure.value, default=Pressure())


def _blame(stream: StreamView, on: Mapping[str, Pressure]) -> str | None:
    """The resource under more pressure; neither if both are at ease.

    A late disk stalls a stream; to lose packets of it, it must be far too late.
    """
    disk_edge = 1.0 if stream.lost and not stream.stalled else BLAME_PRESSURE
    edges = {NETWORK: BLAME_PRESSURE, DISK: disk_edge}
    able = [arm for arm, edge in edges.items() if on[arm].value > edge]
    return max(able, key=lambda arm: on[arm].value, default=None)


def total(loads: list[Load]) -> float:
    return sum(load.bytes_per_second for load in loads)


def recent(loads: list[Load]) -> float:
    """The background's present rate; the mean of the last second lags a rising load."""
    return sum(load.recent_bytes_per_second for load in loads)


def left_of_link(arm: str, loads: list[Load], observation: Observation) -> float | None:
    """The rate that streams and unmanaged classes leave on a link, as the shaper counts bytes.

    Beyond it packets drop, the stream's among them: no probe may go there. The
    link carries headers for each segment that the shaper sees only once; while
    it drops, that overhead cannot be measured and full segments are assumed.
    """
    uplink = observation.uplink
    if arm != NETWORK or uplink is None or not uplink.link_bytes_per_second:
        return None
    streams = sum(s.nominal_bytes_per_second for s in observation.streams)
    unmanaged = observation.unmanaged_net_bytes_per_second
    seen = total(loads) + sum(s.net_bytes_per_second for s in observation.streams) + unmanaged
    overhead = SEGMENT_OVERHEAD
    if seen > 0 and not uplink.dropped:
        overhead = min(LARGEST_OVERHEAD, max(1.0, uplink.bytes_per_second / seen))
    return max(1024.0, (uplink.link_bytes_per_second - 1.1 * streams) / overhead - unmanaged)


def is_active(arm: str, observation: Observation, pressure: Pressure) -> bool:
    """Whether any stream uses the resource."""
    return pressure.value > 0.05 or any(is_user(arm, stream) for stream in observation.streams)


def is_user(arm: str, stream: StreamView) -> bool:
    return (stream.disk_bytes_per_second if arm == DISK else stream.net_bytes_per_second) > 0


def unexplained(
    observation: Observation, felt: Mapping[str, Mapping[str, Pressure]]
) -> StreamView | None:
    """A stream whose client reports a fault that no resource here explains.

    One that waits too long for processors has its own words (`easing.py`).
    """
    for stream in observation.streams:
        is_explained = any(p.fault for each in felt.values() for p in each.values())
        is_starved = stream.processor_wait_ms_per_second > BEARABLE_MS_PER_SECOND
        if (stream.stalled or stream.lost) and not is_explained and not is_starved:
            return stream
    return None


def three_figures(stream: StreamView, felt: Mapping[str, Mapping[str, Pressure]]) -> str:
    """The waits of a stream for disk, uplink and processors, in words."""
    known = [felt[arm][stream.name].words for arm in (DISK, NETWORK)]
    waited = f"{stream.processor_wait_ms_per_second:.0f} ms of each second for a processor"
    return ", ".join([*filter(None, known), waited])
