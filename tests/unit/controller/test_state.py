# SPDX-License-Identifier: GPL-2.0-or-later
"""The declared state through the API: the real services, on a host of two guests."""

import copy
from contextvars import copy_context
from pathlib import Path

import pytest
import yaml

from sluice_controller.domain.agent_protocol import Preview
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.events import Begin, Wanted
from sluice_controller.entry.api.app import create_app
from sluice_controller.entry.config import DEFAULTS, Config
from sluice_controller.entry.wiring import Services
from unit.controller.test_catalogue import PATTERN, REFUSED, Agents, Host

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "state.yaml"
LIMIT = ("domains", "media", "classes", "batch", "limits", "blk-read")


@pytest.fixture
def services(tmp_path):
    given = dict.fromkeys(("run_dir", "state_dir", "etc_dir"), tmp_path)
    found = Services(Config(**{**DEFAULTS, **given, "libvirt_uri": "test:///default"}))
    found.catalogue.host, found.catalogue.agents = Host(), Agents()
    found.catalogue.host.uuids = {"media": "u-1", "web1": "u-2"}
    yield found
    found.stop()


@pytest.fixture
def ask(services):
    client = create_app(services, "secret").test_client()

    def call(method, path="/v1/state", body=None, **headers):
        headers["Authorization"] = "Bearer secret"
        # The asker is noted in the context: not in that of the other tests.
        return copy_context().run(client.open, path, method=method, json=body, headers=headers)

    return call


@pytest.fixture
def apply(ask):
    def put(document, query="", **headers):
        answer = ask("PUT", f"/v1/state{query}", document, **headers)
        assert answer.status_code == 200, answer.get_json()
        return answer.get_json()

    return put


@pytest.fixture
def example():
    return yaml.safe_load(EXAMPLE.read_text())


@pytest.fixture
def state(ask):
    return lambda: ask("GET").get_json()


def at(document, path):
    for key in path:
        document = document[key]
    return document


def test_the_example_changes_nothing_the_second_time(apply, state, services, example):
    first = apply(example)
    assert first["changed"] and first["changes"]
    assert at(state(), LIMIT) == {"bytes_per_second": 20_000_000, "burst_bytes": 1048576}
    said = services.catalogue.audit(1000)
    assert {entry["action"] for entry in said} == {"apply"}
    changes = services.store.changes
    again = apply(example)
    assert (again["changed"], again["changes"], again["etag"]) == (False, [], first["etag"])
    assert services.store.changes == changes
    assert services.catalogue.audit(1000) == said


def test_it_does_what_single_calls_do(apply, services, example):
    apply(example)
    grants = services.catalogue.of_domains(["media"])["media"]["classes"]
    assert [(g["class"], g["tag"]) for g in grants] == [("default", 0), ("movie", 1), ("batch", 2)]
    assert services.auto.settings.enabled
    (disks,) = services.groups.all()
    assert [(d["domain"], d["weight"]) for d in disks["domains"]] == [("media", 300), ("web1", 100)]
    assert services.groups.pages.names() == ["disks"]
    assert services.streams.list_json()[0]["nominal_bytes_per_second"] == 875_000


def test_the_default_class_of_one_domain_may_be_a_stream(apply, state):
    tv = {"domain": "web1", "class": "default", "nominal_bytes_per_second": 1e6}
    assert apply({"streams": {"tv": tv}})["changed"]
    exported = state()
    assert exported["streams"]["tv"] == tv
    assert not apply(exported, "?prune=true")["changed"]


def test_what_is_exported_is_a_backup(apply, state, example):
    apply(example)
    exported = state()
    assert not apply(exported, "?prune=true")["changed"]
    apply(dict.fromkeys(("domains", "groups", "streams"), {}) | {"rules": []}, "?prune=true")
    assert state() != exported
    apply(exported, "?prune=true")
    assert state() == exported


def test_what_is_not_named_stays_unless_it_is_pruned(apply, state, example):
    apply(example)
    before = state()
    assert not apply({"domains": {"media": {}}, "classes": {}, "rules": []})["changed"]
    assert state() == before
    pruned = apply({"rules": before["rules"][1:]}, "?prune=true")
    assert pruned["changes"] == [{"thing": "rules", "before": before["rules"][0], "after": None}]
    # A section that is absent is not looked at.
    assert state() == {**before, "rules": before["rules"][1:]}


def test_pruning_takes_what_belongs_to_a_class_with_it(apply, state, services, example):
    apply(example)
    example["domains"] = {"web1": example["domains"]["web1"]}
    example["rules"], example["streams"] = [example["rules"][1]], {}
    del example["groups"]["disks"]["members"]["media"], example["classes"]["movie"]
    apply(example, "?prune=true")
    after = state()
    assert list(after["domains"]) == ["web1"]
    assert after["groups"]["disks"]["members"] == {"web1": 100}
    assert set(after["classes"]) == {"default", "web", "batch"}
    apply({"groups": {}}, "?prune=true")
    assert services.groups.pages.names() == []


