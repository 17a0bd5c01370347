# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes a kept guest another one, and what becomes of one that is of no use."""

import os
from types import SimpleNamespace

import libvirt
import pytest

from testbed import GuestError, saved

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


class Kept:
    """A guest that was kept, and says ``problem`` when it is to go on or to answer."""

    name = "small"
    placement = SimpleNamespace(uuid="u", agent_image=None)

    def __init__(self, at: str, problem: Exception):
        self._at, self._problem = at, problem

    def _do(self, what: str) -> None:
        if what == self._at:
            raise self._problem

    def restore(self, _folder, _definition):
        self._do("restore")

    def wait_ready(self):
        self._do("wait_ready")

    def ssh(self, _command):
        pass


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        ("restore", libvirt.libvirtError("invalid saved state")),
        ("restore", OSError("no space left")),
        ("wait_ready", GuestError("no ssh")),
    ],
)
def test_what_does_not_go_on_is_removed_so_that_the_next_start_boots(
    tmp_path, monkeypatch, at, problem
):
    monkeypatch.setattr(saved.paths, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(saved, "_definition", lambda _guest: "")
    monkeypatch.setattr(saved, "_name", lambda _guest, _definition: "kept")
    folder = saved._root() / "kept"
    folder.mkdir()
    (folder / ".complete").touch()
    with pytest.raises(GuestError, match=f"guest small .*{problem}.*boots it again"):
        saved.start(Kept(at, problem))
    assert not folder.exists()
