# SPDX-License-Identifier: GPL-2.0-or-later
"""A throw-away Debian 13 tree to install packages in, and its contents.

The tree is a copy of one that ``tools/packaging/root.sh`` made and the cache keeps; commands
run in it in namespaces of their own, without a network. A ``Manifest`` lists a tree's files, so
that two states can be compared.
"""

import fnmatch
import hashlib
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed import paths

TOP = Path(__file__).resolve().parents[2]
DEB = TOP / "build" / "deb"
COMMAND_SECONDS = 300
MAKE_SECONDS = 2000
# Packages of a plain machine, and tools of the tests.
PLAIN = ("apt", "systemd", "procps", "passwd", "adduser")


@dataclass(frozen=True)
class Entry:
    """One file: its type and mode, its owner, and its content or target."""

    mode: str
    owner: tuple[int, int]
    content: str


def stanzas(text: str) -> list[dict[str, str]]:
    """Return the stanzas of a Packages file as {field: value}."""
    found = []
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line[:1].isspace():
                fields[name] += "\n" + line
            else:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields:
            found.append(fields)
    return found


def wanted_by(packages: Iterable[Mapping[str, str]], fields: Iterable[str]) -> set[str]:
    """Return the names in these dependency fields, of alternatives the first, but no own ones."""
    names = set()
    for package in packages:
        for field in fields:
            for clause in package.get(field, "").split(","):
                name = clause.split("|")[0].split("(")[0].strip()
                if name and not name.startswith("sluice-"):
                    names.add(name)
    return names


def build(*names: str) -> list[dict[str, str]]:
    """Build these packages (see tools/packaging/build.sh); return their stanzas."""
    script = TOP / "tools" / "packaging" / "build.sh"
    subprocess.run(["bash", str(script), *names], check=True, timeout=MAKE_SECONDS)
    every = stanzas((DEB / "Packages").read_text())
    return [p for p in every if p.get("Source", p["Package"]) in names]


def _bash(script: str, *arguments: str, seconds: float, check: bool) -> subprocess.CompletedProcess:
    common = shlex.quote(str(TOP / "tools" / "setup" / "common.sh"))
    command = f". {common}; . tools/packaging/root.sh; {script}"
    done = subprocess.run(
        ["bash", "-c", command, "debian-root", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(arguments)[-500:]}: {done.returncode}\n{done.stdout}")
    return done


class DebianRoot:
    """A copy of a Debian 13 with these packages, gone at the end of the block."""

    def __init__(self, folder: Path, packages: Iterable[str]):
        self.tree = folder / "tree"
        self._packages = sorted({*PLAIN, *packages})

    def __enter__(self) -> "DebianRoot":
        self.tree.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(self._original()), self.tree], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.tree)

    def _original(self) -> Path:
        key = hashlib.sha256((TOP / "tools/packaging/root.sh").read_bytes())
        key.update("\n".join(self._packages).encode())
        roots = paths.cache_folder() / "packages" / "roots"
        original = roots / f"test-{key.hexdigest()[:16]}"
        roots.mkdir(parents=True, exist_ok=True)
        make = 'tree=$1; shift; with_lock packages-root-test need "$tree" "$@"'
        need = 'need() { [ -d "$1" ] || make_root "$@"; touch "$1"; }; '
        _bash(need + make, str(original), *self._packages, seconds=MAKE_SECONDS, check=True)
        return original

    def run(
        self, script: str, *, check: bool = True, binds: Iterable[str] = ()
    ) -> subprocess.CompletedProcess:
        """Run shell commands in the tree; both outputs are in ``stdout``.

        The packages are in /debs, and everything that was started ends with it.
        """
        words = [str(self.tree), f"{DEB}:/debs", *binds, "--", "bash", "-ec", script]
        return _bash('in_root "$@"', *words, seconds=COMMAND_SECONDS, check=check)

    def path(self, inside: str) -> Path:
        """Return where a path of the tree is outside."""
        return self.tree / inside.lstrip("/")

    def manifest(self, ignored: Mapping[str, str]) -> dict[str, Entry]:
        """Return all files except matches of ``ignored``: {pattern: why}."""
        found = {}
        for path in sorted(self.tree.rglob("*")):
            name = "/" + str(path.relative_to(self.tree))
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored):
                found[name] = _entry(path)
        return found


def _entry(path: Path) -> Entry:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        content = str(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        content = ""
    return Entry(stat.filemode(status.st_mode), (status.st_uid, status.st_gid), content)


def difference(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Return a line for each file that is new, gone or changed."""
    lines = [f"new: {name}" for name in sorted(after.keys() - before.keys())]
    lines += [f"gone: {name}" for name in sorted(before.keys() - after.keys())]
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            lines.append(f"changed: {name}: {before[name]} -> {after[name]}")
    return lines