def test_a_rehearsal_says_what_would_be_and_changes_nothing(apply, state, services, example):
    before = state()
    rehearsed = apply(example, "?dry_run=true")
    assert rehearsed["changed"] and rehearsed["dry_run"]
    assert state() == before and services.catalogue.audit(10) == []
    assert services.groups.pages.names() == []
    assert apply(example)["changes"] == rehearsed["changes"]


def test_each_part_is_an_event_of_the_domains_that_it_names(apply, services, example):
    def told(domain=None, kind="apply"):
        found = services.events.read(Begin(newest=1000), Wanted(domain, kind))
        return [one.sentence.removeprefix("cli: apply ") for one in found]

    apply(example, "?dry_run=true")
    assert told() == []
    apply(example)
    assert told("media") == ["domains.media", "groups.disks", "rules", "streams.film"]
    assert told("web1") == ["domains.web1", "groups.disks"]
    assert {"classes.batch", "settings.history_seconds"} <= set(told())
    before = told("web1")
    at(example, ("groups", "disks", "members"))["web1"] = 200
    apply(example)
    assert told("web1") == [*before, "groups.disks.members.web1"]


def test_a_difference_is_told_where_it_is(apply, example):
    apply(example)
    at(example, LIMIT)["bytes_per_second"] = "25MB/s"
    (change,) = apply(example)["changes"]
    assert change == {
        "thing": ".".join((*LIMIT, "bytes_per_second")),
        "before": 20_000_000,
        "after": 25_000_000,
    }


BAD = {
    "domains.media.classes.batch.limits.blk-read.bytes_per_second": "12",
    "domains.media.classes.batch.scheduling": {"net-tx": {"charge": "device"}},
    "classes.batch.weight": 0,
    "classes.batch.colour": "red",
    "domains.web9": {},
    "domains.media.classes.none": {},
    "groups.disks.bytes_per_second": 1,
    "groups.disks.members.media": 0,
    "groups.disks.members.web9": 5,
    "rules[1].match.exe": "rsync",
    "rules[1].class": "none",
    "streams.film.class": "batch",
    "streams.film.domain": "web9",
    "auto.floors_bytes_per_second.blk-read": "fast",
    "auto.enabled": 1,
    "settings.history_seconds": "long",
    "sections": {},
}


@pytest.mark.parametrize("place", BAD)
def test_one_bad_value_is_named_and_all_stays(ask, apply, state, services, example, place):
    apply(example)
    before, pages = state(), services.groups.pages.names()
    wrong = copy.deepcopy(example)
    wrong["classes"]["new"], wrong["groups"]["more"] = (
        {},
        {"resource": "net", "bytes_per_second": 1e6},
    )
    *way, last = place.replace("[1]", ".1").split(".")
    at(wrong, [int(key) if key.isdecimal() else key for key in way])[last] = BAD[place]
    answer = ask("PUT", body=wrong)
    assert answer.status_code == (404 if "web9" in (place + str(BAD[place])) else 422)
    said = answer.get_json()
    assert said["thing"].startswith(place.removesuffix(".none")), said
    assert said["remedy"] and said["detail"].startswith(said["thing"])
    assert (state(), services.groups.pages.names()) == (before, pages)


def test_an_expression_that_no_agent_takes_is_named_and_all_stays(ask, apply, state, services):
    batch = {"classes": {"batch": {}}, "domains": {"media": {"classes": {"batch": {}}}}}
    known = {"class": "batch", "match": {"cmdline": "known"}}
    apply({**batch, "rules": [known]})
    before = state()
    agents = services.catalogue.agents
    agents.tried.clear()
    agents.previews["media"] = REFUSED
    for bad in (PATTERN, {**PATTERN, "domain": "media"}):
        answer = ask("PUT", body={"rules": [known, bad]})
        assert (answer.status_code, answer.get_json()["thing"]) == (422, "rules[1].match.cmdline")
    assert state() == before
    assert agents.tried == [(["media"], {"cmdline": "("})] * 2


def test_agents_that_take_their_time_keep_other_changes_waiting_for_seconds_only(
    apply, state, services, monkeypatch
):
    now, agents = [0.0], services.catalogue.agents
    services.states.monotonic = lambda: now[0]
    answers = agents.preview

    def slow(domains, match):
        now[0] += 4.9
        return answers(domains, match)

    monkeypatch.setattr(agents, "preview", slow)
    agents.previews["media"] = Preview({}, pids=[])
    rules = [{"class": "batch", "match": {"cmdline": f"job{i}"}} for i in range(50)]
    batch = {"classes": {"batch": {}}, "domains": {"media": {"classes": {"batch": {}}}}}
    apply(batch)
    apply({"rules": rules})
    assert state()["rules"] == rules
    # The others are refused when they have waited this long.
    assert 0 < now[0] < services.catalogue.asking_seconds


