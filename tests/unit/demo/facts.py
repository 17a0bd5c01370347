# SPDX-License-Identifier: GPL-2.0-or-later
"""Windows and samples as a run would collect them."""

import dataclasses

from demo.judge import Background, Phase
from demo.sampler import Sample
from demo.scale import Scale
from testbed.stream import Window, judge

STREAM_BPS = 830_000
SCALE = Scale(
    film_mbit=3.0,
    link_mbit=100,
    disk_bytes_per_s=25_000_000,
    readers=9,
    overload=0.6,
    read_ahead_kib=3072,
    polling_share=0.1,
    expected_share=0.6,
    why="it fits",
)


def windows(start_s: float, end_s: float, **faults) -> list[Window]:
    """Windows of half a second; ``faults`` go into each."""
    count = round((end_s - start_s) * 2)
    return [
        Window(
            start_s=start_s + index / 2,
            window_ms=500.0,
            received_datagrams=315,
            received_bytes=STREAM_BPS // 2,
            pictures=12,
            **faults,
        )
        for index in range(count)
    ]


def samples(start_s: float, end_s: float, http_bps: float, disk_bps: float) -> list[Sample]:
    """One sample per second with steady rates."""
    found = []
    for second in range(round(end_s - start_s) + 1):
        found.append(
            Sample(
                at_s=start_s + second,
                client_bytes=round(second * (http_bps + STREAM_BPS)),
                stream_bytes=second * STREAM_BPS,
                disk_bytes={"movie": second * STREAM_BPS, "media": round(second * disk_bps)},
                disk_seeks=second * 8,
                disk_busy_ns=second * 500_000_000,
                cpu_busy_s=second * 1.5,
                cpu_total_s=second * 2.0,
                link_backlog_bytes=0,
            )
        )
    return found


def phase(name: str, http: float, disk: float, **faults) -> Phase:
    whole = Window(window_ms=30_000, received_datagrams=19_000, pictures=750)
    return Phase(
        name=name,
        start_s=0.0,
        end_s=30.0,
        stream=judge(dataclasses.replace(whole, **faults)),
        background=Background(http, disk),
        cpu_ratio=0.5,
        disk_busy_ratio=0.9,
        disk_seeks_per_s=8.0,
    )
