# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A folder of .deb files with the index ``Packages`` beside them.

Read on the control node, before anything is changed on a host: a package that
is missing, cut short or altered is named there and then.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass

BUILD = "run 'make deb' in Sluice's checkout"


class IndexProblem(Exception):
    """What is wrong with the folder, with the remedy."""


@dataclass(frozen=True)
class Package:
    """One stanza of the index."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    installed_kib: int
    depends: tuple[str, ...]
    stanza: str

    def as_dict(self, folder: str) -> dict:
        """What a role needs to know of it."""
        return {
            "name": self.name,
            "version": self.version,
            "path": os.path.join(folder, self.filename),
            "file": os.path.basename(self.filename),
            "sha256": self.sha256,
            "size_bytes": self.size,
            "installed_bytes": self.installed_kib * 1024,
        }


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line[:1] in (" ", "\t"):
            fields[name] += "\n" + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def _dependencies(text: str) -> tuple[str, ...]:
    found = (re.match(r"[a-z0-9][a-z0-9+.-]+", part.strip()) for part in re.split(r"[,|]", text))
    return tuple(match[0] for match in found if match)


def read_index(text: str) -> list[Package]:
    """The stanzas of a ``Packages`` file. Raises IndexProblem."""
    packages = []
    for stanza in re.split(r"\n\s*\n", text.strip()):
        if not stanza.strip():
            continue
        fields = _fields(stanza)
        try:
            packages.append(
                Package(
                    name=fields["package"],
                    version=fields["version"],
                    filename=os.path.normpath(fields["filename"]),
                    size=int(fields["size"]),
                    sha256=fields["sha256"].lower(),
                    installed_kib=int(fields.get("installed-size", "0")),
                    depends=_dependencies(
                        fields.get("depends", "") + "," + fields.get("pre-depends", "")
                    ),
                    stanza=stanza.strip(),
                )
            )
        except (KeyError, ValueError) as error:
            raise IndexProblem(f"its stanza {stanza[:60]!r} lacks {error}: {BUILD}") from error
    return packages


def closure(packages: list[Package], names: list[str]) -> list[Package]:
    """The named packages and what they need of the same folder. Raises IndexProblem."""
    by_name: dict[str, list[Package]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package)
    for name in names:
        if name not in by_name:
            has = ", ".join(sorted(by_name)) or "nothing"
            raise IndexProblem(f"does not hold package {name!r} (it has {has}): {BUILD}")
    wanted, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name in wanted:
            continue
        wanted.add(name)
        for package in by_name[name]:
            queue += [needed for needed in package.depends if needed in by_name]
    return [package for package in packages if package.name in wanted]


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_file(folder: str, package: Package) -> None:
    """Raises IndexProblem unless the file is what the index says."""
    path = os.path.join(folder, package.filename)
    if os.path.isabs(package.filename) or package.filename.startswith(".."):
        raise IndexProblem(f"names {package.filename!r}, which is outside of it: {BUILD}")
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise IndexProblem(
            f"lacks the file {package.filename!r} of package {package.name!r}: {BUILD}"
        ) from error
    if size != package.size:
        raise IndexProblem(
            f"has a corrupt {package.filename!r}: it has {size} bytes and not {package.size}:"
            f" {BUILD} again"
        )
    if _sha256(path) != package.sha256:
        raise IndexProblem(
            f"has a corrupt {package.filename!r}: its SHA-256 is not that of Packages: {BUILD}"
            " again"
        )


def read_folder(folder: str, names: list[str]) -> list[Package]:
    """The named packages with their needs, each file checked. Raises IndexProblem."""
    index = os.path.join(folder, "Packages")
    try:
        with open(index, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        what = "does not exist" if not os.path.isdir(folder) else "has no file Packages"
        raise IndexProblem(
            f"{what}: {BUILD}, or set sluice_packages_dir or sluice_apt_repository"
        ) from error
    chosen = closure(read_index(text), names)
    for package in chosen:
        check_file(folder, package)
    return chosen


def index_of(packages: list[Package]) -> str:
    """A ``Packages`` file for a folder that holds just these files."""
    stanzas = []
    for package in packages:
        name = os.path.basename(package.filename)
        stanzas.append(re.sub(r"(?im)^Filename:.*$", f"Filename: ./{name}", package.stanza))
    return "\n\n".join(stanzas) + "\n"
