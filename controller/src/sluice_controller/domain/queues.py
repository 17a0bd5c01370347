# SPDX-License-Identifier: GPL-2.0-or-later
"""The queue of a class for its frames, and the fate of frames beyond it.

The ranges are those of the shaper (`docs/specs/shaper-qmp.md`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

from .errors import BadValue
from .knobs import Flag, Model, Name, Number, Size, Whole, Word
from .limits import MAX_BURST, NET_RX, NET_TX, parse_resource
from .values import inner

QUEUE_RESOURCES = (NET_TX, NET_RX)
NO_AQM, CODEL = AQMS = ("none", "codel")
OFF, AUTO = OVERLOADS = ("off", "auto")

MAX_LIMIT_BYTES = 2**26
MAX_LIMIT_PACKETS = 2**18
MAX_CONNECTIONS_PER_SECOND = 10**12


@dataclass(frozen=True)
class Queue(Model):
    """The queue of a class for its frames, in one direction."""

    null_is_default: ClassVar[bool] = True

    limit_bytes: Annotated[
        int | None,
        Size(
            1,
            MAX_LIMIT_BYTES,
            optional=True,
            help="size of the queue; null: 1/20 second at the class's rate",
            option="--bytes",
            shown="at most {}",
            only=QUEUE_RESOURCES,
        ),
    ] = None
    limit_packets: Annotated[
        int | None,
        Whole(
            1,
            MAX_LIMIT_PACKETS,
            optional=True,
            help="frames that it holds; null: any number",
            option="--packets",
            shown="at most {} frames",
            only=QUEUE_RESOURCES,
        ),
    ] = None
    aqm: Annotated[
        str,
        Word(
            AQMS,
            help="before it is full: codel, a queue that stands loses frames",
            only=QUEUE_RESOURCES,
        ),
    ] = NO_AQM
    ecn: Annotated[
        bool,
        Flag(
            help="with codel: frames are marked, where possible",
            option="--ecn/--no-ecn",
            shown="with ECN",
            only=QUEUE_RESOURCES,
            beside=("aqm", CODEL),
        ),
    ] = False
    connections_per_second: Annotated[
        float | None,
        Number(
            1,
            MAX_CONNECTIONS_PER_SECOND,
            "connections per second",
            optional=True,
            help="new TCP connections, net-rx only; null: unlimited",
            option="--connections",
            shown="{} new connections/s",
            only=(NET_RX,),
        ),
    ] = None
    burst_connections: Annotated[
        float | None,
        Number(
            1,
            MAX_BURST,
            "connections",
            optional=True,
            help="at once; null: as the shaper chooses",
            shown="{} at once",
            only=(NET_RX,),
        ),
    ] = None
    overload: Annotated[
        str,
        Word(
            OVERLOADS,
            help="auto: fewer new connections while the accept queue of a server of the class is"
            " more than half full, as the guest's agent tells; connections_per_second is the most",
            shown="overload control {}",
            only=(NET_RX,),
        ),
    ] = OFF

    def check(self, thing: str) -> None:
        if self.ecn and self.aqm == NO_AQM:
            raise BadValue(
                inner(thing, "ecn"), True, "marks nothing without aqm", f"give aqm {CODEL} too"
            )
        if self.burst_connections is not None and self.connections_per_second is None:
            raise BadValue(
                inner(thing, "burst_connections"),
                self.burst_connections,
                "has no rate",
                "give connections_per_second with it, or neither",
            )
        if self.overload == AUTO and self.connections_per_second is None:
            raise BadValue(
                inner(thing, "overload"),
                self.overload,
                "has no limit that it may lower",
                "give connections_per_second with it: the most in a second",
            )

    def check_for(self, resource: str, thing: str) -> None:
        if resource not in QUEUE_RESOURCES:
            raise BadValue(
                thing,
                asdict(self),
                "has no queue of frames",
                f"use {' or '.join(QUEUE_RESOURCES)}; disk requests are never dropped",
            )
        if self.connections_per_second is not None and resource != NET_RX:
            raise BadValue(
                inner(thing, "connections_per_second"),
                self.connections_per_second,
                f"does not go with {resource}",
                f"use {NET_RX}: new connections are counted where they come in",
            )


DEFAULT_QUEUE = Queue()
# Disks have none; `check_for` says so.
QueueResource = Annotated[str, Name("|".join(QUEUE_RESOURCES), parse_resource)]
