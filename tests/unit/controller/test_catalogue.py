# SPDX-License-Identifier: GPL-2.0-or-later
"""The catalogue when libvirt or an agent does not have what it had: the real database."""

import json
import threading
from contextvars import copy_context

import pytest
from sqlalchemy import event

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.agent_messages import Table
from sluice_controller.domain.agent_protocol import Preview
from sluice_controller.domain.errors import BadValue, Conflict, NotFound, Unavailable
from sluice_controller.domain.guests import Guest
from sluice_controller.domain.model import MAX_ASSIGNMENTS, Assignment
from sluice_controller.domain.uplinks import Link, ports
from sluice_controller.entry.api.app import create_app
from sluice_controller.entry.config import DEFAULTS, Config
from sluice_controller.entry.wiring import Services
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.catalogue import Catalogue

RULE = {"class": "batch", "domain": "web1", "match": {"exe": "/usr/bin/cat"}}
PROCESS = {"pid": 812, "start_time_ticks": 99, "comm": "cat", "exe": "/usr/bin/cat"}


class Host:
    def __init__(self):
        self.uuids = {"web1": "u-1"}

    def guest(self, name):
        if name not in self.uuids:
            raise NotFound("domain", name, "does not exist", "see 'virsh list --all'")
        return Guest(name, self.uuids[name], "running", 1)

    def has(self, uuid):
        return uuid in self.uuids.values()

    def guests(self):
        """No poll has been yet."""
        return []


class Agents:
    """One whose tables arrive, and that may not have answered yet, or not for a while."""

    def __init__(self):
        self.boot_id = "b-1"
        self.refusals = {}
        self.previews = {}
        self.tried = []

    def status(self, domain):
        return {"connected": self.boot_id is not None, "boot_id": self.boot_id, "error": None}

    def processes(self, domain):
        table = Table(1, False, [PROCESS])
        return {"at": 3.0, "age_seconds": 2.0, "truncated": False, "processes": table.rows,
                "table": table}  # fmt: skip

    def refresh(self, domains):
        pass

    def refused(self):
        return self.refusals

    def preview(self, domains, match):
        """Of the domains that have an answer: the others' agents are not connected."""
        self.tried.append((list(domains), dict(match)))
        return {d: self.previews[d] for d in domains if d in self.previews}

    def max_tag(self, domain):
        return 15


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield store
    store.close()


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def agents():
    return Agents()


class Uplinks:
    """A host whose one way out is eno1."""

    fault = None

    def ports(self, name):
        if self.fault is not None:
            raise self.fault
        return ports([Link(2, "eno1", queue="mq")], name)


@pytest.fixture
def catalogue(store, host, agents):
    found = Catalogue(
        store, host, agents, AutoLimits(), lambda: 5.0, lambda domain: None, Uplinks()
    )
    found.put_class("batch", {})
    found.put_grant("web1", "batch", {})
    return found


def holders(store):
    with store.transaction() as unit:
        return [grant.domain for grant in unit.grants()]


def test_a_class_is_taken_from_a_domain_that_is_gone(catalogue, host, store):
    del host.uuids["web1"]
    (holder,) = holders(store)
    catalogue.revoke(holder, "batch")
    catalogue.delete_class("batch")


def test_a_class_is_taken_from_a_domain_whose_name_another_has(catalogue, host, store):
    host.uuids["web1"] = "u-2"
    catalogue.put_grant("web1", "batch", {})
    for holder in holders(store):
        catalogue.revoke(holder, "batch")
    catalogue.delete_class("batch")


def test_a_limit_of_a_domain_that_was_defined_anew_leaves_the_others_as_they_were(catalogue, host):
    limit = {"bytes_per_second": 5e6}
    catalogue.set_resource("limits", "web1", "batch", "blk-read", limit)
    host.uuids["web1"] = "u-2"
    catalogue.set_resource("limits", "web1", "batch", "net-tx", limit)
    classes = catalogue.of_domains(["web1"])["web1"]["classes"]
    grants = {grant["class"]: grant["limits"] for grant in classes}
    assert set(grants["batch"]) == {"blk-read", "net-tx"}
    said = next(entry for entry in catalogue.audit(9) if entry["action"] == "policy kept by name")
    assert (said["actor"], said["thing"]) == ("sluiced", "web1")


