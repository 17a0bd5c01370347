# SPDX-License-Identifier: GPL-2.0-or-later
"""The gate of each VM, in the plant, steered by the outer loop of the controller's domain.

The reads of streams come from the plant as exact sums, which a counters page does not have yet.
The uplink, if there is one, serves the streams' frames first, as a root `prio` does.
"""

import random
from collections import deque

from sim import native
from sim.run import Caps
from sim.scenario import ONSET_S, SECOND, Scenario
from sluice_controller.domain.gate import Reader, State, depth_of, steer

# How long a number of reads in flight is remembered.
DEPTH_TICKS = 300
SECOND_TICKS = 10


class Gate:
    """The policy; it sets no caps."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.state = State()
        self._lost = random.Random(f"samples/{scenario.kind}/{scenario.seed}")
        self._from_ns = 0 if scenario.gate_on else ONSET_S * SECOND
        self._seen = [deque(maxlen=DEPTH_TICKS) for _ in scenario.streams]
        self._held = 0
        self._at_ns = 0

    def tick(self, plant: native.Plant, now_ns: int) -> Caps | None:
        if self.scenario.disk is None:
            return None
        if self._lost.random() < self.scenario.lost_samples:
            # The target stays as it is until the page is there again.
            return None
        readers = []
        for number, history in enumerate(self._seen):
            history.append((now_ns, plant.reads(number)))
            if len(history) > 1 and history[-1][1].bytes:
                readers.append(self._reader(number, history))
        if now_ns >= self._from_ns:
            self._steer(plant, readers, now_ns)
        self._at_ns = now_ns
        return None

    def _reader(self, number: int, history: deque) -> Reader:
        stream = self.scenario.streams[number]
        (last_ns, last), (now_ns, now) = history[-2], history[-1]
        second_ns, second = history[max(0, len(history) - 1 - SECOND_TICKS)]
        first = history[0][1]
        return Reader(
            name=f"s{number}",
            nominal_bytes_per_second=stream.bytes_per_second,
            request_bytes=stream.request_bytes,
            depth=depth_of([b - a for a, b in zip(first.asked, now.asked, strict=True)]),
            mean_in_flight=(now.busy_ns - last.busy_ns) / (now_ns - last_ns),
            oldest_s=now.oldest_ns / SECOND,
            outstanding=(now.outstanding_ns - second.outstanding_ns) / (now_ns - second_ns),
            bytes_per_second=(now.bytes - second.bytes) / (now_ns - second_ns) * SECOND,
        )

    def _steer(self, plant: native.Plant, readers: list[Reader], now_ns: int) -> None:
        held = sum(plant.gate(vm).held for vm in range(plant.vms))
        self.state, steering = steer(
            readers,
            self.state,
            held=held > self._held,
            unseen=False,
            now_ns=now_ns,
            passed_s=(now_ns - self._at_ns) / SECOND,
        )
        self._held = held
        for vm in range(plant.vms):
            plant.set_gate(vm, steering.target_ns, steering.shrink)
