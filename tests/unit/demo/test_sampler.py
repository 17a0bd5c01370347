# SPDX-License-Identifier: GPL-2.0-or-later
"""What the sampler does with windows of a viewer that is slower than its end."""

from pathlib import Path
from types import SimpleNamespace

from demo import sampler
from testbed.stream import Window


class Probe:
    """Like the real one, it cannot be used when it is closed."""

    def __init__(self, *_where: object) -> None:
        self.reports: list[dict] = []
        self.closed = False

    def report(self, body: dict) -> str:
        if self.closed:
            raise RuntimeError("closed")
        self.reports.append(body)
        return "good"

    def close(self) -> None:
        self.closed = True


def test_a_window_that_comes_after_the_end_is_kept_and_not_reported(monkeypatch):
    monkeypatch.setattr(sampler, "ProbeApi", Probe)
    controller = SimpleNamespace(socket="/run/s", token_file=Path("/t"))
    sandbox = SimpleNamespace(path=Path)
    scene = SimpleNamespace(testbed=SimpleNamespace(controller=controller, sandbox=sandbox))
    one = sampler.Sampler(scene)
    window = Window(**dict.fromkeys(Window.__dataclass_fields__, 0))
    one.on_window(window)
    # As after a viewer that did not start: the sampler's own thread has not begun.
    one.stop()
    one.on_window(window)
    assert len(one._probe.reports) == 1
    assert len(one.windows()) == 2
