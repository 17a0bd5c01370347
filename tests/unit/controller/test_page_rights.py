# SPDX-License-Identifier: GPL-2.0-or-later
"""Who may do what to the pages: QEMU's user, others of its group, and people in `kvm`.

Each attempt is made by a process of that user, on folders and files as sluiced makes
them by default.
"""

import errno
import grp
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from sluice_controller.adapters.group_pages import GroupPages
from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.group_page import GroupLimit
from sluice_controller.entry import config as configuration
from sluice_controller.entry import daemon

LIMIT = GroupLimit("bytes", 10**6, 10**5)
QEMU_GROUP = configuration.DEFAULTS["qemu_group"]
QEMU_USER, PERSON = 64055, 65534


def gid(name):
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or gid(QEMU_GROUP) is None or gid("kvm") is None,
    reason=f"needs root and the groups {QEMU_GROUP} and kvm",
)


def block(page):
    os.mkdir(f"{page}.mine")
    os.rename(f"{page}.mine", page)


def replace(page):
    Path(f"{page}.new").touch()
    os.rename(f"{page}.new", page)


# Each breaks a page of another if it may.
ATTEMPTS = {
    "remove": os.unlink,
    "shorten": lambda page: os.truncate(page, 0),
    "write": lambda page: os.close(os.open(page, os.O_RDWR)),
    "rename": lambda page: os.rename(page, f"{page}.old"),
    "replace": replace,
    "block": block,
    "take the next name": lambda page: os.mkdir(page.with_name("web2.page")),
    "fill": lambda page: page.with_name("filler").write_bytes(bytes(4096)),
    "read": Path.read_bytes,
}


@pytest.fixture
def run_dir():
    """Where anybody may come as far as sluiced's own folders, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-rights."))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def config(run_dir):
    options = [f"--{name}-dir={run_dir / name}" for name in ("state", "run", "etc")]
    found = configuration.load(configuration.argument_parser().parse_args(options))
    daemon.prepare_folders(found)
    return found


def attempt(user, groups, act, page):
    """What became of it: the number of an error, or 0."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            os.setgroups(groups)
            os.setgid(groups[0])
            os.setuid(user)
            act(page)
            status = 0
        except OSError as error:
            status = error.errno
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def as_qemu(act, page):
    # libvirt runs it with kvm as its first group and all that its user is in.
    return attempt(QEMU_USER, [gid("kvm"), gid(QEMU_GROUP)], act, page)


@pytest.fixture
def counters_page(config):
    page = config.pages_dir / "web1.page"
    assert as_qemu(Path.touch, page) == 0
    return page


@pytest.fixture
def group_page(config):
    pages = GroupPages(config.groups_dir, config.qemu_group, lambda: 10**12)
    pages.ensure("disks", LIMIT)
    return pages.path("disks")


@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_member_of_kvm_can_do_nothing_to_a_page(what, counters_page, group_page):
    for page in (counters_page, group_page):
        assert attempt(PERSON, [gid("kvm")], ATTEMPTS[what], page) == errno.EACCES
    assert counters_page.is_file() and group_page.stat().st_size == 16896


@pytest.mark.parametrize("what", ["remove", "shorten", "write", "rename", "replace", "block"])
def test_another_user_of_the_group_can_do_nothing_to_a_counters_page(what, counters_page):
    found = attempt(PERSON, [gid(QEMU_GROUP)], ATTEMPTS[what], counters_page)
    assert found in (errno.EACCES, errno.EPERM)
    assert counters_page.is_file()


def test_qemu_makes_replaces_and_removes_its_page_and_joins_a_group(counters_page, group_page):
    for what in ("write", "shorten", "replace", "remove"):
        assert as_qemu(ATTEMPTS[what], counters_page) == 0
    assert as_qemu(ATTEMPTS["write"], group_page) == 0
    # The controller alone makes and removes these.
    for what in ("remove", "replace", "block", "fill"):
        assert as_qemu(ATTEMPTS[what], group_page) == errno.EACCES


def test_folders_and_pages_of_an_earlier_setting_are_given_to_the_new_group(config, group_page):
    for path in (config.pages_dir, config.groups_dir, group_page):
        os.chown(path, 0, gid("kvm"))
    config.pages_dir.chmod(0o2770)
    before = group_page.stat().st_ino
    daemon.prepare_folders(config)
    status = config.pages_dir.stat()
    assert (status.st_gid, status.st_mode & 0o7777) == (gid(QEMU_GROUP), 0o3770)
    pages = GroupPages(config.groups_dir, config.qemu_group, lambda: 2 * 10**12)
    with pytest.raises(BadValue, match=f"belongs to group {gid('kvm')}, not {gid(QEMU_GROUP)}"):
        pages.limit("disks")
    # A program that had it open keeps the old one.
    pages.ensure("disks", LIMIT)
    assert group_page.stat().st_ino != before
    assert config.groups_dir.stat().st_gid == group_page.stat().st_gid == gid(QEMU_GROUP)


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ([], "nobody is in it"),
        (["libvirt-qemu", "ann"], "ann, libvirt-qemu are in it"),
        (["libvirt-qemu"], ""),
    ],
)
def test_a_group_of_others_too_is_named_at_the_start(monkeypatch, caplog, users, words):
    found = grp.struct_group(("emulators", "x", 4711, users))
    monkeypatch.setattr(grp, "getgrnam", lambda _name: found)
    daemon.warn_of_group("emulators")
    assert caplog.text.count("qemu_group emulators: ") == bool(words)
    assert words in caplog.text


def test_the_group_of_the_accelerator_is_always_named(caplog):
    daemon.warn_of_group("kvm")
    assert "qemu_group kvm: " in caplog.text and "on Debian libvirt-qemu" in caplog.text
