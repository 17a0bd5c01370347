# SPDX-License-Identifier: GPL-2.0-or-later
"""What sluiced's answers mean to a night, and when it is asked at all."""

import httpx
import pytest

from sluice_nightly import facts
from sluice_nightly.config import Config, Paths, Start
from sluice_nightly.host import Controller, HostError, Refused


@pytest.fixture
def answering(tmp_path, monkeypatch):
    """A client of a sluiced that answers everything with one status."""

    def make(status: int) -> Controller:
        answer = httpx.MockTransport(
            lambda request: httpx.Response(status, json={"detail": "this is why"})
        )
        monkeypatch.setattr(httpx, "HTTPTransport", lambda uds, verify: answer)
        (tmp_path / "token").write_text("secret\n")
        return Controller(tmp_path / "socket", tmp_path / "token")

    return make


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_what_is_wrong_with_what_is_sent_stays_wrong(answering, status):
    with pytest.raises(Refused, match=f"POST /nightly: {status}: this is why"):
        answering(status).call("POST", "/nightly", {})


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 503])
def test_what_may_pass_is_tried_again(answering, status):
    """A token that sluiced has not read yet, a call that it does not know yet."""
    with pytest.raises(HostError, match=f"{status}: this is why") as problem:
        answering(status).call("POST", "/nightly", {})
    assert not isinstance(problem.value, Refused)


class Sluiced:
    def __init__(self):
        self.asked = []

    def call(self, method, path):
        self.asked.append(path)
        if path == "/live":
            return {"domains": {"media": {"classes": {"film": {"net-tx": SAMPLE}}}}}
        nominal = {"bytes_per_second": 1000.0}
        return [{"name": "a", "domain": "media", "class": "film", "nominal": nominal}]


SAMPLE = {"bytes_per_second": 900.0}


def test_a_host_whose_run_is_on_is_looked_at_without_sluiced(tmp_path, monkeypatch):
    """One that hangs would keep the watcher from seeing what guests suffer."""
    monkeypatch.setattr(facts, "guest_counters", lambda uri: {})
    host = facts.Host(Config(paths=Paths(state=tmp_path), start=Start(watch_s=0.01)))
    host._controller = Sluiced()
    assert host.first().streams == ("a",)
    assert host._controller.asked == ["/streams", "/live"]
    assert host.look().streams == ()
    assert host._controller.asked == ["/streams", "/live"]


UNTOLD = {"cpu.time": 5, "block.count": 1, "block.0.name": "vda"}


def told(disk_bytes: int) -> dict[str, object]:
    return {**UNTOLD, "block.0.rd.bytes": disk_bytes}


def looked_at(tmp_path, monkeypatch, readings) -> facts.HostFacts:
    left = iter(readings)
    monkeypatch.setattr(facts, "guest_counters", lambda uri: {"db2": next(left)})
    host = facts.Host(Config(paths=Paths(state=tmp_path), start=Start(watch_s=0.01)))
    host._controller = Sluiced()
    return host.first()


@pytest.mark.parametrize(
    "readings",
    [
        (UNTOLD, told(9000), told(9000)),
        (told(9000), UNTOLD, told(9000), told(9000)),
    ],
)
def test_a_guest_whose_disks_are_not_told_of_is_looked_at_again(tmp_path, monkeypatch, readings):
    (guest,) = looked_at(tmp_path, monkeypatch, readings).guests
    assert guest.disk_bytes_per_s == 0


def test_what_a_guest_moved_while_it_was_not_told_of_counts(tmp_path, monkeypatch):
    readings = (told(0), UNTOLD, told(10**9), told(2 * 10**9))
    (guest,) = looked_at(tmp_path, monkeypatch, readings).guests
    assert guest.disk_bytes_per_s > 10**6


def test_a_guest_that_is_never_told_of_is_named(tmp_path, monkeypatch):
    found = looked_at(tmp_path, monkeypatch, 4 * (UNTOLD,))
    assert found.guests is None
    assert found.guests_problem == "it does not tell what the disks of db2 move"
