# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked before a class or a rule goes, as a page and as the dialog's part."""

import json
import re

import pytest

from sluice_web import questions
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.controller import Answer
from sluice_web.store import Store
from unit.web.document import DOCUMENT
from unit.web.test_web_access import HASHER, PASSWORD, signed_in
from unit.web.test_web_pages import Page

TAKE = "/vm/media/classes/video/take-away"
REMOVE = "/rules/4/remove"
SILENT = {
    "type": "/problems/unavailable",
    "title": "Unavailable",
    "detail": "agent of media: does not answer; look at the guest",
}


def rule(number, domain="media", name="video", exe="/usr/bin/vlc"):
    match = {"exe": exe}
    return {"id": number, "domain": domain, "class": name, "match": match, "created_at": 1.0}


def process(pid, name="video"):
    return {"pid": pid, "comm": "vlc", "class": name}


class Host:
    """Stands for the controller's client; what it answers may be changed."""

    def __init__(self):
        self.changes = []
        self.grant = {"class": "video", "tag": 1, "colour_index": 1, "priority": 5, "weight": 100}
        self.grant |= {"is_stream": True, "unmanaged": False}
        self.grant |= {"limits": {}, "scheduling": {}, "queues": {}}
        self.domain = {"name": "media", "state": "running", "attached": True, "active": True}
        self.domain |= {"agent": {"connected": True}, "classes": [self.grant], "ceiling": {}}
        self.answers = {
            "/v1/domains": [self.domain],
            "/v1/domains/media": self.domain,
            "/v1/domains/media/assignments": [],
            "/v1/domains/media/processes": {"processes": []},
            "/v1/domains/media/streams": [],
            "/v1/classes": [{**self.grant, "name": "video", "title": "<Video>"}],
            "/v1/rules": [],
            "/v1/streams": [],
            "/v1/rules/preview": {"processes": [], "refused": []},
            "/v1/openapi.json": DOCUMENT,
        }
        self.status = {}

    def get(self, path, query=None):
        return self.call("GET", path).json()

    def call(self, method, path, *, actor="web", query=None, content=b"", **_more):
        if method == "DELETE":
            self.changes.append((path, actor))
            answer = {"rules": [rule(1), rule(2)], "assignments": [{"pid": 7}]}
            return Answer(
                self.status.get(path, 200), "application/json", json.dumps(answer).encode()
            )
        answer = json.dumps(self.answers[path]).encode()
        return Answer(self.status.get(path, 200), "application/json", answer)

    def no_agent(self):
        path = "/v1/domains/media/processes"
        self.answers[path], self.status[path] = SILENT, 503
        self.domain["agent"] = {"connected": False, "error": "does not answer"}


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def app(tmp_path, host):
    store = Store(tmp_path, HASHER)
    for name, role in (("olga", "operator"), ("vera", "viewer")):
        store.add_user(name, role, PASSWORD, now=1.0, actor="test")
    return create_app(Config(state_dir=tmp_path), store, host)


@pytest.fixture
def client(app):
    return signed_in(app, "olga")


def part(client, path):
    """What the dialog takes: whether to ask, and the text that is shown."""
    answer = client.get(path, headers={"Accept": "application/json"})
    assert answer.status_code == 200
    shown = re.search(r'<section class="question".*?</section>', answer.text, re.S)[0]
    return 'data-in-use="yes"' in shown, " ".join(re.sub(r"<[^>]+>", " ", shown).split())


def test_nobody_is_asked_about_a_class_that_nothing_uses(client, host):
    asks, text = part(client, TAKE)
    assert not asks and text == "Take video from media? Nothing uses it now."
    # What others use is none of it.
    host.answers["/v1/rules"] = [rule(1, name="batch"), rule(2, domain="web1")]
    host.answers["/v1/domains/media/processes"] = {"processes": [process(7, "batch")]}
    assert not part(client, TAKE)[0]
    # Without a use, nobody needs to know who is in it.
    host.no_agent()
    assert not part(client, TAKE)[0]


