# SPDX-License-Identifier: GPL-2.0-or-later
"""Results on disk until sluiced has them, and what ended runs leave."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_nightly import shelf
from sluice_nightly.config import BadConfig, Config, Keep, Paths
from sluice_nightly.host import HostError, Refused
from sluice_nightly.shelf import Busy, Shelf
from testbed import runs


@pytest.fixture
def config(tmp_path):
    return Config(
        paths=Paths(state=tmp_path / "state", socket=tmp_path / "no.sock"), keep=Keep(results=3)
    )


def night(number: int) -> dict:
    return {"run_id": f"{number:032x}", "started_at": float(number), "outcome": "refused"}


class Sluiced:
    """Stands for the API's client; says what it is told to."""

    def __init__(self, answers=()):
        self.answers = list(answers)
        self.bodies = []

    def call(self, method, path, body=None):
        assert (method, path) == ("POST", "/nightly")
        answer = self.answers.pop(0) if self.answers else None
        if answer:
            raise answer
        self.bodies.append(body)


def posting(config, answers=()) -> tuple[Shelf, Sluiced]:
    store, sluiced = Shelf(config), Sluiced(answers)
    store._controller = sluiced
    return store, sluiced


def test_a_result_is_posted_once_with_its_page_and_how_many_to_keep(config):
    store, sluiced = posting(config)
    store.keep(night(1), "<html>")
    assert store.post() == [] and store.post() == []
    assert sluiced.bodies == [{"result": night(1), "page": "<html>", "keep": 3}]


def test_a_night_that_sluiced_slept_through_is_posted_later_in_order(config):
    store, sluiced = posting(config, [HostError("no socket")])
    store.keep(night(1), None)
    store.keep(night(2), None)
    (said,) = store.post()
    assert "no socket" in said and "the next run posts" in said
    assert store.post() == []
    assert [body["result"]["started_at"] for body in sluiced.bodies] == [1.0, 2.0]


def test_a_refused_result_is_not_tried_for_ever_and_does_not_stop_others(config):
    store, sluiced = posting(config, [Refused("422: bad")])
    store.keep(night(1), None)
    store.keep(night(2), None)
    assert store.post() == ["422: bad"]
    assert [body["result"]["started_at"] for body in sluiced.bodies] == [2.0]
    assert store.post() == []
    assert [entry["refused"] for entry in store.results()] == [None, "422: bad"]


def test_the_newest_results_stay_and_a_torn_one_goes(config):
    store = Shelf(config)
    for number in (2, 5, 1, 4, 3):
        store.keep(night(number), None)
    torn = config.paths.state / "results" / f"{9:032x}.json"
    torn.write_text('{"result"')
    assert [entry["result"]["started_at"] for entry in store.results()] == [5.0, 4.0, 3.0]
    assert not torn.exists()


def test_a_night_of_a_clock_that_went_back_is_kept_and_posted(config):
    store, sluiced = posting(config)
    for number in (3, 4, 5):
        store.keep(night(number), None)
    assert store.post() == []
    store.keep(night(0), None)
    assert store.post() == [] and sluiced.bodies[-1]["result"] == night(0)
    assert [entry["result"]["started_at"] for entry in store.results()] == [5.0, 4.0, 0.0]


def test_a_file_that_is_no_result_stays_beside_them(config):
    store = Shelf(config)
    store.keep(night(1), None)
    others = config.paths.state / "results" / "survey.json"
    others.write_text("of somebody else")
    assert len(store.results()) == 1
    assert others.read_text() == "of somebody else"


def test_two_runs_at_once_are_one_too_many(config):
    with Shelf(config).lock(), pytest.raises(Busy, match="another run"), Shelf(config).lock():
        pass
    with Shelf(config).lock():
        pass


def keeps_all(state) -> bool:
    """Whether every file of ``somebody`` is still there, and the folder has its mode."""
    there = {path.relative_to(state) for path in state.rglob("*") if path.is_file()}
    return there == {Path(name) for name in SOMEBODYS} and state.stat().st_mode & 0o777 == 0o755


SOMEBODYS = (
    *("notes.tmp", "report.odt", "results/survey.json", "results/draft.tmp"),
    *("runs/experiment-7/disks/image", "images/guest-0123456789abcdef.new/file"),
)


@pytest.fixture
def somebody(config):
    """A folder that paths.state names by mistake."""
    for name in SOMEBODYS:
        path = config.paths.state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    config.paths.state.chmod(0o755)
    return config.paths.state


def test_a_folder_that_is_somebody_elses_is_refused_and_not_touched(config, somebody):
    said = "paths.state .* has notes.tmp, report.odt, which no"
    with pytest.raises(BadConfig, match=said), Shelf(config).lock():
        shelf.clean(config)
    assert keeps_all(somebody)


