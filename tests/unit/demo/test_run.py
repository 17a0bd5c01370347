# SPDX-License-Identifier: GPL-2.0-or-later
"""Which phases are played where processors are short from the first one on."""

import dataclasses
from types import SimpleNamespace

import pytest

from demo.plan import PHASES, Plan
from demo.run import Run
from unit.demo.facts import SCALE, phase


class Played(Run):
    """A run whose phases are found, all of them poor and with no processor to spare."""

    def __init__(self):
        self.scene = SimpleNamespace(resize=lambda _scale: None)
        self._say, self._plan = (lambda _words: None), Plan()

    def _found(self, name: str) -> None:
        found = phase(name, 1e6, 1e6, stalls=9, stall_seconds=9.0)
        self._phases[name] = dataclasses.replace(found, waited_ratio=0.9)

    def start_stream(self, _film_mbit):
        pass

    def _control(self):
        self._found("control")

    def _start_loads(self, _scale):
        return 1.0

    def _unshaped(self):
        self._found("unshaped")

    def _auto(self):
        self._found("auto")
        return 0.0, None


@pytest.mark.parametrize(("whole", "names"), [(True, PHASES), (False, PHASES[:1])])
def test_a_night_has_all_phases_and_a_demo_that_can_be_smaller_ends_at_once(whole, names):
    assert tuple(Played()._attempt(SCALE, whole=whole).phases) == names
