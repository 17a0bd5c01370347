# SPDX-License-Identifier: GPL-2.0-or-later
"""The pages as HTML, with names that people may choose."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.controller import Answer
from sluice_web.store import Store
from unit.web.document import DOCUMENT
from unit.web.test_web_access import HASHER, PASSWORD, signed_in

# Names that are allowed, and are also the page's own words.
WORDS = ["auto", "ceiling", "dialog", "floors", "form", "main", "title", "toasts", "uplink"]


def granted(tag, name):
    return {
        "class": name,
        "tag": tag,
        "colour_index": tag,
        "is_stream": True,
        "priority": 5,
        "weight": 100,
        "unmanaged": False,
        "limits": {},
        "scheduling": {},
        "queues": {},
    }


def stream(name):
    return {
        "name": name,
        "domain": "media",
        "class": "movie",
        "nominal_bytes_per_second": 875e3,
        "nominal": {
            "bytes_per_second": 875e3,
            "source": "declared",
            "sentence": "875 kB/s, declared",
        },
        "verdict": "perfect",
        "since": 1.0,
        "reason": "reads come back in 3 ms",
        "source": "host",
        "processor_wait_ms_per_second": 262.0,
        "processor_pressure": 1.31,
        "last_report": None,
    }


def told(name):
    return {
        "class": "movie",
        "name": name,
        "source": "program",
        "at": 1.0,
        "verdict": "poor",
        "reason": "3 late and 1 lost of 100 frames in 5 s",
        "stream": None,
    }


def group(name):
    return {
        "name": name,
        "resource": "blk",
        "unit": "bytes",
        "rate_per_second": 2e8,
        "burst": 10**7,
        "domains": [{"domain": "media", "weight": 100}],
        "members": [],
    }


MEDIA = {
    "name": "media",
    "state": "running",
    "attached": True,
    "active": True,
    "needs_restart": False,
    "agent": {"connected": True},
    "devices": [
        {"kind": "disk", "alias": "ua-vda", "target": "vda", "shaped": True},
        {
            "kind": "net",
            "alias": "net0",
            "target": None,
            "shaped": False,
            "unshaped_because": "was added after attach: <b>",
        },
    ],
    "shaped_count": 1,
    "shaped_sentence": "1 of 2 disks and cards shaped; net0: was added after attach",
    "channel": {"sentence": "channel without a port map in force: <b>"},
    "classes": [granted(tag, name) for tag, name in enumerate(["default", *WORDS])],
    "ceiling": {},
    "cards": {},
}
ANSWERS = {
    "/v1/domains": [MEDIA],
    "/v1/domains/media": MEDIA,
    "/v1/domains/media/streams": [told(name) for name in WORDS],
    "/v1/classes": [],
    "/v1/streams": [stream(name) for name in WORDS],
    "/v1/groups": [group(name) for name in WORDS],
    "/v1/auto": {
        "enabled": False,
        "dry_run": False,
        "method": "gate",
        "state": "off",
        "limits": [],
        "devices": [],
        "sentences": [],
    },
    "/v1/auto/log": [],
    "/v1/settings": {"uplink": None},
    "/v1/status": {
        "uplinks": ["eth0"],
        "host": {"name": "h1"},
        "libvirt": {"connected": True},
        "sample_hz": 10,
        "version": "1",
    },
    "/v1/openapi.json": DOCUMENT,
    "/v1/live": {"at": 1.0, "domains": {}, "uplink": None},
}


class Host:
    """Stands for the controller's client on a host with one VM."""

    answers = ANSWERS

    def get(self, path, query=None):
        return self.call("GET", path).json()

    def call(self, method, path, *, query=None, content=b"", **_more):
        return Answer(200, "application/json", json.dumps(self.answers[path]).encode())


class Page(HTMLParser):
    """What refers to what on a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.used = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        for name in ("for", "aria-labelledby", "aria-describedby"):
            self.used.update((found.get(name) or "").split())


def client_of(tmp_path, host):
    """An operator's, on that host."""
    store = Store(tmp_path, HASHER)
    store.add_user("olga", "operator", PASSWORD, now=1.0, actor="test")
    return signed_in(create_app(Config(state_dir=tmp_path), store, host), "olga")


@pytest.fixture
def client(tmp_path):
    return client_of(tmp_path, Host())


@pytest.mark.parametrize("path", ["/", "/streams", "/groups", "/vm/media"])
def test_no_name_takes_the_id_of_a_part_of_the_page(client, path):
    page = Page(client.get(path).text)
    assert len(page.ids) == len(set(page.ids))
    # The dialog's title is made when it opens.
    assert page.used <= {*page.ids, "dialog-title"}


