# SPDX-License-Identifier: GPL-2.0-or-later
"""Comparison of two manifests, and what collects them, on folders of our own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import collect, manifest
from deploy.manifest import Difference, Excepted

ENTRY = {"type": "file", "mode": "0644", "uid": 0, "gid": 0, "sha256": "00"}


def of(**changes: object) -> dict[str, object]:
    return {**ENTRY, **changes}


def test_equal_manifests_have_no_differences() -> None:
    assert manifest.differences({"/etc/a": of()}, {"/etc/a": of()}) == []


def test_each_kind_of_difference() -> None:
    before = {"/etc/a": of(), "/etc/b": of(), "/etc/c": of()}
    after = {"/etc/b": of(mode="0600", uid=7), "/etc/c": of(), "/etc/d": of()}
    assert manifest.differences(before, after) == [
        Difference("/etc/a", "removed"),
        Difference("/etc/b", "changed", ("mode", "uid")),
        Difference("/etc/d", "added"),
    ]


def test_a_field_that_only_one_side_has_differs() -> None:
    found = manifest.differences({"/a": of()}, {"/a": of(xattrs={"security.capability": "01"})})
    assert found == [Difference("/a", "changed", ("xattrs",))]


@given(
    st.dictionaries(st.text(min_size=1), st.integers()),
    st.dictionaries(st.text(min_size=1), st.integers()),
)
def test_differences_lead_from_one_manifest_to_the_other(
    before: dict[str, int], after: dict[str, int]
) -> None:
    old = {path: of(uid=value) for path, value in before.items()}
    new = {path: of(uid=value) for path, value in after.items()}
    rebuilt = dict(old)
    for one in manifest.differences(old, new):
        if one.kind == "removed":
            del rebuilt[one.path]
        else:
            rebuilt[one.path] = new[one.path]
    assert rebuilt == new


def test_exceptions_cover_a_path_and_a_pattern() -> None:
    found = [Difference("/var/log/a/b", "added"), Difference("/etc/x", "changed", ("mode",))]
    assert manifest.unexpected(found, [Excepted("/var/log/*", "logs")]) == [found[1]]
    assert (
        manifest.unexpected(found, [Excepted("/etc/x", "why"), Excepted("/var/log/*", "logs")])
        == []
    )
    assert manifest.unexpected(found, [Excepted("/etc", "a folder is not its files")]) == found


def test_a_line_that_is_no_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        manifest.parse('{"path": "/a", "type": "file"}\n{"type": "file"}\n')


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("one")
    (tmp_path / "link").symlink_to("folder/file")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def collected(tree: Path) -> dict[str, dict[str, object]]:
    return {path: collect.describe(path) for path in collect.walk(str(tree))}


def test_collect_sees_every_kind_of_path(tree: Path) -> None:
    found = {str(Path(path).relative_to(tree)): entry for path, entry in collected(tree).items()}
    assert {path: entry["type"] for path, entry in found.items()} == {
        ".": "folder",
        "folder": "folder",
        "folder/file": "file",
        "link": "link",
        "pipe": "pipe",
    }
    assert found["link"]["target"] == "folder/file"


CHANGES = {
    "content": lambda tree: (tree / "folder" / "file").write_text("two"),
    "mode": lambda tree: (tree / "folder" / "file").chmod(0o600),
    "link": lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("folder")),
    "added": lambda tree: (tree / "new").touch(),
    "removed": lambda tree: (tree / "pipe").unlink(),
    "type": lambda tree: ((tree / "pipe").unlink(), (tree / "pipe").mkdir()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(tree: Path, change: str) -> None:
    before = collected(tree)
    CHANGES[change](tree)
    assert manifest.differences(before, collected(tree))


def test_a_copy_put_back_is_no_change(tree: Path) -> None:
    before = collected(tree)
    shutil.copy2(tree / "folder" / "file", tree / "saved")
    (tree / "folder" / "file").unlink()
    shutil.move(tree / "saved", tree / "folder" / "file")
    assert not manifest.differences(before, collected(tree))


def test_what_is_collected_is_lines_with_the_state_of_the_machine(tree: Path) -> None:
    command = [sys.executable, "-I", str(manifest.COLLECT), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    entries = manifest.parse(done.stdout)
    assert {path: entries[path] for path in collected(tree)} == collected(tree)
    assert any(path.startswith("state:") for path in entries)
