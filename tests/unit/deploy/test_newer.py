# SPDX-License-Identifier: GPL-2.0-or-later
"""The next release is made of today's packages."""

import subprocess
from pathlib import Path

import pytest

from deploy import newer

OLD = "10.0.1-sluice1"


def build(folder: Path, name: str, files: dict[str, str], link: tuple[str, str] | None) -> None:
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    depends = f"Depends: sluice-qemu-{OLD} (= 10.0.1+1)\n" if name == "sluice-qemu" else ""
    (tree / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: 10.0.1+1\nArchitecture: all\n"
        f"Maintainer: x <x@example.org>\n{depends}Description: x\n"
    )
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    if link:
        (tree / link[0]).parent.mkdir(parents=True, exist_ok=True)
        (tree / link[0]).symlink_to(link[1])
    package = folder / f"{name}_10.0.1+1_all.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)],
        check=True,
        capture_output=True,
    )
    subprocess.run(["rm", "-r", str(tree)], check=True)


@pytest.fixture
def today(tmp_path: Path) -> Path:
    folder = tmp_path / "deb"
    folder.mkdir()
    build(folder, f"sluice-qemu-{OLD}", {f"usr/lib/sluice/qemu-{OLD}/bin/qemu": "x"}, None)
    build(folder, "sluice-qemu", {}, ("usr/lib/sluice/qemu", f"qemu-{OLD}"))
    build(folder, "sluice-web", {"usr/share/web": "w"}, None)
    return folder


def contents(path: Path) -> str:
    done = subprocess.run(
        ["dpkg-deb", "--contents", str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_next_release_has_a_path_and_a_link_of_its_own(today: Path, tmp_path: Path) -> None:
    version = newer.make_newer(today, tmp_path / "newer")
    assert version == OLD + ".next"
    found = newer.packages_of(tmp_path / "newer")
    assert found.keys() == {f"sluice-qemu-{version}", "sluice-qemu", "sluice-web"}
    assert f"./usr/lib/sluice/qemu-{version}/bin/qemu" in contents(found[f"sluice-qemu-{version}"])
    assert f"./usr/lib/sluice/qemu -> qemu-{version}" in contents(found["sluice-qemu"])


def test_its_index_says_what_depends_on_what(today: Path, tmp_path: Path) -> None:
    version = newer.make_newer(today, tmp_path / "newer")
    index = (tmp_path / "newer" / "Packages").read_text()
    assert f"Depends: sluice-qemu-{version} (= 10.0.1+1.next)" in index
    # Other packages are as they were.
    assert "Package: sluice-web\nVersion: 10.0.1+1\n" in index