def test_a_domain_that_never_was_has_no_class_to_take(catalogue):
    with pytest.raises(NotFound):
        catalogue.revoke("web2", "batch")


def test_what_many_domains_have_is_read_in_one_unit_of_work(catalogue, host, store):
    host.uuids["web2"] = "u-2"
    catalogue.put_grant("web2", "default", {"limits": {"blk-read": {"bytes_per_second": 5e6}}})
    catalogue.put_ceiling("web2", {"net-tx": {"bytes_per_second": 9e6}})
    units = []
    event.listen(store.engine, "begin", units.append)
    found = catalogue.of_domains(["web1", "web2", "new"])
    assert len(units) == 1
    assert {name: [c["class"] for c in one["classes"]] for name, one in found.items()} == {
        "web1": ["default", "batch"],
        "web2": ["default"],
        "new": ["default"],
    }
    for name, one in found.items():
        assert one == catalogue.of_domains([name])[name]
    assert found["web2"]["ceiling"]["net-tx"]["bytes_per_second"] == 9e6


def test_no_more_is_assigned_than_an_agent_takes(catalogue, store):
    with store.transaction() as unit:
        for pid in range(1000, 1000 + MAX_ASSIGNMENTS):
            unit.put_assignment(Assignment("web1", pid, 5, "batch", 0.0, "b-1"))
    with pytest.raises(Conflict, match=str(MAX_ASSIGNMENTS)):
        catalogue.assign("web1", 812, {"class": "batch"})
    catalogue.unassign("web1", 1000)
    catalogue.assign("web1", 812, {"class": "batch"})
    catalogue.assign("web1", 812, {"class": "batch"})


def test_nothing_is_assigned_while_the_guest_s_boot_is_not_known(catalogue, agents):
    """The assignment would be taken for one of another boot, and dropped without a word."""
    agents.boot_id = None
    with pytest.raises(Unavailable):
        catalogue.assign("web1", 812, {"class": "batch"})
    agents.boot_id = "b-1"
    assert catalogue.assign("web1", 812, {"class": "batch"})["pid"] == 812


def test_rules_are_listed_in_the_order_in_which_they_are_tried(catalogue):
    """A domain's own go before those for every domain, whichever is older."""
    wide, _ = catalogue.add_rule({"class": "batch", "match": {"exe": "/usr/bin/cat"}})
    own, _ = catalogue.add_rule({"class": "batch", "domain": "web1", "match": {"user": "www"}})
    for domain in ("web1", None):
        assert [rule["id"] for rule in catalogue.rules(domain)] == [own["id"], wide["id"]]


def test_a_preview_names_the_processes_that_the_agent_found(catalogue, agents):
    # One is younger than the table.
    agents.previews["web1"] = Preview({}, pids=[812, 900])
    found = catalogue.preview_rule(RULE)
    assert found["processes"] == [
        {"domain": "web1", "pid": 812, "comm": "cat", "exe": "/usr/bin/cat"},
        {"domain": "web1", "pid": 900, "comm": "", "exe": ""},
    ]
    assert found["refused"] == []
    assert agents.tried == [(["web1"], {"exe": "/usr/bin/cat"})]


PATTERN = {"class": "batch", "domain": None, "match": {"cmdline": "("}}
REFUSED = Preview({}, refused=("match.cmdline", "give a regular expression"))


