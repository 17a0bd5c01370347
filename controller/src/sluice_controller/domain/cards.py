# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of a domain's network cards, which are known by their MAC addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from .errors import NotFound, sluice
from .guests import Description
from .knobs import Model, Name, Word, matching

DSCP = AUTO, *_ = ("auto", "off", "outbound", "both")
_MAC = "[0-9a-f]{2}(?::[0-9a-f]{2}){5}"
MacAddress = Annotated[
    str,
    Name(
        _MAC,
        matching(_MAC, "a MAC address in small letters", "give six pairs of digits 0-9a-f"),
        example="52:54:00:12:34:56",
    ),
]


@dataclass(frozen=True)
class Card(Model):
    """A network card's settings."""

    dscp: Annotated[
        str, Word(DSCP, help="which frames' DSCP counts, after the guest's port map")
    ] = AUTO


def card_path(alias: str) -> str:
    """The card's place in QEMU."""
    return f"/machine/peripheral/{alias}"


def by_path(cards: Mapping[str, Card], live: Description) -> dict[str, str]:
    """{place in QEMU: which DSCP counts} of the shaped cards of a running domain.

    `cards`: the declared ones, by MAC address.
    """
    return {
        card_path(device.alias): cards[device.mac].dscp
        for device in live.devices
        if device.alias and device.overridden and device.mac in cards
    }


def mac_of(devices: Iterable[Mapping[str, Any]], card: str, domain: str) -> str:
    """The MAC address of a card that is named by that, by its target, or by its alias."""
    found = [device for device in devices if device["mac"]]
    for device in found:
        if card in (device["mac"], device["target"], device["alias"]):
            return device["mac"]
    cards = ", ".join(device["mac"] for device in found) or "no card"
    listing = sluice("show", domain)
    raise NotFound("card", card, f"is not one of {domain}, which has {cards}", f"see: {listing}")