def test_a_stream_of_the_overview_leads_to_its_place_on_the_streams_page(client):
    overview, streams = client.get("/").text, Page(client.get("/streams").text)
    for name in WORDS:
        assert f'href="/streams#stream:{name}"' in overview
        assert f"stream:{name}" in streams.ids


def test_a_weight_keeps_the_focus_when_its_part_of_the_page_is_replaced(client):
    # The focus goes to the field with the id of the field that had it (refresh.js).
    page = Page(client.get("/groups").text)
    assert {f"weight/{name}/media" for name in WORDS} <= set(page.ids)


def test_the_overview_says_how_a_stream_plays_and_what_protects_it(client):
    text = client.get("/").text
    assert text.count("reads come back in 3 ms") == len(WORDS)
    assert text.count("Nothing: auto-shaping is off and no other class is limited") == len(WORDS)


def test_every_disk_and_card_says_whether_it_is_shaped_and_why_not(client):
    text = " ".join(re.sub("<[^>]*>", "", client.get("/vm/media").text).split())
    assert "✓ disk vda shaped" in text
    assert "✗ network card net0 not shaped: was added after attach: &lt;b&gt;" in text
    assert "channel without a port map in force: &lt;b&gt;" in text
    assert "1 of 2 disks and cards shaped" in client.get("/").text


def test_each_limit_of_a_class_has_a_place_for_its_burst(client):
    page = client.get("/vm/media").text
    assert page.count('data-testid="burst"') == page.count('data-testid="limit-input"') == 40


def words(text):
    return " ".join(re.sub("<[^>]*>", " ", text).split())


def held(domain, name, resource, rate):
    return {"domain": domain, "class": name, "resource": resource, "bytes_per_second": rate}


def decision(number):
    return {
        "at": float(number),
        "sentence": f"Gate on sd{number}: movie waits {number} of 300 ms; others may go on",
        "stream": "movie",
        "reason": f"gate {number}",
        "action": None,
        "dry_run": number == 1,
    }


# As sluiced words them (its domain/auto_words.py).
SAID = [
    "Gate of sda (media) leaves 16.0 ms of work of others in flight",
    "movie waits 301 of the 300 ms that it can bear on sda, for something else than the others",
    "Gate of sdb open: no stream reads it",
    "old has no gate: its page cannot be read",
    "build leaves processors to streams",
    "db's share of the processors cannot be changed: it <b>",
]


@pytest.fixture
def busy(tmp_path):
    """Of a host where a gate and a rate hold something."""
    host = Host()
    auto = {
        **ANSWERS["/v1/auto"],
        "enabled": True,
        "state": "settled",
        "limits": [held("old", "http", "net-tx", 16.4e6)],
        "devices": [{"name": "sda", "held": [held("web", "batch", "blk-read", 14.2e6)]}],
        "sentences": SAID,
    }
    log = [decision(number) for number in range(20, 0, -1)]
    host.answers = {**ANSWERS, "/v1/auto": auto, "/v1/auto/log": log}
    return client_of(tmp_path, host)


def test_the_streams_page_says_what_gates_rates_and_processors_do(busy):
    text = busy.get("/streams").text
    said = re.findall("<li>(.*?)</li>", text.partition('id="auto-said"')[2])
    assert [html.unescape(one) for one in said[: len(SAID)]] == SAID
    assert not any("<b>" in one for one in said)
    shown = words(text)
    assert "http on old Network out 16.4 MB/s rate" in shown
    assert "batch on web Disk read 14.2 MB/s gate of sda" in shown
    assert "waits 262 ms of each second for processors, too long" in shown
    assert shown.count("875 kB/s, declared") == len(WORDS)
    assert "Auto-shaping holds http on old" in words(busy.get("/").text)


def test_of_the_log_the_newest_lines_are_shown_and_the_earlier_ones_are_folded(busy):
    text = busy.get("/streams").text
    newest, _, earlier = text.partition("12 earlier")
    assert "Gate on sd20: movie waits 20 of 300 ms" in newest and "sd12:" not in newest
    assert "Gate on sd12:" in earlier and earlier.count(">dry run</span>") == 1
    # Every decision is a whole sentence within its line.
    assert text.count("others may go on") == 20


def test_without_anything_held_the_page_says_so(client):
    text = client.get("/streams").text
    assert re.search('id="auto-limits"[^>]* hidden>', text)
    assert '<p class="muted" id="auto-none">No class is held back.</p>' in text