def test_a_rule_that_no_connected_agent_takes_is_refused_where_it_is_set(catalogue, agents, host):
    host.uuids |= {"web2": "u-2", "web3": "u-3"}
    for domain in ("web2", "web3"):
        catalogue.put_grant(domain, "batch", {})
    agents.previews |= {"web1": REFUSED, "web2": REFUSED}
    for ask in (catalogue.add_rule, catalogue.preview_rule):
        with pytest.raises(BadValue) as refused:
            ask(PATTERN)
        error = refused.value
        assert (error.thing, error.value) == ("match.cmdline", "(")
        assert "is refused by the agent of web1 and 1 more" in error.problem
        assert error.remedy == "give a regular expression"
    assert catalogue.rules(None) == []


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Preview({}, pids=[]), []),
        (Preview({}, untold="its agent is too old"), ["its agent is too old"]),
    ],
)
def test_a_rule_that_some_agent_may_take_is_added_and_says_where_not(
    catalogue, agents, host, other, why
):
    host.uuids["web2"] = "u-2"
    catalogue.put_grant("web2", "batch", {})
    agents.previews |= {"web1": REFUSED, "web2": other}
    rule, is_new = catalogue.add_rule(PATTERN)
    refusal = {"domain": "web1", "why": "match.cmdline: give a regular expression"}
    assert is_new
    assert rule["refused"] == [refusal, *({"domain": "web2", "why": one} for one in why)]
    # What is audited is what was decided.
    assert "refused" not in catalogue.audit(1)[0]["after"]


def test_where_no_agent_is_connected_any_expression_is_added(catalogue):
    assert catalogue.add_rule(PATTERN)[0]["refused"] == []


def test_rules_are_listed_with_who_does_not_follow_them(catalogue, agents):
    first, _ = catalogue.add_rule(RULE)
    second, _ = catalogue.add_rule({**RULE, "domain": None})
    agents.refusals = {"web1": {f"rule-{second['id']}": "no room", "rule-999": "?"}}
    said = {rule["id"]: rule["refused"] for rule in catalogue.rules(None)}
    assert said == {first["id"]: [], second["id"]: [{"domain": "web1", "why": "no room"}]}
    # So it is for one who adds it again.
    assert catalogue.add_rule({**RULE, "domain": None})[0]["refused"] == said[second["id"]]


# libvirt that does not answer


class HangingHost(Host):
    """Answers nobody until it is `let_go`, once it `hangs`."""

    def __init__(self):
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()

    def guest(self, name):
        self.asked.set()
        self.let_go.wait()
        return super().guest(name)

    def hangs(self):
        self.asked.clear()
        self.let_go.clear()


STREAM = {"class": "film", "domain": "web1", "nominal_bytes_per_second": 1e6}
QUESTIONS = {
    "put grant": lambda s: s.catalogue.put_grant("web1", "batch", {}),
    "set limit": lambda s: s.catalogue.set_resource("limits", "web1", "batch", "blk-read", None),
    "revoke": lambda s: s.catalogue.revoke("web1", "batch"),
    "put ceiling": lambda s: s.catalogue.put_ceiling("web1", {}),
    "rules": lambda s: s.catalogue.rules("web1"),
    "add rule": lambda s: s.catalogue.add_rule(RULE),
    "preview rule": lambda s: s.catalogue.preview_rule(RULE),
    "processes": lambda s: s.catalogue.processes("web1"),
    "assignments": lambda s: s.catalogue.assignments("web1"),
    "assign": lambda s: s.catalogue.assign("web1", 812, {"class": "batch"}),
    "unassign": lambda s: s.catalogue.unassign("web1", 812),
    "put stream": lambda s: s.streams.put("film", STREAM),
    "put member": lambda s: s.groups.put_member("disks", "web1", {}),
    "live": lambda s: s.live("web1"),
    "history": lambda s: s.history("web1", 0.0, 1.0),
}


@pytest.fixture
def services(tmp_path):
    """What sluiced runs, but for its threads, with a libvirt of ours."""
    given = dict.fromkeys(("run_dir", "state_dir", "etc_dir"), tmp_path)
    found = Services(Config(**{**DEFAULTS, **given, "libvirt_uri": "test:///default"}))
    found.catalogue.host, found.catalogue.agents = HangingHost(), Agents()
    found.catalogue.put_class("batch", {})
    found.catalogue.put_class("film", {"is_stream": True})
    found.catalogue.put_grant("web1", "batch", {})
    found.catalogue.put_grant("web1", "film", {})
    found.catalogue.assign("web1", 812, {"class": "batch"})
    found.groups.put("disks", {"resource": "blk-read", "bytes_per_second": 1e6})
    yield found
    found.catalogue.host.let_go.set()
    found.stop()


