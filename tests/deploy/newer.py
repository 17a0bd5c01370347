# SPDX-License-Identifier: GPL-2.0-or-later
"""The next release of the patched QEMU: the same program under a higher version.

What an upgrade must show is in the packages' names, versions, paths and scripts,
not in the program, so today's packages are unpacked, renamed and packed again.
"""

import re
import shutil
import subprocess
from pathlib import Path

SUFFIX = ".next"


def packages_of(folder: Path) -> dict[str, Path]:
    """Return the .deb files of a folder by package name."""
    return {_field(path, "Package"): path for path in sorted(folder.glob("*.deb"))}


def make_newer(source: Path, target: Path) -> str:
    """Fill ``target`` with ``source``'s packages and a newer QEMU; return its version.

    The version is that in the path, as in /usr/lib/sluice/qemu-VERSION.
    """
    target.mkdir(parents=True)
    found = packages_of(source)
    versioned = next(name for name in found if re.match(r"sluice-qemu-\d", name))
    old = versioned.removeprefix("sluice-qemu-")
    for name, path in found.items():
        if name in ("sluice-qemu", versioned):
            _repack(path, target, old, old + SUFFIX)
        else:
            shutil.copy(path, target)
    index = _run(["dpkg-scanpackages", "-m", "."], cwd=target)
    (target / "Packages").write_text(index)
    return old + SUFFIX


def _repack(path: Path, target: Path, old: str, new: str) -> None:
    """Put ``new`` for ``old`` in names, links, control files and scripts."""
    tree = target / "tree"
    _run(["dpkg-deb", "--raw-extract", str(path), str(tree)])
    version = _field(path, "Version")
    for file in (tree / "DEBIAN").iterdir():
        text = file.read_text().replace(old, new)
        if file.name == "control":
            text = text.replace(version, version + SUFFIX)
        file.write_text(text)
    for entry in sorted(tree.rglob("*"), key=lambda found: len(found.parts), reverse=True):
        if entry.is_symlink() and old in str(entry.readlink()):
            link = str(entry.readlink()).replace(old, new)
            entry.unlink()
            entry.symlink_to(link)
        if old in entry.name:
            entry.rename(entry.with_name(entry.name.replace(old, new)))
    name = path.name.replace(old, new).replace(version, version + SUFFIX)
    # Quick to unpack: on an emulated machine that takes longer than copying.
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree)]
    _run([*command, str(target / name)])
    shutil.rmtree(tree)


def _field(path: Path, name: str) -> str:
    return _run(["dpkg-deb", "--field", str(path), name]).strip()


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr}")
    return done.stdout
