# SPDX-License-Identifier: GPL-2.0-or-later
"""Results on disk until sluiced has them, and what ended runs leave."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from nightly import shelf
from nightly.config import Config, Keep, Paths
from nightly.host import HostError, Refused
from nightly.shelf import Busy, Shelf
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
    (config.paths.state / "results" / "torn.json").write_text('{"result"')
    assert [entry["result"]["started_at"] for entry in store.results()] == [5.0, 4.0, 3.0]
    assert not (config.paths.state / "results" / "torn.json").exists()


def test_two_runs_at_once_are_one_too_many(config):
    with Shelf(config).lock(), pytest.raises(Busy, match="another run"), Shelf(config).lock():
        pass
    with Shelf(config).lock():
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
        assert started[0].wait(20) == -9
        assert started[1].poll() is None
        assert f"ended process {started[0].pid}" in done[0]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_settings_of_another_state_folder_are_not_touched(config, tmp_path):
    other = dataclasses.replace(config, paths=Paths(state=tmp_path / "other"))
    dead = dead_run(config, "night-1")
    assert shelf.clean(other) == []
    assert (dead / "disks").exists()


def test_the_state_folder_is_the_service_s_alone_whoever_made_it(config):
    config.paths.state.mkdir(mode=0o755)
    with Shelf(config).lock():
        assert config.paths.state.stat().st_mode & 0o777 == 0o700
