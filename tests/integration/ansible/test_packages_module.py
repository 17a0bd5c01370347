# SPDX-License-Identifier: GPL-2.0-or-later
"""The module ``packages`` with the real apt-get and dpkg, in a root of its own."""

import json

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
    assert json.loads(debian.record.read_text()) == {
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
    assert gone["left"] == {"users": [], "groups": [], "paths": [str(share / "libvirt0")]}


def test_an_interrupted_transaction_is_taken_into_the_record_later(debian):
    share = debian.root / "usr/share"
    share.mkdir(parents=True)
    watch = {"watch": [str(share)]}
    packages(debian, ["libvirt0"], **watch)
    # As a power cut after the installation and before the record's end leaves it.
    record = json.loads(debian.record.read_text())
    before = {"users": ["root"], "groups": [], "paths": []}
    debian.record.write_text(json.dumps({**record, "paths": [], "before": before}))
    packages(debian, ["libvirt0"], **watch)
    record = json.loads(debian.record.read_text())
    assert record["paths"] == [str(share / "libvirt0")]
    assert "daemon" in record["users"] and "root" not in record["users"]
    assert "before" not in record


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