def test_the_question_names_who_uses_the_class_and_what_will_happen(client, host):
    host.answers["/v1/rules"] = [rule(1), rule(2, exe="/usr/bin/mpv"), rule(3, domain=None)]
    host.answers["/v1/domains/media/processes"] = {"processes": [process(7), process(8)]}
    host.answers["/v1/domains/media/assignments"] = [{"pid": 8, "class": "video"}]
    host.grant |= {"limits": {"blk-read": {"bytes_per_second": 5e6}}, "dscp": [46]}
    asks, text = part(client, TAKE)
    assert asks
    assert "3 rules, 2 processes and 1 DSCP mark use the class video on media." in text
    for effect in (
        "2 rules will be gone: rule 1, exe /usr/bin/vlc; rule 2, exe /usr/bin/mpv.",
        "1 rule for every VM will not hold on media any more: rule 3, exe /usr/bin/vlc.",
        "2 processes will go back to the class default, unless another rule matches: vlc 7; vlc 8.",
        "1 process put into it by hand will have to be put into a class again: pid 8.",
        "1 DSCP mark will count for the class default: 46.",
        "1 setting will be gone: limit of disk read.",
    ):
        assert effect in text


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        ("/v1/rules", [rule(1)], "1 rule uses the class video on media."),
        ("/v1/rules", [rule(1, domain=None)], "1 rule uses the class video on media."),
        (
            "/v1/domains/media/processes",
            {"processes": [process(7)]},
            "1 process uses the class video on media.",
        ),
    ],
)
def test_one_user_is_enough_to_ask(client, host, path, answer, says):
    host.answers[path] = answer
    asks, text = part(client, TAKE)
    assert asks and says in text


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("limits", {"net-tx": {"bytes_per_second": 5e6}}, "limit of network out"),
        ("scheduling", {"blk-read": {"policy": "leaky-bucket"}}, "scheduling of disk read"),
        ("queues", {"net-rx": {"aqm": "codel"}}, "queue of network in"),
    ],
)
def test_settings_are_not_lost_unasked(client, host, kind, value, says):
    host.grant[kind] = value
    asks, text = part(client, TAKE)
    assert asks and "media has settings of its own for the class video." in text
    assert f"1 setting will be gone: {says}." in text


def test_what_cannot_be_known_is_said(client, host):
    host.no_agent()
    host.answers["/v1/rules"] = [rule(4)]
    asks, text = part(client, TAKE)
    assert asks and "Which processes are in it now is not known: no agent answers." in text
    asks, text = part(client, REMOVE)
    assert asks and "What it holds on media is not known: no agent answers there." in text


def test_many_are_counted_and_some_named():
    many = [process(pid) for pid in range(1, 9)]
    asked = questions.take_away("media", {"class": "video"}, [], [], many)
    assert asked.uses == "8 processes use the class video on media."
    assert asked.effects[0].endswith("vlc 4; vlc 5; and 3 more.")


def test_a_class_that_a_stream_needs_is_not_asked_about(client, host):
    host.answers["/v1/streams"] = [{"name": "movie", "domain": "media", "class": "video"}]
    answer = client.get(TAKE)
    assert answer.status_code == 409
    assert "forget the stream first" in answer.get_json(force=True)["detail"]


def test_what_is_gone_already_is_said(client, host):
    host.domain["classes"] = []
    assert client.get(TAKE).status_code == 404
    assert client.get(REMOVE).status_code == 404
    page = client.get(REMOVE, headers={"Accept": "text/html"})
    assert page.status_code == 404 and "no rule 4 any more" in page.text


def test_a_rule_that_matches_nothing_goes_unasked(client, host):
    host.answers["/v1/rules"] = [rule(4)]
    assert not part(client, REMOVE)[0]
    # Where its class is not, or no shaper is, an agent has nothing to say.
    host.no_agent()
    host.domain["active"] = False
    assert not part(client, REMOVE)[0]
    host.domain["active"], host.grant["class"] = True, "batch"
    assert not part(client, REMOVE)[0]


def test_the_question_about_a_rule_names_what_it_holds(client, host):
    host.answers["/v1/rules"] = [rule(4, domain=None)]
    matched = [{**process(pid), "domain": "media"} for pid in (7, 8)]
    host.answers["/v1/rules/preview"] = {"processes": matched, "refused": []}
    asks, text = part(client, REMOVE)
    assert asks and text.startswith("Remove rule 4? 2 processes match rule 4 now.")
    assert "class video: exe /usr/bin/vlc, on every VM." in text
    assert "vlc 7 on media; vlc 8 on media." in text


def test_a_rule_of_an_agent_that_does_not_answer_goes_when_somebody_agrees(client, host):
    host.answers["/v1/rules"] = [rule(4)]
    silent = [{"domain": "media", "why": "its agent has not answered within 5 s"}]
    host.answers["/v1/rules/preview"] = {"processes": [], "refused": silent}
    asks, text = part(client, REMOVE)
    assert asks and "What it holds is not known: it cannot be tried now." in text


def test_a_rule_that_an_agent_refuses_is_shown_with_the_reason(client, host):
    why = "match.cmdline: give a regular expression (<unclosed> group)"
    refused = [{"domain": "media", "why": why}]
    host.answers["/v1/rules"] = [rule(4) | {"refused": refused}, rule(5) | {"refused": []}]
    text = client.get("/classes").text
    assert text.count("rule-refused") == text.count("Not in force") == 1
    assert "Not in force in media: match.cmdline: give a regular expression (&lt;unclosed" in text


