# SPDX-License-Identifier: GPL-2.0-or-later
"""A change to a domain that has no shaper now is made, and says from when on it holds."""

from contextvars import copy_context

import pytest

from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.later import later
from sluice_controller.entry.api.app import create_app
from sluice_controller.entry.config import DEFAULTS, Config
from sluice_controller.entry.wiring import Services
from unit.controller.test_catalogue import Agents, Host

BARE, SHAPED = Description(), Description(shaper_id="sluice0")
GUESTS = {
    "runs": Guest("runs", "u-1", "running", 1, SHAPED, SHAPED),
    "off": Guest("off", "u-2", "shut off", -1, SHAPED),
    "waits": Guest("waits", "u-3", "running", 2, SHAPED, BARE),
    "plain": Guest("plain", "u-4", "running", 3, BARE, BARE),
    "plain off": Guest("plain off", "u-5", "shut off", -1, BARE),
    # Its detach waits for a restart: until then it is shaped.
    "leaving": Guest("leaving", "u-6", "running", 4, BARE, SHAPED),
}
FROM = {"off": "start", "waits": "restart", "plain": "attach", "plain off": "attach"}


class Guests(Host):
    def __init__(self):
        self.uuids = {name: guest.uuid for name, guest in GUESTS.items()}

    def guest(self, name):
        super().guest(name)
        return GUESTS[name]

    def guests(self):
        return list(GUESTS.values())


@pytest.mark.parametrize("name", GUESTS)
def test_a_domain_has_its_shaper_or_says_what_it_waits_for(name):
    found = later(name, GUESTS[name])
    assert (found and found.holds_from) == FROM.get(name)
    if found:
        assert found.sentence.startswith(f"{name}: not in force yet, the domain ")
    if name == "plain off":
        assert found.sentence.endswith("sluice attach 'plain off'")


def test_no_domain_and_no_libvirt_are_reasons_too():
    assert later("new", None).holds_from == "definition"
    assert later("new", None, libvirt_answers=False).holds_from == "libvirt"


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    given = dict.fromkeys(("run_dir", "state_dir", "etc_dir"), tmp_path_factory.mktemp("later"))
    found = Services(Config(**{**DEFAULTS, **given, "libvirt_uri": "test:///default"}))
    found.catalogue.host = found.domains.host = Guests()
    found.catalogue.agents = Agents()
    found.catalogue.put_class("film", {"is_stream": True})
    yield found
    found.stop()


@pytest.fixture
def ask(services):
    client = create_app(services, "secret").test_client()

    def call(method, path, body=None):
        headers = {"Authorization": "Bearer secret"}
        # The asker is noted in the context: not in that of the other tests.
        run = copy_context().run
        answer = run(client.open, f"/v1{path}", method=method, json=body, headers=headers)
        assert answer.status_code < 300, answer.get_json()
        return answer.get_json()

    return call


LIMIT = {"bytes_per_second": 5e6}
CHANGES = [
    ("PUT", "/domains/{}/classes/film", {}),
    ("PATCH", "/domains/{}/classes/film", {"limits": {}}),
    ("PUT", "/domains/{}/classes/film/limits/blk-read", LIMIT),
    ("PATCH", "/domains/{}/classes/film/limits/blk-read", LIMIT),
    ("DELETE", "/domains/{}/classes/film/limits/blk-read", None),
    ("PUT", "/domains/{}/classes/film/scheduling/blk-read", {}),
    ("PUT", "/domains/{}/classes/film/queues/net-rx", {}),
    ("PUT", "/domains/{}/ceiling", {"net-tx": LIMIT}),
    ("PATCH", "/domains/{}/ceiling/net-tx", LIMIT),
    ("PUT", "/groups/disks", {"resource": "blk", **LIMIT}),
    ("PUT", "/groups/disks/members/{}", {}),
    ("PATCH", "/groups/disks", {"bytes_per_second": 6e6}),
    ("POST", "/rules", {"domain": "{}", "class": "film", "match": {"user": "www"}}),
    ("PUT", "/streams/film", {"domain": "{}", "class": "film", "nominal_bytes_per_second": 9e5}),
    ("PUT", "/state", {"domains": {"{}": {"ceiling": {"net-rx": LIMIT}}}}),
    ("PUT", "/state", {"groups": {"disks": {"resource": "blk", **LIMIT, "members": {"{}": 7}}}}),
]


def filled(value, name):
    if isinstance(value, dict):
        return {filled(key, name): filled(one, name) for key, one in value.items()}
    return name if value == "{}" else value


@pytest.mark.parametrize("name", ["runs", "off", "waits", "plain off"])
def test_each_change_says_for_whom_it_does_not_hold_yet(ask, services, name):
    wanted = [(name, FROM[name])] if name in FROM else []
    for method, path, body in CHANGES:
        answer = ask(method, path.format(name), filled(body, name))
        said = [(one["domain"], one["holds_from"]) for one in answer["later"]]
        of_nobody = path == "/groups/disks" and method == "PUT"
        assert said == ([] if of_nobody else wanted), (method, path)
    # Who only looks is not told.
    assert "later" not in ask("GET", "/groups")[0]
    services.streams.delete("film")
    services.groups.delete_member("disks", name)


def test_libvirt_that_is_away_is_what_is_waited_for(ask, services, monkeypatch):
    ask("PUT", "/domains/runs/classes/film", {})

    def away(*_name):
        raise Unavailable("libvirt", "qemu:///system", "cannot be reached", "start it")

    for question in ("guest", "guests"):
        monkeypatch.setattr(services.catalogue.host, question, away)
    answer = ask("PUT", "/domains/runs/classes/film/limits/blk-read", LIMIT)
    assert [one["holds_from"] for one in answer["later"]] == ["libvirt"]
