# SPDX-License-Identifier: GPL-2.0-or-later
"""apt-get is run again while another program has the lists or the downloaded packages."""

import fcntl
import os
import subprocess
from types import SimpleNamespace

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils import apt

STATUS = """\
Package: other
Status: install ok installed
Maintainer: Test <test@example.net>
Architecture: all
Version: 1
Description: test

"""
OFFERED = f"""\
Package: firmware
Version: 1
Architecture: all
Maintainer: Test <test@example.net>
Filename: ./firmware_1_all.deb
Size: 1
SHA256: {"0" * 64}
Description: test
"""


class Clock:
    """Time that passes only where somebody sleeps; then something happens, once."""

    def __init__(self, happens):
        self.now_s, self.slept, self.happens = 0.0, [], happens

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds
        self.slept.append(seconds)
        self.happens(self)


@pytest.fixture
def root(tmp_path):
    """The top of a host's file system, with a package source that answers."""
    top, repository = tmp_path / "root", tmp_path / "repository"
    for name in ("var/lib/dpkg", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (top / name).mkdir(parents=True)
    (top / "etc/apt").mkdir(parents=True)
    repository.mkdir()
    (repository / "Packages").write_text(OFFERED)
    (top / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    (top / "var/lib/dpkg/status").write_text(STATUS)
    (tmp_path / "apt.conf").write_text(
        f'Dir "{top}/";\nDir::State::status "{top}/var/lib/dpkg/status";\n'
        'APT::Architecture "amd64";\nAPT::Architectures {"amd64";};\nAPT::Sandbox::User "root";\n'
    )
    return top


@pytest.fixture
def apt_of(root, monkeypatch):
    """apt-get on that file system, with a clock; ``runs`` are its commands."""

    def make(happens):
        runs = []

        def run_command(command, environ_update):
            runs.append(command)
            own = {"APT_CONFIG": str(root.parent / "apt.conf")}
            env = {**os.environ, **own, **environ_update}
            done = subprocess.run(command, capture_output=True, text=True, env=env)
            return done.returncode, done.stdout, done.stderr

        clock = Clock(happens)
        monkeypatch.setattr(apt, "time", clock)
        module = SimpleNamespace(params={"recommends": False}, run_command=run_command)
        return apt.Apt(module), clock, runs

    return make


@pytest.fixture
def hold():
    """Lock a file as apt does; closing what it returns lets go."""
    files = []

    def lock(path):
        file = path.open("w")
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files.append(file)
        return file

    yield lock
    for file in files:
        file.close()


def test_the_lists_are_read_when_another_program_has_let_go_of_them(root, apt_of, hold):
    held = hold(root / "var/lib/apt/lists/lock")

    def let_go_later(clock):
        if len(clock.slept) == 2:
            held.close()

    ours, clock, runs = apt_of(let_go_later)
    assert ours.update() == ""
    assert (len(runs), clock.slept) == (3, [apt.LOCK_AGAIN_SECONDS] * 2)
    assert [name for name in os.listdir(root / "var/lib/apt/lists") if name.endswith("Packages")]


def test_downloaded_packages_are_waited_for_and_another_error_is_not(root, apt_of, hold):
    held = hold(root / "var/cache/apt/archives/lock")
    ours, clock, runs = apt_of(lambda _clock: held.close())
    assert ours.update() == ""
    complaint = ours.change("install", ["firmware"])
    # The source has no such file.
    assert "firmware_1_all.deb" in complaint
    assert len(clock.slept) == 1 and len(runs) == 3


@pytest.mark.parametrize(
    ("path", "act"),
    [
        ("var/lib/apt/lists/lock", lambda ours: ours.update()),
        ("var/cache/apt/archives/lock", lambda ours: ours.change("install", ["firmware"])),
    ],
)
def test_a_lock_that_stays_is_named_with_the_remedy(root, apt_of, hold, monkeypatch, path, act):
    ours, clock, _runs = apt_of(lambda _clock: None)
    assert ours.update() == ""
    monkeypatch.setattr(apt, "LOCK_SECONDS", 4)
    hold(root / path)
    with pytest.raises(apt.Failed) as raised:
        act(ours)
    assert str(raised.value) == (
        f"another program has held '{root / path}' for 4 s: wait for it"
        f" ('fuser {root / path}' tells which it is) and run the playbook again"
    )
    assert clock.slept == [3, 3]
