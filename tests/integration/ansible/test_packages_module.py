# SPDX-License-Identifier: GPL-2.0-or-later
"""The module ``packages`` with the real apt-get and dpkg, in a root of its own."""

import fcntl
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collection import run_module


def packages(debian, name, **arguments):
    arguments.setdefault("record", str(debian.record))
    return run_module("packages", env=debian.env, name=name, **arguments)


def test_check_mode_on_a_fresh_host_foresees_and_changes_nothing(debian):
    (debian.root / "etc/apt/sources.list").write_text("")
    answer = packages(debian, ["sluice-web"], check=True, expected={"sluice-web": "0.1"})
    assert answer["changed"] is True
    assert answer["installed"] == ["sluice-web"]
    assert answer["diff"] == {"before": "", "after": "sluice-web 0.1\n"}
    assert debian.state("sluice-web") == "unknown"
    assert not debian.record.exists()


def test_prerequisites_are_installed_once_and_recorded_with_their_needs(debian):
    answer = packages(debian, ["libvirt-daemon"])
    assert answer["installed"] == ["libvirt-daemon", "libvirt0"]
    assert debian.version("libvirt0") == "11.3"
    record = json.loads(debian.record.read_text())
    assert len(record.pop("spans")) == 1
    assert record == {
        "format": 1,
        "packages": ["libvirt-daemon", "libvirt0"],
        "users": [],
        "groups": [],
        "paths": [],
    }
    assert packages(debian, ["libvirt-daemon"])["changed"] is False


def test_what_was_there_before_is_not_recorded(debian):
    packages(debian, ["libvirt0"], record=None)
    packages(debian, ["libvirt-daemon", "sluice-web"])
    assert json.loads(debian.record.read_text())["packages"] == ["libvirt-daemon"]
    answer = packages(debian, ["sluice-web", "libvirt-daemon"], state="absent")
    assert answer["removed"] == ["libvirt-daemon", "sluice-web"]
    assert debian.version("libvirt0") == "11.3"


def test_what_packages_leave_behind_is_told_and_nothing_else(debian):
    share = debian.root / "usr/share"
    share.mkdir(parents=True)
    (share / "operators").touch()
    watch = {"watch": [str(share)]}
    packages(debian, ["libvirt-daemon"], **watch)
    record = json.loads(debian.record.read_text())
    assert record["paths"] == [str(share / name) for name in ("libvirt-daemon", "libvirt0")]
    # What a package makes while it runs keeps its folder from going.
    (share / "libvirt0" / "state").touch()
    (share / "since").touch()
    gone = packages(debian, ["libvirt-daemon", "libvirt0"], state="absent", **watch)
    left = [str(share / "libvirt0")]
    assert gone["left"] == {"users": [], "groups": [], "paths": left, "kept": []}


# What a script makes is in no list of dpkg's; DPKG_ROOT makes up for the missing chroot.
MAKES_CONFIGURATION = 'f=/etc/cron.d\nmkdir -p "$DPKG_ROOT$f/x"; >"$DPKG_ROOT$f/y"'
MAKES_STATE = 'state=/var/lib/guests\nmkdir -p "$DPKG_ROOT$state"'


@pytest.fixture
def interrupted(debian):
    """A root in which a package's installation was killed in its script, after its folder."""
    debian.add("guests", "1", postinst=f"{MAKES_STATE}\nkill -9 $PPID", depends="libvirt0")
    answer = packages(debian, ["guests"], **watching(debian))
    assert "installing guests failed" in answer["msg"]
    assert debian.state("guests") == "half-configured"
    # As if the module had been killed as well: its record is as it was before apt-get.
    record = json.loads(debian.record.read_text())
    record["before"] = {
        "since": int((debian.root / "usr/share/libvirt0").stat().st_ctime) - 5,
        "packages": ["guests", "libvirt0"],
        "users": [],
        "groups": [],
        "paths": [str(debian.root / "var/lib" / name) for name in ("apt", "dpkg")],
    }
    debian.record.write_text(json.dumps({**record, "paths": []}))
    info = debian.root / "var/lib/dpkg/info/guests.postinst"
    info.write_text(info.read_text().replace("kill -9 $PPID", ""))
    return debian


def watching(debian):
    return {"watch": [str(debian.root / "var/lib")]}


