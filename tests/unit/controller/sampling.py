# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of sluiced that look at pages and remember, put together as it does."""

from dataclasses import dataclass

from at_once import AtOnce
from sluice_controller.services.auto import Auto
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.beyond import Beyond
from sluice_controller.services.declared import Declared
from sluice_controller.services.gates import Gates
from sluice_controller.services.nominal import KEY, Nominals
from sluice_controller.services.records import Records
from sluice_controller.services.sampler import Sampler
from sluice_controller.services.streams import Streams


@dataclass
class Parts:
    declared: Declared
    records: Records
    sampler: Sampler
    streams: Streams
    limits: AutoLimits
    auto: Auto


class Shapers:
    """QEMUs that take every command: {domain: the arguments of each}"""

    def __init__(self):
        self.taken = {}

    def execute(self, domain, command, arguments):
        assert command == "shaper-set-gate"
        self.taken.setdefault(domain, []).append(arguments)


class OneDisk:
    """A host with one device under all images."""

    def under(self, path):
        return "sda"


def parts(
    store,
    host,
    pages,
    clock,
    uplinks=None,
    monotonic=lambda: 0.0,
    shapers=None,
    devices=None,
    trips_of=lambda domain: (),
):
    declared = Declared(store)
    records = Records(store, declared, clock, monotonic)
    sampler = Sampler(declared, records, host, pages, uplinks, clock)
    with store.transaction() as unit:
        nominals = Nominals(records, unit.value(KEY, {}))
    about = store.transaction
    streams = Streams(store, declared, sampler, clock, lambda _domain: about(), nominals.now)
    limits = AutoLimits()
    gates = Gates(host, devices or OneDisk(), shapers or Shapers(), AtOnce())
    beyond = Beyond(declared, trips_of)
    auto = Auto(
        store, declared, records, sampler, streams, limits, gates, beyond, clock,
        lambda domain: None, nominals,
    )  # fmt: skip
    return Parts(declared, records, sampler, streams, limits, auto)