def test_questions_to_qemu_have_a_connection_of_their_own(services):
    """libvirtd answers a few requests of each at a time. Here it is libvirt's test driver."""
    shapers, metadata = services.reconciler.shapers, services.reconciler.takeover.metadata
    assert shapers.host is metadata.host is not services.host
    assert shapers.host.open() is not services.host.open()


@pytest.mark.parametrize("question", QUESTIONS)
def test_who_waits_for_libvirt_keeps_nobody_from_the_store(services, question):
    host, answers = services.catalogue.host, []
    asks = threading.Thread(target=lambda: answers.append(QUESTIONS[question](services)))
    over = threading.Event()

    def uses_the_store():
        with services.store.transaction() as unit:
            unit.put_value("other", {"its": "own"})
        over.set()

    uses = threading.Thread(target=uses_the_store)
    host.hangs()
    asks.start()
    assert host.asked.wait(60)
    uses.start()
    uses.join(20.0)
    waited_for_nobody = over.is_set() and not answers
    host.let_go.set()
    for thread in (asks, uses):
        thread.join()
    assert waited_for_nobody
    # And it was done, or answered, all the same.
    assert len(answers) == 1


@pytest.mark.parametrize("question", ["live", "history", "processes"])
def test_what_a_page_asks_for_again_and_again_waits_for_no_libvirt(services, question):
    """A page that is open would else take one thread of the API after the other."""
    host, answers = services.catalogue.host, []
    host.guests = lambda: [Guest("web1", "u-1", "running", 1)]
    host.hangs()
    asks = threading.Thread(target=lambda: answers.append(QUESTIONS[question](services)))
    asks.start()
    asks.join(20.0)
    answered = len(answers)
    host.let_go.set()
    asks.join()
    assert answered == 1


@pytest.mark.parametrize("question", ["live", "history", "processes"])
def test_a_domain_that_never_was_has_nothing_to_show(services, question):
    services.catalogue.host.uuids.clear()
    services.catalogue.host.uuids["web2"] = "u-2"
    with pytest.raises(NotFound):
        QUESTIONS[question](services)


def test_nobody_waits_for_ever_for_others_who_ask_libvirt(services):
    catalogue, refusals = services.catalogue, []
    catalogue.asking_seconds = 0.1
    catalogue.host.hangs()
    first = threading.Thread(target=lambda: catalogue.put_ceiling("web1", {}))
    first.start()
    assert catalogue.host.asked.wait(60)

    def second():
        try:
            catalogue.put_ceiling("web1", {})
        except Unavailable as error:
            refusals.append(error.problem)

    asks = threading.Thread(target=second, daemon=True)
    asks.start()
    asks.join(20.0)
    refused = list(refusals)
    catalogue.host.let_go.set()
    first.join()
    assert len(refused) == 1 and "others have waited for libvirt" in refused[0]


def test_a_change_that_another_keeps_waiting_does_not_blame_libvirt(services):
    catalogue, refusals = services.catalogue, []
    catalogue.asking_seconds = 0.1

    def second():
        try:
            with catalogue.changing(None):
                pass
        except Unavailable as error:
            refusals.append(error.detail)

    with catalogue.changing(None):
        asks = threading.Thread(target=second, daemon=True)
        asks.start()
        asks.join(20.0)
    (refused,) = refusals
    assert "another change" in refused and "libvirt" not in refused and "null" not in refused


def test_a_cards_settings_are_declared_and_taken_back(services):
    mac = "52:54:00:00:00:01"
    catalogue = services.catalogue
    assert catalogue.put_card("web1", mac, {"dscp": "both"}) == {mac: {"dscp": "both"}}
    assert catalogue.of_domains(["web1"])["web1"]["cards"] == {mac: {"dscp": "both"}}
    assert catalogue.put_card("web1", mac, {"dscp": "auto"}) == {}
    for wrong_mac, body in ((mac.upper() + "x", {}), (mac, {"dscp": "inbound"}), (mac, {"x": 1})):
        with pytest.raises(BadValue):
            catalogue.put_card("web1", wrong_mac, body)
    assert catalogue.of_domains(["web1"])["web1"]["cards"] == {}


