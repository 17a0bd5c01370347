# SPDX-License-Identifier: GPL-2.0-or-later
"""What the preflight asks apt: which half-unpacked packages the roles finish themselves, and
whether a source works.
"""

import lzma
import os
import subprocess
from types import SimpleNamespace

import pytest
from ansible_collections.sluice.appliance.plugins.modules import preflight

STATUS = """\
Package: firmware
Status: install reinstreq half-installed
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


@pytest.fixture
def packages(tmp_path):
    """What the preflight finds on a host with this status, of what its source offers."""
    repository, root = tmp_path / "repository", tmp_path / "root"
    for name in ("var/lib/dpkg", "var/lib/apt/lists/partial", "etc/apt", "var/cache/apt"):
        (root / name).mkdir(parents=True)
    repository.mkdir()
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    status = root / "var/lib/dpkg/status"
    config = tmp_path / "apt.conf"
    config.write_text(
        f'Dir "{root}/";\nDir::State::status "{status}";\nAPT::Architecture "amd64";\n'
        'APT::Architectures {"amd64";};\nAPT::Sandbox::User "root";\n'
    )
    own = {"APT_CONFIG": str(config), "DPKG_ADMINDIR": str(status.parent)}

    def run_command(command, environ_update):
        env = {**os.environ, **own, **environ_update}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        return done.returncode, done.stdout, done.stderr

    def find(text, offered):
        status.write_text(text)
        (repository / "Packages").write_text(offered)
        code, _out, error = run_command(["apt-get", "update"], {})
        assert code == 0, error
        module = SimpleNamespace(run_command=run_command, params={"installs": {}})
        found = preflight.Host(module).packages()
        return found["broken_packages"], found["restorable_packages"]

    return find


# Killed in the middle; its scripts failed; while it was removed; while it was upgraded.
STATES = [
    STATUS,
    STATUS.replace("reinstreq", "ok"),
    STATUS.replace("install reinstreq", "deinstall ok"),
    STATUS.replace("half-installed", "unpacked"),
]


@pytest.mark.parametrize("status", STATES)
def test_what_an_interruption_left_half_unpacked_is_for_the_roles_to_finish(packages, status):
    assert packages(status, OFFERED) == ([], ["firmware"])
    newer = OFFERED.replace("Version: 1", "Version: 2")
    assert packages(status, newer) == ([], ["firmware"])


@pytest.mark.parametrize("status", STATES)
def test_what_nobody_offers_is_for_the_operator(packages, status):
    assert packages(status, "") == (["firmware"], [])


def test_what_only_comes_where_another_goes_is_for_the_operator(packages):
    other = STATUS.replace("firmware", "other").replace("reinstreq half-", "ok ")
    offered = OFFERED.replace("Description", "Conflicts: other\nDescription")
    assert packages(STATUS + other, offered) == (["firmware"], [])


def test_a_sound_host_has_neither(packages):
    assert packages(STATUS.replace("reinstreq half-", "ok "), OFFERED) == ([], [])


@pytest.fixture
def host_with(tmp_path):
    """A host that is to have two packages and asks what a source in ``tmp_path`` offers."""
    status, config = tmp_path / "status", tmp_path / "apt.conf"
    status.write_text(
        STATUS.replace("reinstreq half-", "ok ")
        + STATUS.replace("firmware", "other").replace("reinstreq half-", "ok ")
        + STATUS.replace("firmware", "torn")
    )
    config.write_text(
        f'Dir::State::status "{status}";\nAPT::Architecture "amd64";\n'
        'APT::Architectures {"amd64";};\n'
    )
    own = {"APT_CONFIG": str(config), "DPKG_ADMINDIR": str(tmp_path)}

    def run_command(command, environ_update):
        env = {**os.environ, **own, **environ_update}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        return done.returncode, done.stdout, done.stderr

    def make(**params):
        installs = {"a": ["firmware:amd64", "other"], "b": ["missing", "torn"]}
        index = OFFERED.replace("Version: 1", "Version: 2").encode()
        # The form that apt asks for first: what a file: source lacks of these is an error to it.
        (tmp_path / "Packages.xz").write_bytes(lzma.compress(index))
        params = {"installs": installs, "source_key": "", **params}
        module = SimpleNamespace(run_command=run_command, params=params, tmpdir=str(tmp_path))
        return preflight.Host(module)

    return make


def test_a_key_with_a_comment_in_any_language_is_tried(host_with, tmp_path):
    host = host_with(source=f"deb file:{tmp_path} ./", source_key="Comment: Schlüssel\n")
    # It signs nothing.
    assert "does not work" in host.source_error()
    assert host.offered == {}


def test_versions_that_are_there_and_that_a_source_offers_are_found(host_with, tmp_path):
    host = host_with(source=f"deb [trusted=yes] file:{tmp_path} ./")
    assert host.packages()["installed"] == {"firmware": "1", "other": "1"}
    assert host.source_error() is None
    # A package that the source does not have stays as it is.
    assert host.offered["firmware"] == "2" and host.offered["other"] == "1"
    assert "missing" not in host.offered


def test_without_a_source_nothing_is_known_of_versions(host_with):
    host = host_with(source="")
    assert host.source_error() is None
    assert host.offered == {}
