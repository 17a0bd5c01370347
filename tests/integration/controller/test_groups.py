# SPDX-License-Identifier: GPL-2.0-or-later
"""Groups: the daemon's API, command line and pages; and what a real QEMU makes of them.

QEMU runs without a guest (it is stopped from the start); the controller's own
commands go to it over QMP.
"""

import itertools
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from measure.qmp import Qmp
from sluice_controller.adapters.group_pages import GroupPages
from sluice_controller.domain.group_page import GroupLimit
from sluice_controller.domain.groups import PARTS
from sluice_controller.domain.shaper_config import actual, commands, wanted
from testbed import patience

TOP = Path(__file__).resolve().parents[3]
QEMU = Path(os.environ.get("SLUICE_QEMU_BUILD", TOP / "build" / "qemu")) / "qemu-system-x86_64"
SECONDS = 30


def page_limit(daemon, name):
    return GroupPages(daemon.folder / "run" / "groups", None, time.monotonic_ns).limit(name)


def test_a_group_is_made_changed_filled_and_removed(make_daemon):
    daemon = make_daemon()
    done = daemon.cli("group", "add", "disks", "--resource", "blk-read", "--rate", "200MB/s")
    assert done.returncode == 0, done.stderr
    assert page_limit(daemon, "disks") == GroupLimit("bytes", 200_000_000, 10_000_000)
    assert daemon.cli("group", "member", "disks", "test", "--weight", "300").returncode == 0
    shown = daemon.cli("group", "list").stdout
    assert "disks" in shown and "200 MB/s" in shown and "test (300)" in shown
    daemon.cli("group", "add", "disks", "--resource", "blk-read", "--rate", "50MB/s")
    assert page_limit(daemon, "disks").rate == 50_000_000
    assert "nobody" in daemon.cli("group", "members", "disks").stdout
    refused = daemon.cli("group", "remove", "disks")
    assert refused.returncode == 1 and "sluice group leave disks test" in refused.stderr
    left = daemon.cli("group", "leave", "disks", "test", "--json")
    assert json.loads(left.stdout) == {"left": "disks"}, left.stderr
    removed = daemon.cli("group", "remove", "disks", "--json")
    assert json.loads(removed.stdout) == {"removed": "disks"}, removed.stderr
    assert list((daemon.folder / "run" / "groups").iterdir()) == []
    unknown = daemon.cli("group", "members", "disks")
    assert unknown.returncode == 1 and "group 'disks' does not exist" in unknown.stderr


def test_a_group_may_limit_both_directions_together(make_daemon):
    daemon = make_daemon()
    made = daemon.cli("group", "add", "all", "--resource", "net", "--ops", "5000")
    assert made.returncode == 0 and "5000 ops/s of net" in made.stdout, made.stderr
    assert daemon.cli("group", "member", "all", "test").returncode == 0
    # The other kind of device is free.
    daemon.call("PUT", "/v1/groups/reads", {"resource": "blk-read", "bytes_per_second": 10**6})
    daemon.call("PUT", "/v1/groups/reads/members/test", {})
    daemon.call("PUT", "/v1/groups/sent", {"resource": "net-tx", "bytes_per_second": 10**6})
    refused = daemon.cli("group", "member", "sent", "test")
    assert refused.returncode == 1
    assert "has its net-tx in the group all" in refused.stderr
    assert "sluice group leave all test" in refused.stderr


def test_a_page_outlives_the_daemon_and_is_taken_up_again(make_daemon):
    daemon = make_daemon()
    body = {"resource": "net-tx", "operations_per_second": 5000}
    daemon.call("PUT", "/v1/groups/frames", body)
    path = daemon.folder / "run" / "groups" / "frames.group"
    before = path.stat().st_ino
    daemon.process.kill()
    daemon.process.wait()
    # A page of nobody's, as a killed daemon may leave one.
    (path.parent / "stray.group").write_bytes(path.read_bytes())
    daemon.start()
    assert path.stat().st_ino == before
    assert not (path.parent / "stray.group").exists()
    (group,) = daemon.call("GET", "/v1/groups")
    assert (group["unit"], group["rate_per_second"], group["burst"]) == ("operations", 5000, 250)


