# SPDX-License-Identifier: GPL-2.0-or-later
"""The collection, a private sluiced, and a private dpkg to work on."""

import subprocess
from pathlib import Path

import pytest

import ansible_collection
from integration.controller.conftest import Daemon

COLLECTIONS = ansible_collection.link()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    """sluiced on libvirt's test driver, which has one domain, "test"."""
    daemon = Daemon(tmp_path_factory.mktemp("ansible-sluiced")).start()
    yield daemon
    daemon.stop()


class DebianRoot:
    """A folder that apt-get and dpkg take for the machine's root, with a repository.

    Scripts of packages run without a chroot and find the folder in ``DPKG_ROOT``.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.repository = folder / "repository"
        self.root = folder / "root"
        self.record = folder / "record" / "installed.json"
        for name in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/apt/lists/partial"):
            (self.root / name).mkdir(parents=True)
        for name in ("var/cache/apt/archives/partial", "var/log/apt", "etc/apt/apt.conf.d"):
            (self.root / name).mkdir(parents=True)
        (self.root / "etc/apt/preferences.d").mkdir()
        self.repository.mkdir()
        self.status_file = self.root / "var/lib/dpkg/status"
        self.status_file.touch()
        (self.root / "var/lib/dpkg/available").touch()
        (self.root / "etc/apt/sources.list").write_text(
            f"deb [trusted=yes] file:{self.repository} ./\n"
        )
        (folder / "apt.conf").write_text(
            f'Dir "{self.root}/";\n'
            f'Dir::State::status "{self.status_file}";\n'
            'APT::Architecture "amd64";\nAPT::Architectures {"amd64";};\n'
            'APT::Sandbox::User "root";\n'
            f'DPkg::Options {{"--root={self.root}"; "--force-bad-path";}};\n'
            'DPkg::Use-Pty "false";\n'
        )
        self.log = self.root / "var/log/dpkg.log"
        options = ("force-bad-path", "force-script-chrootless", f"log {self.log}")
        (folder / ".dpkg.cfg").write_text("".join(f"{option}\n" for option in options))

    @property
    def env(self) -> dict[str, str]:
        return {
            "APT_CONFIG": str(self.folder / "apt.conf"),
            "DPKG_ROOT": str(self.root),
            "HOME": str(self.folder),
        }

    def add(
        self,
        name: str,
        version: str,
        depends: str = "",
        conflicts: str = "",
        important: str = "",
        architecture: str = "all",
        postinst: str = "",
        size: int = 0,
    ) -> None:
        """Build a package and index the repository anew."""
        tree = self.folder / "tree" / f"{name}-{version}-{architecture}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "usr/share" / name).mkdir(parents=True)
        (tree / "usr/share" / name / "version").write_text(version)
        if size:
            (tree / "usr/share" / name / "data").write_bytes(b"\0" * size)
        if postinst:
            script = tree / "DEBIAN" / "postinst"
            script.write_text(f"#!/bin/sh\nset -e\n{postinst}\n")
            script.chmod(0o755)
        fields = {
            "Package": name,
            "Version": version,
            "Architecture": architecture,
            "Multi-Arch": "" if architecture == "all" else "same",
            "Maintainer": "Test <test@example.net>",
            "Depends": depends,
            "Conflicts": conflicts,
            "Important": important,
            "Description": "test",
        }
        control = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
        (tree / "DEBIAN" / "control").write_text(control)
        target = self.repository / f"{name}_{version}_{architecture}.deb"
        self._run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(target)])
        index = self._run(["dpkg-scanpackages", "-m", "."], cwd=self.repository)
        (self.repository / "Packages").write_text(index)

    def _run(self, command: list[str], cwd: Path | None = None) -> str:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dpkg(self, *arguments: str, largest_kib: int | None = None) -> int:
        """Run dpkg by hand, killed when a file becomes larger than that; its exit code."""
        limit = f"ulimit -f {largest_kib}; " if largest_kib else ""
        command = ["bash", "-c", f'{limit}exec dpkg "$@"', "dpkg", *arguments]
        env = {**self.env, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        return subprocess.run(command, capture_output=True, env=env, timeout=60).returncode

    def deb(self, name: str, version: str) -> str:
        """Where the repository has a package."""
        return str(self.repository / f"{name}_{version}_all.deb")

    def version(self, name: str) -> str | None:
        """What the installed package put there."""
        file = self.root / "usr/share" / name / "version"
        return file.read_text() if file.exists() else None

    def state(self, name: str) -> str:
        """dpkg's word for it."""
        command = ["dpkg-query", "-W", "-f", "${db:Status-Status}", name]
        env = {**self.env, "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
        return done.stdout if done.returncode == 0 else "unknown"

    def automatic(self) -> list[str]:
        """What APT may take away when nothing needs it."""
        env = {**self.env, "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        command = ["apt-mark", "showauto"]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def add_architecture(self, name: str) -> None:
        """Take packages of another architecture beside the host's own."""
        with (self.folder / "apt.conf").open("a") as file:
            file.write(f'APT::Architectures {{"{name}";}};\n')
        (self.root / "var/lib/dpkg/arch").write_text(f"amd64\n{name}\n")

    def edit_status(self, name: str, old: str, new: str) -> None:
        """Give a package another state, as an interruption leaves it."""
        text = self.status_file.read_text()
        head, mark, tail = text.partition(f"Package: {name}\n")
        assert mark and old in tail
        self.status_file.write_text(head + mark + tail.replace(old, new, 1))


@pytest.fixture
def debian(tmp_path):
    """An empty root with a repository of three packages."""
    root = DebianRoot(tmp_path)
    root.add("libvirt0", "11.3")
    root.add("libvirt-daemon", "11.3", depends="libvirt0")
    root.add("sluice-web", "0.1")
    return root
