# SPDX-License-Identifier: GPL-2.0-or-later
"""The modules ``dropin`` and ``data_folder``: what settings need beside the packages' own."""

import pytest

from ansible_collection import run_module

LINES = ["[Service]", "ReadWritePaths=/srv/sluice"]


def test_a_dropin_is_written_once_and_goes_with_its_folder(tmp_path):
    def give(**arguments):
        return run_module("dropin", name="sluiced.service", folder=str(tmp_path), **arguments)

    file = tmp_path / "sluiced.service.d" / "sluice-ansible.conf"
    assert give(lines=LINES, check=True)["changed"] and not file.exists()
    assert [give(lines=LINES)["changed"] for _ in range(2)] == [True, False]
    assert file.read_text().splitlines()[1:] == LINES
    assert file.stat().st_mode & 0o777 == 0o644
    assert give(check=True)["changed"] and file.exists()
    assert [give()["changed"] for _ in range(2)] == [True, False]
    assert list(tmp_path.iterdir()) == []


def test_the_operators_own_dropin_stays(tmp_path):
    folder = tmp_path / "sluiced.service.d"
    folder.mkdir()
    (folder / "override.conf").write_text("[Service]\n")
    for lines in (LINES, []):
        run_module("dropin", name="sluiced.service", folder=str(tmp_path), lines=lines)
    assert [path.name for path in folder.iterdir()] == ["override.conf"]


@pytest.fixture
def data(tmp_path):
    record = tmp_path / "record" / "folders.json"

    def run(state, **arguments):
        return run_module("data_folder", record=str(record), state=state, **arguments)

    run.record = record
    return run


def test_a_folder_is_made_recorded_and_taken_away(data, tmp_path):
    folder = tmp_path / "srv" / "sluice"
    given = {"program": "sluiced", "path": str(folder), "mode": "0750"}
    assert data("present", check=True, **given)["changed"] and not folder.exists()
    assert [data("present", **given)["changed"] for _ in range(2)] == [True, False]
    assert folder.stat().st_mode & 0o777 == 0o750
    # Another one later: both hold data.
    other = tmp_path / "srv" / "other"
    data("present", program="sluiced", path=str(other))
    assert data("seen")["folders"] == sorted(map(str, (folder, other)))
    assert data("absent", check=True)["changed"] and folder.exists()
    assert [data("absent")["changed"] for _ in range(2)] == [True, False]
    assert not folder.exists() and not other.exists() and not data.record.exists()
    assert (tmp_path / "srv").exists()


def test_only_what_sluice_makes_is_deleted(data, tmp_path):
    folder, elsewhere = tmp_path / "night", tmp_path / "elsewhere"
    data("present", program="sluice-nightly", path=str(folder))
    elsewhere.mkdir()
    (elsewhere / "root.img").write_text("the operator's")
    for name in ("images", "results", "lost+found"):
        (folder / name).mkdir()
    (folder / "results" / "one.json").write_text("{}")
    # Of a probe that was killed.
    (folder / "accelerator.81.tmp").touch()
    (folder / "ready").symlink_to(elsewhere)
    data("absent")
    assert [path.name for path in folder.iterdir()] == ["lost+found"]
    assert (elsewhere / "root.img").exists()


def test_a_removal_that_was_interrupted_completes(data, tmp_path):
    folder = tmp_path / "sluice"
    data("present", program="sluiced", path=str(folder))
    folder.rmdir()
    assert data("seen")["folders"] == []
    assert [data("absent")["changed"] for _ in range(2)] == [True, False]
