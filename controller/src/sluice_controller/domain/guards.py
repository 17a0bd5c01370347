# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether cuts help a stream; if not, it is set aside and they are given back. Pure.

Both methods of auto-shaping ask here: the tuner of rates for each resource, the gate for each
device. A pressure above 1 is beyond the stream's edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .tuner_types import Elsewhere, Help, Policy

MOST_TRIES = 8
RISING_RATIO = 1.5


def helped(before: Help, value: float, is_missed: bool, policy: Policy, now_ns: int) -> Help:
    """Notes whether the pressure is well below its peak since the cuts began, or below the edge.

    `is_missed`: just now nothing can be known of it.
    """
    if value <= 1.0:
        # The cuts of this risk have helped; the next risk has a peak of its own.
        return Help(0.0, now_ns)
    well_below = value < policy.helped_share * before.peak
    if well_below or before.helped_ns is None or is_missed:
        return Help(before.peak, now_ns)
    return replace(before, peak=max(value, before.peak))


def is_helpless(help_: Help, policy: Policy, now_ns: int) -> bool:
    return help_.helped_ns is not None and now_ns - help_.helped_ns >= policy.help_ns


def still_aside(
    aside: Mapping[str, Elsewhere], values: Mapping[str, float], policy: Policy, now_ns: int
) -> Mapping[str, Elsewhere]:
    """Without the streams that are gone, or have been at ease for long enough."""
    left = {}
    for name, one in aside.items():
        if name in values:
            risky_ns = now_ns if values[name] > 1.0 else one.risky_ns
            if now_ns - risky_ns < policy.help_ns:
                left[name] = replace(one, risky_ns=risky_ns)
    return left


def is_aside(aside: Mapping[str, Elsewhere], stream: str, value: float, now_ns: int) -> bool:
    """Whether no cuts are tried for it now."""
    one = aside.get(stream)
    return one is not None and now_ns < one.until_ns and value <= RISING_RATIO * one.pressure


def set_aside(
    aside: Mapping[str, Elsewhere],
    values: Mapping[str, float],
    worst: str,
    peak: float,
    policy: Policy,
    now_ns: int,
) -> Mapping[str, Elsewhere]:
    """With the streams that are beyond their edge still; each has waits of its own."""
    found = dict(aside)
    for name, value in values.items():
        if name == worst or (value > 1.0 and not is_aside(aside, name, value, now_ns)):
            tries = aside[name].tries if name in aside else 0
            wait_ns = min(policy.elsewhere_ns << tries, policy.longest_elsewhere_ns)
            highest = max(peak, value) if name == worst else value
            found[name] = Elsewhere(min(tries + 1, MOST_TRIES), now_ns + wait_ns, highest, now_ns)
    return found
