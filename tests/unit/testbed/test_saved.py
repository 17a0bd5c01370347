# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes a kept guest another one, and what does not."""

import os

from testbed import saved

DOMAIN = """<domain><name>small</name><metadata>{metadata}</metadata><devices>
<disk><source file='{run}/disks/small.qcow2'/><driver queue_size='{ring}'/></disk>
</devices></domain>"""


def known(metadata="", run="/a/run-1", ring="1024"):
    text = DOMAIN.format(metadata=metadata, run=run, ring=ring)
    return saved.comparable(text, {run: "RUN"})


def test_a_run_has_what_an_earlier_one_kept_but_no_other_device():
    assert known() == known(metadata="<x>12</x>", run="/b/run-2")
    assert known() != known(ring="256")


def test_the_newest_stay_and_a_boot_that_was_interrupted_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(saved.paths, "cache_folder", lambda: tmp_path)
    root = saved._root()
    for number in range(saved.KEPT + 2):
        folder = root / f"{number:02d}"
        folder.mkdir()
        (folder / ".complete").touch()
        os.utime(folder / ".complete", (number, number))
    (root / "torn").mkdir()
    saved._prune()
    assert sorted(one.name for one in root.iterdir()) == [f"{n:02d}" for n in range(2, 10)]