def test_dscp_values_may_change_hands(apply, state):
    def granted(movie, batch):
        grants = {"movie": {"dscp": movie}, "batch": {"dscp": batch}}
        return {"domains": {"media": {"classes": grants}}}

    apply({"classes": {"movie": {}, "batch": {}}, **granted([8, 16], [24])})
    apply(granted([24], [8]))
    assert state()["domains"] == granted([24], [8])["domains"]


def test_the_order_of_rules_is_declared_too(apply, state, example):
    apply(example)
    more = {"domain": "media", "class": "batch", "match": {"user": "www"}}
    apply({"rules": [more, *example["rules"]]}, "?prune=true")
    assert state()["rules"] == [more, *example["rules"]]


def test_the_etag_of_another_state_is_refused(ask, apply, example):
    tag = ask("GET").headers["ETag"]
    done = ask("PUT", body=example, **{"If-Match": tag})
    assert done.status_code == 200
    assert done.headers["ETag"] == ask("GET").headers["ETag"] != tag
    refused = ask("PUT", body=example, **{"If-Match": tag})
    assert refused.status_code == 412 and refused.get_json()["thing"] == "If-Match"
    assert ask("PUT", body=example, **{"If-Match": done.headers["ETag"]}).status_code == 200


def test_a_group_of_another_kind_is_refused(ask, apply, example):
    apply(example)
    example["groups"]["disks"]["resource"] = "net"
    answer = ask("PUT", body=example)
    assert (answer.status_code, answer.get_json()["thing"]) == (409, "groups.disks.group")


def test_an_export_fits_the_host_that_it_is_from_when_domains_are_gone(
    apply, state, services, example
):
    apply(example)
    exported = state()
    del services.catalogue.host.uuids["web1"]
    assert not apply(exported, "?prune=true")["changed"]
    assert state() == exported


def test_what_is_declared_for_a_domain_to_come_waits_for_it(ask, apply, state, services, example):
    services.catalogue.host.uuids = {"media": "u-1"}
    answer = ask("PUT", body=example)
    assert answer.status_code == 404 and "--absent" in answer.get_json()["detail"]
    assert apply(example, "?absent=true&dry_run=true")["changed"] and state()["domains"] == {}
    done = apply(example, "?absent=true")
    assert ("web1", "definition") in [(one["domain"], one["holds_from"]) for one in done["later"]]
    services.catalogue.host.uuids["web1"] = "u-2"
    services.catalogue.put_ceiling("web1", None, "net-rx")
    assert list(state()["domains"]["web1"]["ceiling"]) == ["blk-write"]
    with services.store.transaction() as unit:
        assert unit.uuid_of("web1") == "u-2"


def test_a_page_that_cannot_be_removed_fails_no_change_that_is_made(
    apply, state, services, monkeypatch
):
    apply({"groups": {"disks": {"resource": "blk", "bytes_per_second": "9MB/s"}}})

    def remove(name):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(services.groups.pages, "remove", remove)
        assert apply({"groups": {}}, "?prune=true")["changed"]
    assert state()["groups"] == {}


def test_a_page_has_its_rate_again_when_the_change_fails(ask, apply, services, monkeypatch):
    def groups(rate):
        one = {"resource": "blk", "bytes_per_second": rate}
        return {"groups": {"disks": one, "more": {**one, "resource": "net"}}}

    apply(groups("9MB/s"))
    ensure, rates = services.groups.pages.ensure, {}

    def fails_for_the_second(name, limit):
        if name == "more" and limit.rate != 9_000_000:
            raise OSError(28, "No space left on device")
        ensure(name, limit)
        rates[name] = limit.rate

    monkeypatch.setattr(services.groups.pages, "ensure", fails_for_the_second)
    assert ask("PUT", body=groups("8MB/s")).status_code == 500
    assert rates == {"disks": 9_000_000, "more": 9_000_000}
    one = {"resource": "net", "bytes_per_second": 8e6}
    assert ask("PUT", "/v1/groups/more", one).status_code == 500
    assert rates["more"] == 9_000_000


def test_a_libvirt_that_is_away_is_waited_for_once(ask, services):
    asked = []

    def away(name):
        asked.append(name)
        raise Unavailable("libvirt", "qemu:///system", "does not answer within 4 s", "try again")

    services.catalogue.host.guest = away
    names = {f"web{i}": {} for i in range(20)}
    assert ask("PUT", body={"domains": names}).status_code == 503
    assert len(asked) == 1


def test_settings_of_cards_are_declared_applied_and_pruned(services, state, apply):
    mac = "52:54:00:00:00:01"
    apply({"domains": {"web1": {"cards": {mac: {"dscp": "both"}}}}})
    assert state()["domains"]["web1"]["cards"] == {mac: {"dscp": "both"}}
    apply({"domains": {"web1": {"cards": {mac: {"dscp": "auto"}}}}})
    assert "cards" not in state()["domains"].get("web1", {})