def test_what_the_operator_puts_into_a_folder_of_the_configuration_stays(debian):
    folder = debian.root / "etc/cron.d"
    debian.add("cron", "1", postinst=MAKES_CONFIGURATION)
    watch = {"watch": [str(folder.parent)]}
    packages(debian, ["cron"], **watch)
    own = folder / "backup"
    own.touch()
    gone = packages(debian, ["cron"], state="absent", **watch)
    assert gone["left"]["paths"] == [str(folder / name) for name in ("x", "y")]
    assert gone["left"]["kept"] == [str(own)]


def test_what_services_write_into_the_configuration_is_not_the_operators(debian):
    """Named by pattern, without wildcards that reach into other folders."""
    folder = debian.root / "etc/cron.d"
    debian.add("cron", "1", postinst=MAKES_CONFIGURATION)
    watch = {"watch": [str(folder.parent)]}
    packages(debian, ["cron"], **watch)
    own = [folder / "x/domain-1", folder / "domain-12"]
    for file in (*own, folder / "domain-1"):
        file.touch()
    written = {"written": ["/etc/cron.d/domain-?"]}
    gone = packages(debian, ["cron"], state="absent", **written, **watch)
    assert gone["left"]["kept"] == sorted(map(str, own))
    for file in own:
        file.unlink()
    gone = packages(debian, ["cron"], state="absent", **written, **watch)
    assert gone["left"]["paths"] == [str(folder)]
    assert gone["left"]["kept"] == []


def test_an_interrupted_transaction_is_taken_into_the_record_later(interrupted):
    answer = packages(interrupted, ["guests"], **watching(interrupted))
    assert answer["repaired"] == ["guests"]
    record = json.loads(interrupted.record.read_text())
    assert record["packages"] == ["guests", "libvirt0"]
    assert record["paths"] == [str(interrupted.root / "var/lib/guests")]
    assert "before" not in record


@pytest.mark.parametrize("state", ["present", "absent"])
def test_an_interruption_claims_nothing_that_others_made_since(interrupted, state):
    """Also not if the removal is the first to see it; users are the machine's own here."""
    packages(interrupted, ["guests"], record=None)
    interrupted.add("docker", "1", postinst='mkdir -p "$DPKG_ROOT/var/lib/docker"')
    packages(interrupted, ["docker"], record=None)
    (interrupted.root / "var/lib/myapp").mkdir()
    answer = packages(interrupted, ["guests"], state=state, **watching(interrupted))
    record = json.loads(interrupted.record.read_text())
    assert record["paths"] == [str(interrupted.root / "var/lib/guests")]
    assert (record["users"], record["groups"]) == ([], [])
    gone = record["paths"] if state == "absent" else []
    assert answer["left"] == {"users": [], "groups": [], "paths": gone, "kept": []}


def test_what_is_named_but_was_made_much_later_is_not_claimed(interrupted):
    """An operator's folder of the name that the package's script has."""
    log = re.sub(r"(?m)^\S+ \S+", "2026-01-01 00:00:00", interrupted.log.read_text())
    packages(interrupted, ["guests"], record=None)
    interrupted.log.write_text(log)
    packages(interrupted, ["guests"], **watching(interrupted))
    assert json.loads(interrupted.record.read_text())["paths"] == []


def test_packages_that_an_interruption_kept_away_are_not_recorded(interrupted):
    """Installed by the operator later, they are the operator's."""
    record = json.loads(interrupted.record.read_text())
    record["packages"].append("libvirt-daemon")
    record["before"]["packages"].append("libvirt-daemon")
    interrupted.record.write_text(json.dumps(record))
    packages(interrupted, ["guests"], **watching(interrupted))
    assert json.loads(interrupted.record.read_text())["packages"] == ["guests", "libvirt0"]


def test_what_another_apt_made_before_ours_could_begin_is_not_recorded(debian):
    """Its lock is waited for before the host is looked at."""
    lock = debian.root / "var/lib/dpkg/lock-frontend"
    debian.add("guests", "1", postinst=MAKES_STATE)
    with lock.open("w") as file, ThreadPoolExecutor(1) as pool:
        fcntl.lockf(file, fcntl.LOCK_EX)
        waiting = pool.submit(packages, debian, ["guests"], **watching(debian))
        while not _waits_for(lock):
            assert not waiting.done()
            time.sleep(0.05)
        (debian.root / "var/lib/guests").mkdir()
        fcntl.lockf(file, fcntl.LOCK_UN)
        assert waiting.result()["installed"] == ["guests"]
    assert json.loads(debian.record.read_text())["paths"] == []


