# SPDX-License-Identifier: GPL-2.0-or-later
"""The module ``preflight`` on this machine: settings that only a host can judge."""

import shutil

import pytest

from ansible_collection import run_module


def problems(**arguments) -> list[str]:
    answer = run_module("preflight", releases=[], virtualisation=False, **arguments)
    about = (
        "user ",
        "sluice_nightly_on_calendar",
        "interface ",
        "memory ",
        "file system ",
        "folder ",
    )
    return [problem for problem in answer["problems"] if problem.startswith(about)]


def test_operators_that_the_host_does_not_have_are_named():
    found = problems(users=["root", "alcie", "nobody"])
    assert len(found) == 1 and "'alcie' of sluice_operators does not exist" in found[0]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("wrong", ["*-*-* 25:00", "every night", "03:30\nUnit=other.service", "-h"])
def test_a_time_that_systemd_does_not_understand_is_named(wrong):
    found = problems(calendar=wrong)
    assert len(found) == 1 and repr(wrong) in found[0] and "systemd.time(7)" in found[0]


@pytest.mark.parametrize("right", ["", "*-*-* 03:30", "Mon..Fri 02:00"])
def test_a_time_that_systemd_understands_is_no_problem(right):
    assert problems(calendar=right) == []


def test_an_uplink_that_the_host_does_not_have_is_named():
    assert problems(interface="lo") == problems(interface="") == []
    found = problems(interface="eth-none-such")
    assert len(found) == 1 and "interface 'eth-none-such' of sluice_uplink" in found[0]


def nightly(state, mib=1, run_mib=1, memory_mib=16) -> dict:
    parts = [{"files": ["root.img", "movie.img"], "mib": mib}]
    return {"state": str(state), "parts": parts, "run_mib": run_mib, "memory_mib": memory_mib}


def test_a_host_too_small_for_the_nightly_run_is_named(tmp_path):
    state = tmp_path / "not" / "there" / "yet"
    assert problems(nightly=nightly(state)) == []
    found = problems(nightly=nightly(state, memory_mib=10**9))
    assert len(found) == 1 and "is too little for the nightly run" in found[0]
    found = problems(nightly=nightly(state, mib=10**9))
    assert len(found) == 1 and f"{state} need 1000000001 MiB" in found[0]


def test_images_of_the_nightly_run_that_are_made_or_ready_are_seen(tmp_path):
    for folder, name in (("images", "root.img"), ("ready", "movie.img")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).touch()
    assert problems(nightly=nightly(tmp_path, mib=10**9)) == []
    # What an interrupted making left points nowhere.
    (tmp_path / "images" / "root.img").unlink()
    (tmp_path / "images" / "root.img").symlink_to("gone/root.img")
    assert len(problems(nightly=nightly(tmp_path, mib=10**9))) == 1


def test_a_folder_with_other_things_is_not_given_to_a_program(tmp_path):
    (tmp_path / "sluice.db").touch()
    folders = {str(tmp_path): ["sluice.db"], str(tmp_path / "away"): []}
    assert problems(own_folders=folders) == []
    (tmp_path / "web1.img").touch()
    (found,) = problems(own_folders=folders)
    assert f"folder '{tmp_path}' for Sluice's data holds web1.img: give an empty folder" in found