def test_a_page_that_somebody_shortened_is_made_anew_and_the_daemon_goes_on(make_daemon):
    daemon = make_daemon()
    body = {"resource": "blk-read", "bytes_per_second": 10**6}
    daemon.call("PUT", "/v1/groups/disks", body)
    daemon.call("PUT", "/v1/groups/disks/members/test", {})
    path = daemon.folder / "run" / "groups" / "disks.group"
    os.truncate(path, 100)
    (group,) = daemon.call("GET", "/v1/groups")
    assert group["members"] == []
    daemon.call("PUT", "/v1/groups/disks", {**body, "bytes_per_second": 2 * 10**6})
    assert page_limit(daemon, "disks").rate == 2 * 10**6
    assert daemon.process.poll() is None


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/groups/Bad", {"resource": "blk-read", "bytes_per_second": 1e6}, "a-z"),
        ("/v1/groups/a", {"resource": "tape", "bytes_per_second": 1e6}, "blk-read"),
        ("/v1/groups/a", {"resource": "blk-read"}, "either"),
        (
            "/v1/groups/a",
            {"resource": "blk-read", "bytes_per_second": 1e6, "operations_per_second": 5},
            "either",
        ),
        ("/v1/groups/disks", {"resource": "blk-write", "bytes_per_second": 1e6}, "blk-read"),
        ("/v1/groups/disks", {"resource": "blk", "bytes_per_second": 1e6}, "blk-read"),
        ("/v1/groups/none/members/test", {}, "group list"),
        ("/v1/groups/disks/members/nobody", {}, "nobody"),
        ("/v1/groups/disks/members/test", {"weight": 0}, "1 to 10000"),
        ("/v1/groups/second/members/test", {}, "sluice group leave disks test"),
        ("/v1/groups/both/members/test", {}, "has its blk-read in the group disks"),
    ],
)
def test_what_is_wrong_is_refused_with_the_remedy(daemon, path, body, words):
    for name in ("disks", "second"):
        daemon.call(
            "PUT", f"/v1/groups/{name}", {"resource": "blk-read", "bytes_per_second": 10**6}
        )
    daemon.call("PUT", "/v1/groups/both", {"resource": "blk", "bytes_per_second": 10**6})
    daemon.call("PUT", "/v1/groups/disks/members/test", {})
    before = daemon.call("GET", "/v1/groups")
    answer = daemon.request("PUT", path, body)
    assert 400 <= answer.status_code < 500 and words in answer.json()["detail"]
    assert daemon.call("GET", "/v1/groups") == before


# QEMU


class Qemu:
    """A QEMU with a shaper and its monitor."""

    def __init__(self, folder: Path) -> None:
        path = folder / "qmp"
        options = ["-machine", "none", "-display", "none", "-nodefaults", "-S"]
        options += ["-object", "shaper,id=sluice0", "-qmp", f"unix:{path},server=on,wait=off"]
        self.process = subprocess.Popen([QEMU, *options], stdin=subprocess.DEVNULL)
        self.qmp = Qmp(path, patience.seconds(SECONDS))
        self.execute = self.qmp.execute

    def query(self):
        (shaper,) = self.execute("query-shapers")
        groups = self.execute("query-shaper-groups")
        return {**shaper, "group-objects": {g["id"]: g["path"] for g in groups}}


@pytest.fixture
def qemus(tmp_path):
    running = []
    counter = itertools.count()

    def start():
        folder = tmp_path / f"q{next(counter)}"
        folder.mkdir()
        running.append(Qemu(folder))
        return running[-1]

    yield start
    for qemu in running:
        qemu.process.kill()
        qemu.process.wait()
        qemu.qmp.close()


def test_qemus_join_share_and_leave_what_the_controller_made(qemus, tmp_path):
    pages = GroupPages(tmp_path / "groups", None, time.monotonic_ns)
    pages.ensure("disks", GroupLimit("bytes", 1_000_000, 65_536))
    both = [qemus(), qemus()]

    def config(weight, resource="blk-read"):
        group = {"group": "group-disks-1", "path": str(pages.path("disks")), "weight": weight}
        return wanted("vm", [], [], {}, {}, {resource: group} if weight else {})

    def reach(qemu, want):
        for command, arguments in commands("sluice0", actual(qemu.query(), want), want):
            qemu.execute(command, **arguments)
        assert actual(qemu.query(), want) == want
        assert commands("sluice0", actual(qemu.query(), want), want) == []

    for qemu, weight in zip(both, (100, 300), strict=True):
        reach(qemu, config(weight))
    assert {(m.pid, m.weight) for m in pages.members("disks")} == {
        (both[0].process.pid, 100),
        (both[1].process.pid, 300),
    }
    pages.ensure("disks", GroupLimit("bytes", 7_000_000, 70_000))
    (shown,) = both[1].execute("query-shaper-groups")
    assert (shown["rate"], shown["burst"], len(shown["members"])) == (7_000_000, 70_000, 2)
    reach(both[0], config(400))
    reach(both[0], config(50, "net-tx"))
    assert {m.weight for m in pages.members("disks")} == {50, 300}
    reach(both[0], config(0))
    (left,) = pages.members("disks")
    assert left.pid == both[1].process.pid and left.label.endswith("sluice0 blk-read")


def test_reads_and_writes_of_one_shaper_share_a_limit(qemus, tmp_path):
    pages = GroupPages(tmp_path / "groups", None, time.monotonic_ns)
    pages.ensure("disk", GroupLimit("bytes", 1_000_000, 65_536))
    qemu = qemus()
    group = {"group": "group-disk-1", "path": str(pages.path("disk")), "weight": 100}
    want = wanted("vm", [], [], {}, {}, {part: group for part in PARTS["blk"]})
    for command, arguments in commands("sluice0", actual(qemu.query(), want), want):
        qemu.execute(command, **arguments)
    assert commands("sluice0", actual(qemu.query(), want), want) == []
    assert [m.label.rpartition(" ")[2] for m in pages.members("disk")] == list(PARTS["blk"])
