# SPDX-License-Identifier: GPL-2.0-or-later
"""The live hub's decisions; the tests are its clock and its controller."""

import json

from sluice_web.live import CONTROLLER, LiveHub, only_domain
from sluice_web.problems import Problem


class Controller:
    """Answers from a table and counts the questions."""

    def __init__(self):
        self.asked = []
        self.answers = {("streams", ""): [], ("auto", ""): {"enabled": False}, ("groups", ""): []}
        self.sample = 0
        self.down = False

    def __call__(self, topic):
        self.asked.append(topic)
        if self.down:
            raise Problem(503, "controller-unreachable", "Gone", detail="sluiced does not answer")
        if topic[0] == "live":
            self.sample += 1
            return {"at": self.sample, "domains": {"a": {"n": self.sample}, "b": {}}}
        if topic[0] == "domains":
            raise Problem(503, "libvirt", "Gone", detail="libvirt does not answer")
        if topic[0] == "processes":
            raise Problem(503, "agent", "No agent", detail="no agent")
        return self.answers[topic]


def hub_with(monkeypatch, controller):
    monkeypatch.setattr(LiveHub, "_run", lambda self: None)
    return LiveHub(controller)


def test_pages_share_one_question(monkeypatch):
    controller = Controller()
    hub = hub_with(monkeypatch, controller)
    first = hub.subscribe(frozenset({("live", "a")}))
    second = hub.subscribe(frozenset({("live", "b"), ("live", "")}))
    hub.poll(0)
    assert controller.asked == [("live", "")]
    news = dict(hub.news(first, 0))
    assert json.loads(news["live"])["domains"] == {"a": {"n": 1}}
    assert {name for name, _ in hub.news(second, 0)} == {"live", "controller"}


def test_what_did_not_change_is_not_sent_again(monkeypatch):
    hub = hub_with(monkeypatch, Controller())
    page = hub.subscribe(frozenset({("streams", "")}))
    hub.poll(0)
    assert {name for name, _ in hub.news(page, 0)} == {"streams", "controller"}
    hub.poll(2)
    assert hub.news(page, 0) == []


def test_a_page_gets_nothing_that_is_older_than_itself(monkeypatch):
    """The page was read later than an old answer; and it waits for no topic's turn."""
    controller = Controller()
    hub = hub_with(monkeypatch, controller)
    topics = frozenset({("streams", ""), ("processes", "a")})
    hub.subscribe(topics)
    hub.poll(0)
    controller.answers["streams", ""] = ["film"]
    second = hub.subscribe(topics)
    assert [name for name, _ in hub.news(second, 0)] == ["controller"]
    hub.poll(1)
    news = dict(hub.news(second, 0))
    assert json.loads(news["streams"]) == ["film"]
    assert set(news) == {"streams", "processes"}
    third = hub.subscribe(topics)
    hub.poll(3)
    assert json.loads(dict(hub.news(third, 0))["streams"]) == ["film"]


def test_slow_topics_are_asked_less_often(monkeypatch):
    controller = Controller()
    hub = hub_with(monkeypatch, controller)
    hub.subscribe(frozenset({("live", ""), ("auto", ""), ("processes", "a")}))
    for tick in range(8):
        hub.poll(tick)
    assert controller.asked.count(("live", "")) == 8
    assert controller.asked.count(("auto", "")) == 4
    assert controller.asked.count(("processes", "a")) == 2


def test_nobody_looking_asks_nothing(monkeypatch):
    controller = Controller()
    hub = hub_with(monkeypatch, controller)
    page = hub.subscribe(frozenset({("live", "")}))
    hub.unsubscribe(page)
    hub.poll(0)
    assert controller.asked == []


def test_a_lost_controller_is_told_and_mends(monkeypatch):
    controller = Controller()
    hub = hub_with(monkeypatch, controller)
    page = hub.subscribe(frozenset({("live", "")}))
    controller.down = True
    hub.poll(0)
    told = json.loads(dict(hub.news(page, 0))[CONTROLLER[0]])
    assert told["ok"] is False
    assert "sluiced does not answer" in told["problem"]["detail"]
    controller.down = False
    hub.poll(1)
    assert json.loads(dict(hub.news(page, 0))["controller"])["ok"] is True


def test_what_is_lost_stays_told_while_other_topics_are_asked(monkeypatch):
    hub = hub_with(monkeypatch, Controller())
    page = hub.subscribe(frozenset({("live", ""), ("domains", "")}))
    hub.poll(0)
    assert json.loads(dict(hub.news(page, 0))["controller"])["ok"] is False
    # The list of domains is not asked for here.
    hub.poll(1)
    assert set(dict(hub.news(page, 0))) == {"live"}


def test_what_was_lost_is_not_told_to_those_who_do_not_ask(monkeypatch):
    hub = hub_with(monkeypatch, Controller())
    gone = hub.subscribe(frozenset({("domains", "")}))
    page = hub.subscribe(frozenset({("live", "")}))
    hub.poll(0)
    hub.unsubscribe(gone)
    hub.poll(2)
    assert json.loads(dict(hub.news(page, 0))["controller"])["ok"] is True


def test_a_page_that_is_opened_again_is_not_shown_what_was(monkeypatch):
    controller = Controller()
    hub = hub_with(monkeypatch, controller)
    hub.subscribe(frozenset({("live", "")}))
    first = hub.subscribe(frozenset({("live", "a"), ("auto", "")}))
    hub.poll(0)
    hub.unsubscribe(first)
    for tick in range(1, 4):
        hub.poll(tick)
    again = hub.subscribe(frozenset({("live", "a"), ("auto", "")}))
    assert {name for name, _ in hub.news(again, 0)} == {"controller"}
    # It is asked for at once, whatever is due.
    hub.poll(5)
    assert {name for name, _ in hub.news(again, 0)} == {"live", "auto"}


def test_groups_that_stand_still_are_told_too(monkeypatch):
    # A page works out rates from two counts: that none has grown is news.
    hub = hub_with(monkeypatch, Controller())
    page = hub.subscribe(frozenset({("groups", "")}))
    hub.poll(0)
    assert {name for name, _ in hub.news(page, 0)} == {"groups", "controller"}
    hub.poll(2)
    assert [name for name, _ in hub.news(page, 0)] == ["groups"]


def test_a_guest_without_agent_is_not_a_lost_controller(monkeypatch):
    hub = hub_with(monkeypatch, Controller())
    page = hub.subscribe(frozenset({("processes", "a"), ("live", "a")}))
    hub.poll(0)
    news = dict(hub.news(page, 0))
    assert json.loads(news["controller"])["ok"] is True
    assert json.loads(news["processes"])["problem"]["detail"] == "no agent"


def test_an_unknown_domain_has_no_live_data():
    assert only_domain({"at": 1, "domains": {"a": 1}}, "b") == {"at": 1, "domains": {}}
