# SPDX-License-Identifier: GPL-2.0-or-later
"""Which interruption of a run loses no restart: none.

The module's own decision and its own notes, with a unit that is a pair of
numbers. A real one is in tests/integration/ansible/test_units.py.
"""

import dataclasses

import pytest
from ansible_collections.sluice.appliance.plugins.modules import unit
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("running", "noted", "now", "step"),
    [
        (False, None, {"files": 1}, "start"),
        (False, {"files": 1}, {"files": 2}, "start"),
        (True, {"files": 1}, {"files": 1}, "nothing"),
        (True, {"files": 1}, {"files": 2}, "restart"),
        # What it runs with is not known.
        (True, None, {"files": 1}, "restart"),
    ],
)
def test_what_a_unit_needs(running, noted, now, step):
    assert unit.what_to_do(running, noted, now) == step


def test_a_file_that_is_not_there_has_no_sum(tmp_path):
    (tmp_path / "there").write_text("x")
    paths = [str(tmp_path / name) for name in ("there", "away", "there/below")]
    assert [value is None for value in unit.sums(paths).values()] == [False, True, True]


@dataclasses.dataclass
class Host:
    """A file's content, the unit with what it read at its latest start, and the note."""

    file: int = 0
    start: int = 1
    runs_with: int | None = 0
    noted: dict | None = None
    restarts: int = 0

    def now(self) -> dict:
        return {"invocation": self.start, "files": self.file}

    def begin(self) -> None:
        """Start the unit, whoever wants it."""
        self.start += 1
        self.runs_with = self.file

    def play(self, content: int, steps: int) -> None:
        """A run that wants this content, cut off after so many steps of four."""
        if steps > 0 and self.noted is None:
            self.noted = self.now()
        if steps > 1:
            self.file = content
        if steps > 2:
            step = unit.what_to_do(self.runs_with is not None, self.noted, self.now())
            if step != "nothing":
                self.begin()
                self.restarts += 1
        if steps > 3:
            self.noted = None


WHOLE_RUN = 4
RUNS = st.tuples(st.integers(0, 3), st.integers(0, WHOLE_RUN))
# A restart by the operator or after a crash, a stop, and the next boot, which has no notes.
EVENTS = st.one_of(RUNS, st.sampled_from(["restart", "stop", "boot"]))


@given(st.lists(EVENTS, max_size=12), st.integers(0, 3))
def test_after_any_interruptions_a_whole_run_has_everything_in_force(events, content):
    host = Host()
    for event in events:
        if event == "stop":
            host.runs_with = None
        elif event == "restart":
            host.begin()
        elif event == "boot":
            host.noted = None
            host.begin()
        else:
            host.play(*event)
    host.play(content, WHOLE_RUN)
    assert host.file == host.runs_with == content
    restarts = host.restarts
    host.play(content, WHOLE_RUN)
    assert host.restarts == restarts
