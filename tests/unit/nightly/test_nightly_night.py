# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of a night whose end is not in order."""

from dataclasses import asdict, replace

import pytest

from sluice_nightly import night
from sluice_nightly.config import Config, Keep, Paths
from sluice_nightly.night import Attempt, _bury
from sluice_nightly.result import result
from sluice_nightly.shelf import Shelf
from sluice_nightly.watch import Ending
from testbed import GuestError
from testbed.accelerator import Accelerator
from unit.nightly.measured import ABOUT, facts
from unit.nightly.test_nightly_decide import QUIET


@pytest.fixture
def config(tmp_path):
    return Config(
        paths=Paths(state=tmp_path / "state", socket=tmp_path / "no.sock"), keep=Keep(results=3)
    )


@pytest.fixture
def attempt(config, monkeypatch):
    monkeypatch.setattr(night.images, "prepare", lambda config, say: None)
    monkeypatch.setattr(night, "choose_accelerator", lambda config: Accelerator("tcg", "why"))
    return Attempt(config, ABOUT, Ending(), None, True)


def test_figures_stand_when_the_cleaning_up_fails(attempt, monkeypatch):
    document = facts(monkeypatch)

    def measured(_config, _say, done):
        done(document)
        raise GuestError("media: the domain cannot be ended")

    monkeypatch.setattr(night, "measure", measured)
    said = []
    found, page = attempt.run(said.append)
    assert found["outcome"] == "passed" and found["reasons"] == []
    assert found["measured"] and "<html" in page
    assert "media: the domain cannot be ended" in said[-1]


def test_a_run_that_fails_before_it_has_figures_says_so(attempt, monkeypatch):
    def fails(_config, _say, _done):
        raise GuestError("media: no guest")

    monkeypatch.setattr(night, "measure", fails)
    found, page = attempt.run(lambda _line: None)
    assert (found["outcome"], page) == ("error", None)
    assert found["reasons"][0]["sentence"] == "media: no guest"


class Taken:
    """A host on which a stream began while images were made."""

    def first(self):
        return replace(QUIET, streams=("film",), load=99.0)


@pytest.mark.parametrize("force", [False, True])
def test_a_host_is_looked_at_again_after_images_were_made(config, attempt, monkeypatch, force):
    monkeypatch.setattr(night, "measure", lambda *_: facts(monkeypatch))
    monkeypatch.setattr(night.images, "ready", lambda config: False)
    found, _page = Attempt(config, ABOUT, Ending(), Taken(), force).run(lambda _line: None)
    if force:
        assert found["outcome"] == "passed"
    else:
        assert found["outcome"] == "refused"
        assert [reason["code"] for reason in found["reasons"]] == ["stream-plays"]


def test_a_host_with_images_is_looked_at_once(config, attempt, monkeypatch):
    monkeypatch.setattr(night, "measure", lambda *_: facts(monkeypatch))
    monkeypatch.setattr(night.images, "ready", lambda config: True)
    found, _page = Attempt(config, ABOUT, Ending(), Taken(), False).run(lambda _line: None)
    assert found["outcome"] == "passed"


def test_a_run_that_was_killed_after_its_result_was_kept_has_that_result(config):
    store = Shelf(config)
    config.paths.state.mkdir()
    store.begin(asdict(ABOUT))
    refused = result(ABOUT, ABOUT.started_at + 1, "refused", [])
    store.keep(refused, "<html>")
    _bury(store, lambda line: pytest.fail(line))
    (entry,) = store.results()
    assert (entry["result"], entry["page"]) == (refused, "<html>")
    assert store.unfinished() is None


def test_a_run_that_was_killed_before_is_told_as_killed(config):
    store, said = Shelf(config), []
    config.paths.state.mkdir()
    store.begin(asdict(ABOUT))
    _bury(store, said.append)
    (entry,) = store.results()
    assert entry["result"]["outcome"] == "aborted" and "without a word" in said[0]
