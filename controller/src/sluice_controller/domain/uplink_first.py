# SPDX-License-Identifier: GPL-2.0-or-later
"""Streams go first on the uplink: a queue discipline of sluiced's, as commands for tc.

An `htb` with a class for each stream, which come first, and one for all else. Where a rate is
known, that of a slower link beyond, the queue is made here, where its order can be chosen; else
no class ever waits for a rate, and the order alone counts.

A stream's frames are known by the MAC address of a card of its VM and by the DSCP that the agent,
or the operator, gives its class. A guest may give any of its frames that DSCP, so a stream that
sends far more than it declares goes with the others for a while (`Turn`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from .limits import MAX_PER_SECOND
from .model import Stream
from .nominal import allowed_bps
from .rates import format_rate

# "51ce:", by which sluiced knows its own; a discipline of the kernel's own choice has number 0.
MAJOR = 0x51CE
HANDLE = MAJOR << 16
ROOT_CLASS, OTHERS, FIRST_STREAM = 0x1, 0x2, 0x10
MOST_STREAMS = 32
# Above any card: nothing ever waits for it.
UNLIMITED_BPS = MAX_PER_SECOND
# Of a slower link beyond the host, so that its queue stays empty; and how much of that all other
# classes have in any case.
LINK_SHARE = 0.985
OTHERS_SHARE = 0.02
# Bytes that may go at once.
BURST_S = 0.001
LEAST_BURST_BYTES = 16 * 1024
QUANTUM_BYTES = 60_000
IPV4, IPV6 = 1, 2
# A stream that sends so much more than it declares, for so long, goes with the others for a while.
GREEDY_FACTOR = 1.5
GREEDY_S = 10.0
ASIDE_S = 60.0


@dataclass(frozen=True)
class Flow:
    """A stream's frames. ``slot`` is its place among the classes; ``dscps`` are 0 to 63."""

    stream: str
    slot: int
    macs: tuple[str, ...]
    dscps: tuple[int, ...]

    @property
    def number(self) -> int:
        """Of its class."""
        return HANDLE | FIRST_STREAM + self.slot


@dataclass(frozen=True)
class Plan:
    """``rate_bps``: that of a slower link beyond, None if there is none; ``flows`` by slot."""

    flows: tuple[Flow, ...]
    rate_bps: float | None


def tag_dscp(tag: int) -> int:
    return tag << 2 | 3


def slots(streams: Iterable[Stream], before: Mapping[str, int]) -> dict[str, int]:
    """{stream: its slot}; a stream keeps the slot that it had. Those beyond the last have none."""
    names = [stream.name for stream in streams]
    kept = {name: slot for name, slot in before.items() if name in names}
    free = iter(sorted(set(range(MOST_STREAMS)) - set(kept.values())))
    return kept | dict(zip([name for name in names if name not in kept], free, strict=False))


def commands(port: str, plan: Plan, there: Collection[int] | None) -> list[str]:
    """For tc's batch mode. ``there``: numbers of the classes of sluiced's discipline on the port,
    None where the kernel's own is."""
    root = f"{MAJOR:x}:"
    said = []
    if there is None:
        said.append(f"qdisc add dev {port} root handle {root} htb default {OTHERS:x}")
    else:
        # A filter keeps its class from being removed.
        said.append(f"filter del dev {port} parent {root}")
    said += rate_commands(port, plan)
    said += [line for flow in plan.flows for line in _filters(port, flow)]
    wanted = {HANDLE | ROOT_CLASS, HANDLE | OTHERS, *(flow.number for flow in plan.flows)}
    gone = sorted(set(there or ()) - wanted)
    return said + [f"class del dev {port} classid {_name(number)}" for number in gone]


def rate_commands(port: str, plan: Plan) -> list[str]:
    """Of ``commands`` those that give the classes rates. No frame loses its class meanwhile."""
    rate = UNLIMITED_BPS if plan.rate_bps is None else LINK_SHARE * plan.rate_bps
    of_streams = (1 - OTHERS_SHARE) * rate / max(1, len(plan.flows))
    root, above = f"{MAJOR:x}:", _name(HANDLE | ROOT_CLASS)
    return [
        _class(port, root, HANDLE | ROOT_CLASS, rate, rate, 0),
        _class(port, above, HANDLE | OTHERS, OTHERS_SHARE * rate, rate, 7),
        *(_class(port, above, flow.number, of_streams, rate, 0) for flow in plan.flows),
    ]


def _name(number: int) -> str:
    return f"{number >> 16:x}:{number & 0xFFFF:x}"


def _class(port: str, above: str, number: int, rate: float, ceiling: float, order: int) -> str:
    burst = round(max(LEAST_BURST_BYTES, BURST_S * ceiling))
    return (
        f"class replace dev {port} parent {above} classid {_name(number)} htb"
        f" rate {round(8 * rate)}bit ceil {round(8 * ceiling)}bit burst {burst}b cburst {burst}b"
        f" prio {order} quantum {QUANTUM_BYTES}"
    )


def _filters(port: str, flow: Flow) -> list[str]:
    """The DSCP is the upper six bits of the second byte of IPv4, of bits 4 to 11 of IPv6."""
    made = []
    for mac in flow.macs:
        for dscp in flow.dscps:
            of_card = (
                f"filter add dev {port} parent {MAJOR:x}: protocol {{}} prio {{}} u32"
                f" match ether src {mac}"
            )
            to = f"flowid {_name(flow.number)}"
            v4 = f"match u8 {dscp << 2:#04x} 0xfc at 1"
            v6 = f"match u16 {dscp << 6:#06x} 0x0fc0 at 0"
            made.append(f"{of_card.format('ip', IPV4)} {v4} {to}")
            made.append(f"{of_card.format('ipv6', IPV6)} {v6} {to}")
    return made


@dataclass(frozen=True)
class Turn:
    """Whether a stream goes first: since when it has sent too much, and until when it does not."""

    greedy_since_s: float | None = None
    aside_until_s: float = 0.0

    def goes_first(self, now_s: float) -> bool:
        return now_s >= self.aside_until_s


def next_turn(turn: Turn, stream: Stream, sent_bps: float, now_s: float) -> Turn:
    """``sent_bps``: by frames that went first."""
    if sent_bps <= GREEDY_FACTOR * allowed_bps(stream):
        return replace(turn, greedy_since_s=None)
    since_s = now_s if turn.greedy_since_s is None else turn.greedy_since_s
    if now_s - since_s < GREEDY_S:
        return replace(turn, greedy_since_s=since_s)
    return Turn(None, now_s + ASIDE_S)


def greedy_words(stream: Stream, sent_bps: float) -> str:
    may = "declares" if stream.nominal_bytes_per_second is not None else "may, undeclared, send"
    return (
        f"{stream.name} sends {format_rate(sent_bps)} and {may} {format_rate(allowed_bps(stream))}:"
        f" it goes with the others on the uplink for {ASIDE_S:.0f} s"
    )