def test_a_ceiling_is_set_only_if_the_answer_can_say_so(services):
    services.domains.host = Away()
    client = create_app(services, "secret").test_client()
    body = {"blk-read": {"bytes_per_second": 5e6}}
    headers = {"Authorization": "Bearer secret"}
    # The asker is noted in the context: not in that of the other tests.
    answer = copy_context().run(client.put, "/v1/domains/web1/ceiling", json=body, headers=headers)
    assert answer.status_code == 503, answer.get_json()
    assert services.catalogue.of_domains(["web1"])["web1"]["ceiling"] == {}


class Away:
    def guest(self, name):
        raise Unavailable("libvirt", "qemu:///system", "cannot be reached", "start it")


@pytest.mark.parametrize("domain", [None, "web1"])
def test_a_rule_that_is_there_already_is_not_added_again(catalogue, store, domain):
    body = {"domain": domain, "class": "batch", "match": {"exe": "/usr/bin/cat", "user": "www"}}
    first, is_new = catalogue.add_rule(body)
    written = len(catalogue.audit(100))
    assert is_new
    # In another order of its conditions, and with one that is not given.
    again = {**body, "match": {"user": "www", "unit": None, "exe": "/usr/bin/cat"}}
    assert catalogue.add_rule(body) == catalogue.add_rule(again) == (first, False)
    assert (len(catalogue.rules(None)), len(catalogue.audit(100))) == (1, written)
    for change in ({"match": {"exe": "/usr/bin/cat"}}, {"domain": None if domain else "web1"}):
        assert catalogue.add_rule({**body, **change})[1]


def test_a_rule_that_is_there_is_no_rule_too_many(catalogue, monkeypatch):
    body = {"class": "batch", "match": {"exe": "/usr/bin/cat"}}
    first, _ = catalogue.add_rule(body)
    monkeypatch.setattr("sluice_controller.services.catalogue.MAX_RULES", 1)
    assert catalogue.add_rule(body) == (first, False)


def test_two_previews_are_tried_at_a_time_and_one_more_is_told(catalogue, agents):
    inside, let_go = threading.Semaphore(0), threading.Event()

    def refresh(domains):
        inside.release()
        assert let_go.wait(60)

    agents.refresh = refresh
    body = {"class": "batch", "domain": "web1", "match": {"exe": "/usr/bin/cat"}}
    trying = [threading.Thread(target=catalogue.preview_rule, args=(body,)) for _ in range(2)]
    for thread in trying:
        thread.start()
        assert inside.acquire(timeout=60)
    with pytest.raises(Conflict, match="2 others are being tried: try again"):
        catalogue.preview_rule(body)
    let_go.set()
    for thread in trying:
        thread.join()
    assert catalogue.preview_rule(body)["processes"] == []


def test_processes_are_handed_on_as_they_came(catalogue):
    said = {"at": 3.0, "age_seconds": 2.0, "truncated": False, "processes": [PROCESS]}
    assert json.loads(catalogue.processes("web1")) == said


def test_a_rule_that_is_posted_again_is_answered_with_the_one_that_is_there(services):
    client = create_app(services, "secret").test_client()

    def post():
        headers = {"Authorization": "Bearer secret"}
        # The asker is noted in the context: not in that of the other tests.
        return copy_context().run(client.post, "/v1/rules", json=RULE, headers=headers)

    first, again = post(), post()
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json() == again.get_json()
    (rule,) = services.catalogue.rules(None)
    assert first.get_json() == {**rule, "later": first.get_json()["later"]}


def test_an_uplink_that_cannot_be_watched_is_refused(catalogue):
    with pytest.raises(BadValue, match="eno7.*there is no interface eno7; there are eno1"):
        catalogue.put_settings({"uplink": "eno7"})
    assert catalogue.settings()["uplink"] is None
    assert catalogue.put_settings({"uplink": "eno1"})["uplink"] == "eno1"
    assert catalogue.put_settings({"history_seconds": 60})["uplink"] == "eno1"


def test_an_uplink_that_the_kernel_does_not_tell_of_now_is_not_set(catalogue):
    catalogue.uplinks.fault = OSError("(105, 'No buffer space available')")
    with pytest.raises(Unavailable, match="eno1.*No buffer space available.*try again"):
        catalogue.put_settings({"uplink": "eno1"})
    assert catalogue.settings()["uplink"] is None
