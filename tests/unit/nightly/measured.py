# SPDX-License-Identifier: GPL-2.0-or-later
"""A night as it was measured: what the demo found out, of a host that is not there."""

from types import SimpleNamespace

from demo import judge, report
from demo.plan import Bars
from demo.run import Attempt, Outcome
from sluice_nightly.config import Config
from sluice_nightly.result import About
from testbed.rotdisk import Constant
from unit.demo.facts import SCALE, phase, samples, windows

ABOUT = About(
    "0123456789abcdef" * 2,
    1_780_000_000.1234,
    {"name": "kvm1", "kernel": "6.12", "cpus": 8, "memory_mib": 32_000},
    {"sluice": "0.1.0", "qemu": "10.0.13", "libvirt": ""},
)
VERDICTS = {"control": {}, "unshaped": {"stalls": 9, "stall_seconds": 20.0}, "auto": {}}


def facts(monkeypatch, settled_after_s: float | None = 6.345, **changes) -> dict:
    monkeypatch.setattr(report, "constants", lambda: [Constant("media_bps", 1, "why")])
    played = {name: phase(name, 20e6, 40e6, **bad) for name, bad in VERDICTS.items()}
    found = {
        "attempt": Attempt(SCALE, played, settled_after_s, 60.0, 371.7),
        "given_up": None,
        "costs": None,
        # The viewer starts before the first sample.
        "windows": windows(-2, 90),
        "samples": samples(0, 90, 20e6, 40e6),
        "auto_log": [{"at": 1_700_000_000.0, "sentence": "batch: 40 → 20 MB/s"}],
        "httperf": None,
        "problem": "",
        **changes,
    }
    for sample in found["samples"]:
        sample.disk_bytes["web"] = 0
        if sample.at_s > 60:
            limited = {"rate": 1e6, "limit": 12_345_678.9}
            sample.classes["media/batch/blk-read"] = limited
    outcome = Outcome(**found)
    scene = SimpleNamespace(
        plan=Config().plan(),
        testbed=SimpleNamespace(accelerator=SimpleNamespace(name="tcg", reason="no /dev/kvm")),
        qemu_version=lambda: "10.0.13",
    )
    checks = judge.check(outcome.phases, outcome.attempt.settled_after_s, Bars())
    return report.document(scene, outcome, checks)