def _waits_for(path):
    """Whether another process has it open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.parts[2] != str(os.getpid()) and link.readlink() == path:
                return True
        except OSError:
            continue
    return False


def test_disk_images_stay_with_the_folders_that_they_are_in(debian):
    debian.add("guests", "1", postinst=MAKES_STATE)
    packages(debian, ["guests"], **watching(debian))
    guests = debian.root / "var/lib/guests"
    for name in ("images", "cache", "boot"):
        (guests / name).mkdir()
    (guests / "images" / "web1.qcow2").touch()
    keep = [str(guests / name) for name in ("images", "boot")]
    gone = packages(debian, ["guests"], state="absent", keep=keep, **watching(debian))
    assert gone["left"]["paths"] == [str(guests / name) for name in ("boot", "cache")]
    assert gone["left"]["kept"] == keep[:1]
    (guests / "images" / "web1.qcow2").unlink()
    gone = packages(debian, ["guests"], state="absent", keep=keep, **watching(debian))
    assert gone["left"]["paths"] == [str(guests)]


def test_a_newer_version_is_found_although_the_lists_are_older(debian):
    packages(debian, ["sluice-web"], state="latest", expected={"sluice-web": "0.1"})
    debian.add("sluice-web", "0.2")
    wanted = {"state": "latest", "expected": {"sluice-web": "0.2"}}
    foreseen = packages(debian, ["sluice-web"], check=True, **wanted)
    assert (foreseen["changed"], foreseen["upgraded"]) == (True, ["sluice-web"])
    assert debian.version("sluice-web") == "0.1"
    answer = packages(debian, ["sluice-web"], **wanted)
    assert answer["upgraded"] == ["sluice-web"]
    assert answer["diff"] == {"before": "sluice-web 0.1\n", "after": "sluice-web 0.2\n"}
    assert debian.version("sluice-web") == "0.2"
    assert packages(debian, ["sluice-web"], **wanted)["changed"] is False


def test_an_interrupted_installation_is_finished_first(debian):
    packages(debian, ["libvirt-daemon"])
    debian.edit_status("libvirt0", "install ok installed", "install ok half-configured")
    assert packages(debian, ["sluice-web"], check=True)["repaired"] == ["libvirt0"]
    assert debian.state("libvirt0") == "half-configured"
    answer = packages(debian, ["sluice-web"])
    assert (answer["repaired"], answer["installed"]) == (["libvirt0"], ["sluice-web"])
    assert debian.state("libvirt0") == "installed"
    assert packages(debian, ["sluice-web"])["repaired"] == []


def test_what_is_unpacked_without_its_needs_is_finished(debian):
    """As after a full disk: dpkg cannot configure it before apt-get has brought the rest."""
    packages(debian, ["sluice-web"], update=True)
    assert debian.dpkg("--unpack", debian.deb("libvirt-daemon", "11.3")) == 0
    assert debian.dpkg("--configure", "-a") != 0
    answer = packages(debian, ["libvirt-daemon"])
    assert answer["repaired"] == ["libvirt-daemon"]
    assert debian.state("libvirt-daemon") == debian.state("libvirt0") == "installed"


def test_what_was_killed_while_it_was_unpacked_is_finished(debian):
    debian.add("firmware", "1", size=4 << 20)
    packages(debian, ["sluice-web"], update=True)
    assert debian.dpkg("--unpack", debian.deb("firmware", "1"), largest_kib=1024) != 0
    assert debian.state("firmware") == "half-installed"
    assert packages(debian, ["sluice-web"])["repaired"] == ["firmware"]
    assert debian.state("firmware") == "installed"


def test_no_repair_removes_a_package(debian):
    """Without a source for what is missing, apt-get would rather remove the other."""
    packages(debian, ["sluice-web"], update=True)
    assert debian.dpkg("--unpack", debian.deb("libvirt-daemon", "11.3")) == 0
    (debian.root / "etc/apt/sources.list").write_text("")
    answer = packages(debian, ["sluice-web"])
    assert "would remove libvirt-daemon: give apt the package sources" in answer["msg"]
    assert debian.state("libvirt-daemon") == "unpacked"


def test_an_installation_that_fails_records_nothing_that_is_not_there(debian):
    """Else the operator's own, installed later, would go with Sluice's."""
    debian.add("swtpm", "1")
    packages(debian, ["swtpm"])
    packages(debian, ["libvirt0"], record=None)
    (debian.repository / "libvirt-daemon_11.3_all.deb").write_bytes(b"corrupt")
    answer = packages(debian, ["libvirt-daemon"])
    assert answer["failed"] and "installing libvirt-daemon failed" in answer["msg"]
    assert "run the playbook again" in answer["msg"]
    assert json.loads(debian.record.read_text())["packages"] == ["swtpm"]


def test_what_is_there_is_not_recorded_when_it_comes_for_another_architecture(debian):
    debian.add("libzstd1", "1.5", architecture="amd64")
    debian.add("libzstd1", "1.5", architecture="i386")
    packages(debian, ["libzstd1"], record=None)
    debian.add_architecture("i386")
    assert packages(debian, ["libzstd1:i386"], update=True)["installed"] == ["libzstd1"]
    assert json.loads(debian.record.read_text())["packages"] == []


def test_nothing_is_removed_to_install_another(debian):
    debian.add("exim4", "4")
    debian.add("sluice-bad", "1", conflicts="exim4")
    packages(debian, ["exim4"], record=None)
    answer = packages(debian, ["sluice-bad"])
    assert answer["msg"].startswith("installing sluice-bad would remove exim4: solve the conflict")
    assert debian.version("exim4") == "4"


def test_nothing_goes_that_was_not_named(debian):
    debian.add("virt-manager", "1", depends="libvirt-daemon")
    packages(debian, ["libvirt-daemon"])
    packages(debian, ["virt-manager"], record=None)
    answer = packages(debian, ["libvirt-daemon", "libvirt0"], state="absent")
    assert "would also remove virt-manager, which did not come with Sluice" in answer["msg"]
    assert debian.version("libvirt0") == "11.3"
    kept = packages(debian, ["libvirt0"], state="absent", may_remove=["libvirt-daemon"])
    assert "virt-manager" in kept["msg"]


def test_what_came_with_the_others_goes_although_debian_keeps_it(debian):
    debian.add("e2fsprogs", "1.47", important="yes")
    debian.add("tools", "1", depends="e2fsprogs")
    assert packages(debian, ["tools"])["installed"] == ["e2fsprogs", "tools"]
    answer = packages(debian, ["e2fsprogs", "tools"], state="absent")
    assert answer["removed"] == ["e2fsprogs", "tools"]
    assert debian.state("e2fsprogs") == "unknown"


def test_what_was_there_stays_if_debian_keeps_it(debian):
    debian.add("e2fsprogs", "1.47", important="yes", depends="libvirt0")
    packages(debian, ["e2fsprogs"], record=None)
    answer = packages(debian, ["libvirt0"], state="absent")
    assert answer["failed"] and "libvirt0 cannot be purged" in answer["msg"]
    assert "e2fsprogs : Depends: libvirt0" in answer["msg"]
    assert debian.version("e2fsprogs") == "1.47"


def test_what_was_there_as_a_need_of_others_stays_one(debian):
    packages(debian, ["libvirt-daemon"], record=None)
    assert debian.automatic() == ["libvirt0"]
    packages(debian, ["sluice-web", "libvirt0"], state="latest")
    assert debian.automatic() == ["libvirt0"]


def test_a_pattern_purges_every_version(debian):
    debian.add("sluice-qemu-1", "1")
    packages(debian, ["sluice-web", "sluice-qemu-1", "libvirt0"])
    foreseen = packages(debian, ["sluice-*"], state="absent", check=True)
    assert foreseen["removed"] == ["sluice-qemu-1", "sluice-web"]
    assert packages(debian, ["sluice-*"], state="absent")["removed"] == foreseen["removed"]
    assert debian.state("sluice-web") == "unknown"
    assert debian.version("libvirt0") == "11.3"
    assert packages(debian, ["sluice-*"], state="absent")["changed"] is False


def test_a_package_that_nobody_offers_is_named(debian):
    answer = packages(debian, ["sluice-xyzzy"])
    assert "packages sluice-xyzzy cannot be installed (Unable to locate package" in answer["msg"]
    assert not debian.record.exists()


@pytest.mark.parametrize("content", ["", "{"])
def test_a_record_that_is_cut_short_is_named(debian, content):
    debian.record.parent.mkdir()
    debian.record.write_text(content)
    answer = packages(debian, ["libvirt0"])
    assert f"record '{debian.record}' is not JSON" in answer["msg"]
    assert debian.state("libvirt0") == "unknown"