def test_what_others_have_in_folders_of_our_names_stays(config, somebody):
    """Also where nothing else tells that the folder is not ours."""
    (somebody / "images" / "guest-0123456789abcdef.new").rename(somebody / "images" / "site.new")
    (somebody / "report.odt").unlink()
    (somebody / "notes.tmp").unlink()
    there = sorted(somebody.rglob("*"))
    with Shelf(config).lock():
        assert shelf.clean(config) == []
        Shelf(config).keep(night(1), None)
    assert set(there) <= set(somebody.rglob("*"))


def test_a_folder_with_our_mark_is_ours_whatever_was_put_there(config):
    with Shelf(config).lock():
        pass
    (config.paths.state / "README").touch()
    with Shelf(config).lock():
        pass
    assert (config.paths.state / "lock").read_bytes() == shelf.MARK


@pytest.mark.parametrize("name", ["", "lost+found", "ready", "lock", "results"])
def test_an_empty_folder_and_one_of_an_earlier_version_are_taken(config, name):
    (config.paths.state / name).mkdir(parents=True)
    if name == "lock":
        (config.paths.state / name).rmdir()
        (config.paths.state / name).touch()
    with Shelf(config).lock():
        pass


def test_a_state_folder_that_cannot_be_made_is_said_with_what_to_do(config):
    config.paths.state.write_text("a file")
    said = "cannot be used .*: be root, and give a folder"
    with pytest.raises(BadConfig, match=said), Shelf(config).lock():
        pass


def test_a_run_that_ended_without_a_word_is_known(config):
    store = Shelf(config)
    with store.lock():
        store.begin({"run_id": "x"})
    assert Shelf(config).unfinished() == {"run_id": "x"}
    store.end()
    assert Shelf(config).unfinished() is None


def dead_run(config, name: str):
    run = config.paths.state / "runs" / name
    for part in ("disks", "libvirt", "shadow", "logs"):
        (run / part).mkdir(parents=True)
    (run / runs.OWNER).write_text(json.dumps({"pid": 1, "start_ticks": 2**62}))
    return run


def test_what_dead_runs_left_goes_and_their_logs_stay(config):
    dead, alive = dead_run(config, "night-1"), dead_run(config, "night-2")
    owner = {"pid": os.getpid(), "start_ticks": runs.start_ticks(os.getpid())}
    (alive / runs.OWNER).write_text(json.dumps(owner))
    images = config.paths.state / "images"
    (images / "guest-0123456789abcdef.new").mkdir(parents=True)
    (images / "guest-0").mkdir()
    done = shelf.clean(config)
    assert sorted(path.name for path in dead.iterdir()) == ["logs", runs.OWNER]
    assert (alive / "disks").exists()
    assert sorted(path.name for path in images.iterdir()) == ["guest-0"]
    assert len(done) == 2 and str(dead) in done[0]
    assert shelf.clean(config) == []


def test_the_first_process_of_a_dead_run_is_ended_and_no_other(config, tmp_path):
    """A process that looks like holder.py, whose maker is gone."""
    program = tmp_path / "holder.py"
    program.write_text("import time\ntime.sleep(60)\n")
    dead = dead_run(config, "night-1")
    other = tmp_path / "elsewhere" / "night-9"
    started = [
        subprocess.Popen([sys.executable, str(program), str(folder / "namespaces.json")])
        for folder in (dead, other)
    ]
    try:
        done = shelf.clean(config)
        assert started[0].wait(60) == -9
        assert started[1].poll() is None
        assert f"ended process {started[0].pid}" in done[0]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_files_that_were_being_written_go_and_no_others(config):
    results = config.paths.state / "results"
    results.mkdir(parents=True)
    names = ("running.tmp", "accelerator.4711.tmp")
    ours = [*(config.paths.state / name for name in names), results / f"{7:032x}.tmp"]
    others = [config.paths.state / "notes.tmp", results / "draft.tmp"]
    for path in (*ours, *others):
        path.touch()
    assert shelf.clean(config) == [f"removed {path}" for path in ours]
    assert all(path.exists() for path in others)


def test_settings_of_another_state_folder_are_not_touched(config, tmp_path):
    other = dataclasses.replace(config, paths=Paths(state=tmp_path / "other"))
    dead = dead_run(config, "night-1")
    assert shelf.clean(other) == []
    assert (dead / "disks").exists()


def test_the_state_folder_is_the_service_s_alone_whoever_made_it(config):
    config.paths.state.mkdir(mode=0o755)
    with Shelf(config).lock():
        assert config.paths.state.stat().st_mode & 0o777 == 0o700
