# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of auto-shaping in sentences, for the terminal and the page alike. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from .errors import sluice
from .rates import format_measured, format_rate

# Of the names in a sentence; one more than that is named rather than counted.
SHOWN = 4
UNHEEDED = (
    "No short link beyond the host is looked for: round trips that guests tell are not heeded"
    f" ({sluice('auto', 'on', '--round-trips')})"
)

Status = Mapping[str, Any]


def listed(names: Collection[str]) -> str:
    """The first of them by name, and how many more there are."""
    ordered = sorted(names)
    if len(ordered) <= SHOWN + 1:
        return ", ".join(ordered)
    return f"{', '.join(ordered[:SHOWN])} and {len(ordered) - SHOWN} more"


def sentences(status: Status) -> list[str]:
    """Of the answer to `GET /v1/auto`, all but the held classes: each gate with the streams that
    it is for, open gates by their reason, domains without a gate, what the operator names and what
    is assumed of disks, a link beyond the host, and shares of processors."""
    return [
        *_gates(status["devices"]),
        *_without(status["without_gate"]),
        *_names(status),
        *_assumed(status["assumed"]),
        *([] if status["round_trips"] else [UNHEEDED]),
        *_beyond(status["beyond"]),
        *_eased(status["eased"]),
    ]


def _gates(devices: Sequence[Status]) -> Iterator[str]:
    told = [one for one in devices if one["open_because"] is None or one["streams"]]
    # Those that hold somebody are why anybody looks.
    for device in sorted(told, key=lambda one: one["open_because"] is not None):
        yield _gate(device)
        for one in device["streams"]:
            yield _waits(one, device["name"])
    quiet = [one for one in devices if one not in told]
    for why in dict.fromkeys(one["open_because"] for one in quiet):
        names = [one["name"] for one in quiet if one["open_because"] == why]
        yield f"{'Gate' if len(names) == 1 else 'Gates'} of {listed(names)} open: {why}"


def _gate(device: Status) -> str:
    head = f"Gate of {device['name']} ({listed(device['domains'])})"
    moved = f"others move {format_rate(device['background_bytes_per_second'])}"
    if device["target_ms"] is None:
        return f"{head} open: {device['open_because']}; {moved}"
    may = (
        f"{device['target_ms']:.1f} ms of work of others in flight "
        f"(adjusted × {device['adjust']:.2f})"
    )
    if device["open_because"] is not None:
        return f"{head} open: {device['open_because']}; it would leave {may}; {moved}"
    windows = format_measured(device["window_bytes"])
    return f"{head} leaves {may}, in windows of {windows}; {moved}"


def _waits(one: Status, device: str) -> str:
    elsewhere = ", for something else than the others" if one["is_elsewhere"] else ""
    waits = f"{one['waits_ms']:.0f} of the {one['bears_ms']:.0f} ms that it can bear"
    return f"{one['stream']} waits {waits} on {device}{elsewhere}"


def _without(domains: Sequence[Status]) -> Iterator[str]:
    for one in domains:
        yield f"{one['domain']} has no gate: {one['because']}"


def _names(status: Status) -> Iterator[str]:
    for device in status["devices"]:
        if device["named_by"]:
            yield f"{device['name']} is named by the operator, for {listed(device['named_by'])}"
    for images in status["names_without_disk"]:
        name = status["device_names"][images]
        yield f"No running domain has a disk under {images}, which the operator names {name}"


def _assumed(disks: Sequence[Status]) -> Iterator[str]:
    for device, why in dict.fromkeys((one["device"], one["because"]) for one in disks):
        alike = [one for one in disks if (one["device"], one["because"]) == (device, why)]
        where = listed({one["image"] or f"a disk of {one['domain']}" for one in alike})
        yield f"Taken to lie on {device}: {where}; {why}"


def _beyond(link: Status) -> Iterator[str]:
    if link["bytes_per_second"] is not None:
        rate = format_rate(link["bytes_per_second"])
        yield (
            f"Nobody here can see the link beyond the host: {link['because']}, so all that leaves "
            f"is held to {rate}"
        )
    for one in link["streams"]:
        ms = f"{one['round_trip_ms']:.0f} ms over {one['least_ms']:.0f} ms"
        elsewhere = ", for something else than the others here" if one["is_elsewhere"] else ""
        yield f"{one['stream']}'s round trip is {ms}{elsewhere}"
    untold = link["without_signal"]
    for why in dict.fromkeys(one["because"] for one in untold):
        names = listed([one["stream"] for one in untold if one["because"] == why])
        yield f"A short link beyond the host is not seen for {names}: {why}"


def _eased(domains: Sequence[Status]) -> Iterator[str]:
    for one in domains:
        name = one["domain"]
        if one["refused"]:
            yield f"{name}'s share of the processors cannot be changed: it {one['refused']}"
            continue
        share = f"a weight of {one['weight']} for its own {one['own_weight']}"
        if one["processors_per_vcpu"] is not None:
            share += f" and {one['processors_per_vcpu']:.1%} of each vCPU's time"
        yield f"{name} leaves processors to streams: it has {share}"