@pytest.mark.parametrize("status", [404, 409])
def test_a_rule_whose_vm_is_gone_can_still_be_removed(client, host, status):
    host.answers["/v1/rules"] = [rule(4, domain="gone")]
    host.answers["/v1/rules/preview"] = {"title": "No"}
    host.status["/v1/rules/preview"] = status
    assert not part(client, REMOVE)[0]


@pytest.mark.parametrize("status", [422, 503])
def test_a_rule_that_cannot_be_tried_is_removed_when_somebody_agrees(client, host, status):
    """libvirt is away, or an earlier sluiced took an expression that this one refuses."""
    host.answers["/v1/rules"] = [rule(4)]
    host.answers["/v1/rules/preview"] = {"title": "No"}
    host.status["/v1/rules/preview"] = status
    asks, text = part(client, REMOVE)
    assert asks and "What it holds is not known: it cannot be tried now." in text


def form_of(text):
    """Where the page's own form goes, and what it sends."""
    form = re.search(
        r'<form class="answer" method="post" action="([^"]+)">(.*?)</form>', text, re.S
    )
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[2]))
    return form[1], fields


def test_without_a_script_a_page_asks_and_its_form_does_it(client, host):
    del client.environ_base["HTTP_X_CSRF_TOKEN"]
    host.answers["/v1/rules"] = [rule(4)]
    page = client.get(f"{TAKE}?next=/classes")
    assert page.status_code == 200 and host.changes == []
    assert "1 rule uses the class video on media." in page.text
    ids = Page(page.text).ids
    assert len(ids) == len(set(ids))
    # What is safe has the focus.
    keep = re.search(r"<a [^>]*autofocus[^>]*>", page.text)[0]
    assert 'href="/classes"' in keep
    where, fields = form_of(page.text)
    assert client.post(where, data={**fields, "csrf_token": "x"}).status_code == 403
    assert host.changes == []
    done = client.post(where, data=fields)
    assert (done.status_code, done.headers["Location"]) == (303, "/classes")
    assert host.changes == [("/v1/domains/media/classes/video", "olga")]
    said = client.get("/classes").text
    assert "video is taken from media, with 2 rules and 1 assignment." in said


def test_without_a_script_a_rule_is_removed_by_its_page(client, host):
    host.answers["/v1/rules"] = [rule(4)]
    where, fields = form_of(client.get(REMOVE).text)
    assert client.post(where, data=fields).headers["Location"] == "/classes"
    assert host.changes == [("/v1/rules/4", "olga")]


def test_the_page_that_asks_leads_nowhere_else(client, host):
    page = client.get(f"{TAKE}?next=https://elsewhere.example/").text
    assert "elsewhere" not in page
    _, fields = form_of(page)
    done = client.post(TAKE, data={**fields, "next": "//elsewhere.example"})
    assert done.headers["Location"] == "/"


def test_what_the_controller_refuses_is_shown(client, host):
    host.status["/v1/domains/media/classes/video"] = 409
    answer = client.post(TAKE, headers={"Accept": "text/html"})
    assert answer.status_code == 409 and 'data-testid="problem"' in answer.text


def test_only_who_may_change_is_asked(app, host):
    viewer = signed_in(app, "vera")
    for path in (TAKE, REMOVE):
        assert viewer.get(path).status_code == viewer.post(path).status_code == 403
        assert viewer.get(path).status_code == 403
    stranger = app.test_client()
    assert stranger.get(TAKE).status_code == 302
    # A script's request is not led to a page that it would take for the answer.
    assert stranger.get(TAKE, headers={"Accept": "application/json"}).status_code == 401
    assert host.changes == []


def test_names_are_shown_as_text(client, host):
    host.answers["/v1/rules"] = [rule(4, exe="/bin/<script>x")]
    host.answers["/v1/domains/media/processes"] = {
        "processes": [{"pid": 7, "comm": "<b>x", "class": "video"}]
    }
    text = client.get(TAKE).text
    assert "<script>" not in text and "<b>" not in text and "&lt;b&gt;x 7" in text


@pytest.mark.parametrize("path", ["/classes", "/vm/media"])
def test_the_buttons_lead_to_the_page_that_asks(client, host, path):
    host.answers["/v1/rules"] = [rule(4)]
    text = client.get(path).text
    button = r'<button [^>]*type="submit"[^>]* data-action="(?:revoke|remove-rule)"'
    forms = re.findall(
        rf'<form class="ask" method="get" action="([^"]+)">(?:<input [^>]+>)?{button}', text
    )
    assert forms == ([TAKE, REMOVE] if path == "/classes" else [TAKE])
    for form in forms:
        assert client.get(form).status_code == 200
