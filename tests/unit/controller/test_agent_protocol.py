# SPDX-License-Identifier: GPL-2.0-or-later
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.agent_messages import (
    MAX_LINE_BYTES,
    Breach,
    LineSplitter,
    parse_table,
)
from sluice_controller.domain.agent_protocol import (
    AHEAD_S,
    BAN_S,
    BREACHES_ALLOWED,
    BYTES_PER_MINUTE,
    FRESH_S,
    LOGS_PER_MINUTE,
    LONGEST_PAUSE_S,
    MOST_PREVIEWS,
    PROCESSOR_SHARE,
    SILENCE_S,
    STRANGERS_ALLOWED,
    STREAMS_PER_MINUTE,
    TABLE_ANSWER_S,
    TABLES_PER_MINUTE,
    Breaches,
    Pace,
    Session,
)

HELLO = {
    "protocol": 2,
    "agent_version": "0.1.0",
    "kernel": "6.12",
    "hostname": "media",
    "boot_id": "b",
    "max_tag": 15,
}
CAT = {
    "pid": 812,
    "ppid": 1,
    "start_time_ticks": 99,
    "comm": "cat",
    "exe": "/usr/bin/cat",
    "cmdline": "cat /srv/big",
    "user": "root",
    "unit": "",
    "cgroup": "/",
    "class": "batch",
    "rule": "rule-1",
    "inherited": False,
    "threads": 1,
    "cpu_ratio": 0.5,
    "rss_bytes": 4096,
    "read_bps": 1.0,
    "write_bps": 0,
}
RULES = {"classes": [{"name": "batch", "tag": 1}], "rules": []}


def line(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def table(revision=0, **changes):
    params = {
        "time_ns": 1,
        "revision": revision,
        "interval_ms": 1000,
        "truncated": False,
        "processes": [{**CAT, **changes}],
    }
    return line(method="processes", params=params)


def sent(session, now):
    return [json.loads(message) for message in session.due(now)]


def greeted(now=0.0):
    session = Session(now, Breaches(), 100)
    (hello,) = sent(session, now)
    assert hello["method"] == "hello"
    assert session.on_line(line(id=hello["id"], result=HELLO), now)
    return session


def test_the_host_speaks_first_and_then_sends_rules():
    session = greeted()
    assert session.hello["max_tag"] == 15
    session.want_rules(RULES)
    (call,) = sent(session, 0.1)
    assert call["method"] == "set_rules"
    assert call["params"]["revision"] == 101
    assert call["params"]["classes"] == RULES["classes"]
    session.on_line(line(id=call["id"], result={"revision": 101, "matched": 3}), 0.2)
    assert session.matched == 3
    assert sent(session, 0.3) == []


def test_an_agent_that_knows_no_newer_protocol_is_greeted_with_the_oldest():
    session = Session(0.0, Breaches(), 100)
    (newer,) = sent(session, 0.0)
    assert newer["params"] == {"protocol": 2}
    error = {"code": -32602, "message": "protocol", "data": {"field": "protocol", "value": 2}}
    assert session.on_line(line(id=newer["id"], error=error), 0.1)
    assert session.refusal is None and session.breach is None
    (older,) = sent(session, 0.1)
    assert (older["method"], older["params"]) == ("hello", {"protocol": 1})
    session.on_line(line(id=older["id"], result={**HELLO, "protocol": 1}), 0.2)
    assert session.hello["protocol"] == 1
    session.want_rules(RULES)
    (call,) = sent(session, 0.3)
    session.on_line(line(id=call["id"], result={"revision": 101, "matched": 0}), 0.4)
    assert session.refused == {}
    # It cannot be asked, and is not.
    assert "too old" in session.ask_preview({"cmdline": "("}).untold
    assert sent(session, 0.5) == []


def test_an_agent_that_refuses_every_greeting_says_so():
    session = Session(0.0, Breaches(), 100)
    for _ in range(2):
        (hello,) = sent(session, 0.0)
        session.on_line(line(id=hello["id"], error={"code": 1, "message": "go away"}), 0.0)
    assert sent(session, 0.0) == []
    assert session.refusal == "the agent refused hello: go away"


def test_an_answer_of_another_protocol_than_was_asked_is_a_breach():
    session = Session(0.0, Breaches(), 100)
    sent(session, 0.0)
    # Not of the first line, which may be the rest of another.
    session.on_line(b"", 0.0)
    (hello,) = [one for one in session._pending]
    session.on_line(line(id=hello, result={**HELLO, "protocol": 1}), 0.0)
    assert session.hello is None and "not of protocol 2" in session.breach


def test_an_agent_that_was_exchanged_for_a_newer_one_gets_its_rules_again():
    session = greeted()
    session.want_rules(RULES)
    (call,) = sent(session, 0.1)
    session.on_line(line(id=call["id"], result={"revision": 101, "matched": 0}), 0.2)
    session.on_line(line(method="log", params={"level": "info", "text": "began"}), 0.3)
    (newer,) = sent(session, 4.0)
    session.on_line(line(id=newer["id"], error={"code": -32602, "message": "protocol"}), 4.0)
    (older,) = sent(session, 4.0)
    session.on_line(line(id=older["id"], result={**HELLO, "protocol": 1}), 4.0)
    assert [one["method"] for one in sent(session, 4.0)] == ["set_rules"]


def test_refused_rules_are_kept_until_rules_are_answered_again():
    session = greeted()
    refused = [{"id": "rule-7", "why": "match.cmdline: give\na regular expression"}]
    for revision, raw in ((101, refused), (102, [])):
        session.want_rules({**RULES, "n": revision})
        (call,) = sent(session, 0.1)
        result = {"revision": revision, "matched": 1, "refused": raw}
        session.on_line(line(id=call["id"], result=result), 0.2)
        why = {"rule-7": "match.cmdline: give a regular expression"}
        assert session.refused == (why if raw else {})
    assert session.breach is None


@pytest.mark.parametrize(
    "refused",
    [
        {},
        "rule-1",
        [7],
        [{"id": "rule-1"}],
        [{"id": 1, "why": "no"}],
        [{"id": "rule-1", "why": "no", "more": 1}],
        [{"id": "r" * 129, "why": "no"}],
        [{"id": "rule-1", "why": "n" * 501}],
        [{"id": f"r{n}", "why": ""} for n in range(1025)],
    ],
)
def test_refusals_of_a_hostile_guest_are_breaches(refused):
    session = greeted()
    session.want_rules(RULES)
    (call,) = sent(session, 0.1)
    result = {"revision": 101, "matched": 1, "refused": refused}
    session.on_line(line(id=call["id"], result=result), 0.2)
    assert "refused" in session.breach or "text" in session.breach
    assert session.refused == {}


def previewed(**answer):
    session = greeted()
    preview = session.ask_preview({"cmdline": "x"})
    (call,) = sent(session, 0.1)
    assert (call["method"], call["params"]) == ("preview_rule", {"match": {"cmdline": "x"}})
    session.on_line(line(id=call["id"], **answer), 0.2)
    return session, preview


def test_a_preview_names_processes_or_what_is_wrong():
    assert previewed(result={"pids": [7, 812]})[1].pids == [7, 812]
    data = {"field": "match.cmdline", "value": "x", "remedy": "give a regular expression"}
    session, preview = previewed(error={"code": -32602, "message": "no", "data": data})
    assert preview.refused == ("match.cmdline", "give a regular expression")
    assert session.refusal is None
    # A field that is none of a rule's is not shown as one.
    data["field"] = "settings.emulator"
    _, preview = previewed(error={"code": -32602, "message": "no", "data": data})
    assert preview.refused[0] == "match"
    assert previewed(error={"code": 1, "message": "no"})[1].refused == ("match", "no")


@pytest.mark.parametrize("pids", [None, 7, ["7"], [0], [True], list(range(1, 4098))])
def test_a_preview_of_a_hostile_guest_is_a_breach(pids):
    session, preview = previewed(result={"pids": pids})
    assert session.breach is not None
    assert not preview.is_over


def test_an_agent_that_answers_no_preview_is_not_asked_for_ever_more():
    session = greeted()
    asked = [session.ask_preview({"exe": "/x"}) for _ in range(4)]
    sent(session, 0.1)
    asked += [session.ask_preview({"exe": "/x"}) for _ in range(40)]
    sent(session, 0.2)
    assert sum(one.untold is None for one in asked) == MOST_PREVIEWS


def test_the_same_rules_are_not_sent_again():
    session = greeted()
    session.want_rules(RULES)
    sent(session, 0.1)
    session.want_rules(dict(RULES))
    assert sent(session, 0.2) == []


def ruled(session, now=0.1):
    """Has the agent follow RULES."""
    session.want_rules(RULES)
    (call,) = sent(session, now)
    assert session.on_line(line(id=call["id"], result=answer(call)), now)


def answer(call):
    return (
        HELLO
        if call["method"] == "hello"
        else {"revision": call["params"]["revision"], "matched": 0}
    )


def methods(calls):
    return [call["method"] for call in calls]


def test_a_silent_agent_is_greeted_again_and_keeps_its_rules():
    session = greeted()
    ruled(session)
    (hello,) = sent(session, SILENCE_S + 0.2)
    assert hello["method"] == "hello"
    session.on_line(line(id=hello["id"], result=HELLO), SILENCE_S + 0.3)
    assert sent(session, SILENCE_S + 0.4) == []


def test_greetings_that_are_not_answered_come_ever_more_rarely():
    session = Session(0.0, Breaches(), 100)
    times = [now for now in range(0, 80) if sent(session, float(now))]
    assert times == [0, 3, 9, 21, 36, 51, 66]


def test_rules_that_an_answer_passed_by_are_sent_again():
    session = greeted()
    session.want_rules(RULES)
    assert methods(sent(session, 0.1)) == ["set_rules"]
    (hello,) = sent(session, SILENCE_S + 0.2)
    session.on_line(line(id=hello["id"], result=HELLO), SILENCE_S + 0.3)
    assert methods(sent(session, SILENCE_S + 0.4)) == ["set_rules"]


@pytest.mark.parametrize("change", [{"boot_id": "c"}, {"agent_version": "0.2.0"}])
def test_another_boot_and_another_agent_get_the_rules(change):
    session = greeted()
    ruled(session)
    (hello,) = sent(session, SILENCE_S + 0.2)
    session.on_line(line(id=hello["id"], result={**HELLO, **change}), SILENCE_S + 0.3)
    assert methods(sent(session, SILENCE_S + 0.4)) == ["set_rules"]


def test_an_agent_that_lost_its_rules_gets_them_again():
    session = greeted()
    ruled(session)
    session.on_line(table(revision=101), 4.0)
    assert sent(session, 4.1) == []
    session.on_line(table(revision=0), 5.0)
    assert methods(sent(session, 5.1)) == ["hello", "set_rules"]


def test_an_agent_that_has_not_answered_yet_is_asked_whether_it_got_the_rules():
    session = greeted()
    session.want_rules(RULES)
    sent(session, 0.1)
    for i in range(1, 8):
        session.on_line(table(revision=0), float(i))
    (hello,) = sent(session, 8.0)
    assert hello["method"] == "hello"
    session.on_line(table(revision=0), 9.0)
    assert sent(session, 9.0) == []
    session.on_line(line(id=hello["id"], result=HELLO), 10.0)
    assert methods(sent(session, 10.1)) == ["set_rules"]


class SlowAgent:
    """Answers in order; rules cost it `rules_s`, a table every `table_s`, and nothing else."""

    def __init__(self, rules_s, table_s):
        self.rules_s, self.table_s = rules_s, table_s
        self.queue, self.revision = [], 0
        self.busy_until = self.table_at = 0.0
        self.asked = []

    def step(self, session, now):
        for call in sent(session, now):
            self.asked.append(call["method"])
            self.queue.append(call)
        while self.queue and self.busy_until <= now:
            call = self.queue.pop(0)
            if call["method"] == "set_rules":
                self.revision = call["params"]["revision"]
                self.busy_until = now + self.rules_s
            session.on_line(line(id=call["id"], result=answer(call)), now)
        if self.busy_until <= now >= self.table_at:
            self.table_at = now + self.table_s
            session.on_line(table(revision=self.revision), now)


@given(st.floats(0.0, 60.0), st.floats(0.1, 60.0), st.floats(0.0, 60.0))
def test_a_slow_guest_is_not_made_slower_by_what_it_is_asked(rules_s, table_s, starts_at):
    session, agent = Session(0.0, Breaches(), 100), SlowAgent(rules_s, table_s)
    session.want_rules(RULES)
    agent.busy_until = starts_at
    for step in range(1200):
        agent.step(session, step / 2)
    assert agent.asked.count("set_rules") == 1
    assert agent.revision == 101
    # Who says something less often than every three seconds is asked whether it lives.
    assert agent.asked.count("hello") <= 10 + 600 / SILENCE_S


def test_answers_to_another_host_are_no_breach_until_this_one_was_answered():
    session = Session(0.0, Breaches(), 100, first_id=1000)
    (hello,) = sent(session, 0.0)
    for stranger in range(1, STRANGERS_ALLOWED + 1):
        assert session.on_line(line(id=stranger, result=HELLO), 0.0)
    assert session.breach is None and session.hello is None
    session.on_line(line(id=hello["id"], result=HELLO), 0.0)
    assert session.hello is not None
    session.on_line(line(id=7, result=HELLO), 0.0)
    assert "nothing that was asked" in session.breach


def test_answers_to_nobody_become_breaches():
    session = Session(0.0, Breaches(), 100, first_id=1000)
    sent(session, 0.0)
    assert not all(
        session.on_line(line(id=7, result=HELLO), 0.0)
        for _ in range(STRANGERS_ALLOWED + BREACHES_ALLOWED)
    )


def test_a_restarted_agent_is_not_blamed_for_the_earlier_one():
    session = greeted()
    session.want_rules(RULES)
    sent(session, 0.1)
    session.on_line(b"nonsense", 1.0)
    assert session.breach
    session.on_line(table(revision=0), 4.0)
    hello = next(call for call in sent(session, 4.1) if call.get("method") == "hello")
    session.on_line(line(id=hello["id"], result=HELLO), 4.2)
    assert session.breach is None


def test_an_answer_to_a_greeting_for_silence_leaves_what_went_wrong_said():
    """Between two tables, which come every 10 s, an agent is greeted three times."""
    session = greeted()
    session.on_line(line(method="processes", params={"processes": [], "colour": 1}), 1.0)
    assert "colour" in session.breach
    hello = next(call for call in sent(session, 6.0) if call.get("method") == "hello")
    session.on_line(line(id=hello["id"], result=HELLO), 6.1)
    assert "colour" in session.breach


def test_tables_that_were_delayed_and_come_together_are_no_breach():
    session = greeted()
    for _ in range(60):
        assert session.on_line(table(), 60.0)
    assert session.breach is None


def test_a_flood_of_tables_is_a_breach():
    session = greeted()
    for _ in range(TABLES_PER_MINUTE):
        assert session.on_line(table(), 1.0)
    assert session.breach is None
    session.on_line(table(), 1.0)
    assert "tables in a minute" in session.breach


def test_more_bytes_than_an_agent_has_to_say_are_refused_for_a_minute():
    breaches = Breaches()
    assert not breaches.add_bytes(BYTES_PER_MINUTE, 1000.0)
    assert not breaches.add_bytes(BYTES_PER_MINUTE, 1060.0)
    assert breaches.add_bytes(1, 1061.0)
    assert breaches.banned_until == 1061.0 + BAN_S


@pytest.mark.parametrize("boot_id", ["b" * 65, "\x01", "a\nb"])
def test_a_boot_id_that_could_not_be_read_again_is_a_breach(boot_id):
    """With an assignment it goes where the domain goes."""
    session = Session(0.0, Breaches(), 100)
    for message in (b"", line(id=1, result={**HELLO, "boot_id": boot_id})):
        sent(session, 0.0)
        assert session.on_line(message, 0.0)
    assert session.hello is None
    assert "boot_id" in session.breach


def test_rules_that_no_agent_would_read_are_not_sent_and_that_is_shown():
    session = greeted()
    match = {"exe": "/" + "x" * 4000}
    rules = [{"id": f"rule-{i}", "class": "batch", "match": match} for i in range(300)]
    session.want_rules({**RULES, "rules": rules})
    assert sent(session, 0.1) == []
    assert str(MAX_LINE_BYTES) in session.refusal
    session.want_rules(RULES)
    (call,) = sent(session, 0.2)
    session.on_line(line(id=call["id"], result={"revision": 102, "matched": 0}), 0.3)
    assert session.refusal is None


def test_a_refusal_is_shown_and_not_asked_for_again():
    session = greeted()
    session.want_rules(RULES)
    (call,) = sent(session, 0.1)
    error = {"code": -32602, "message": "bad", "data": {"field": "rules[0]", "remedy": "mend it"}}
    assert session.on_line(line(id=call["id"], error=error), 0.2)
    assert "mend it" in session.refusal
    session.on_line(table(revision=0), 5.0)
    assert sent(session, 5.1) == []
    (hello,) = sent(session, 9.0)
    session.on_line(line(id=hello["id"], result=HELLO), 9.1)
    assert sent(session, 9.2) == []
    assert "mend it" in session.refusal
    session.want_rules({**RULES, "rules": []} | {"classes": []})
    assert methods(sent(session, 9.3)) == ["set_rules"]


def test_a_table_is_kept():
    session = greeted()
    session.on_line(table(revision=5), 1.0)
    assert session.table.rows[0]["comm"] == "cat"
    assert session.table_at == 1.0


def test_a_table_is_asked_for_when_somebody_wants_one_that_is_fresh():
    session = greeted()
    assert sent(session, 1.0) == []
    assert session.ask_table(1.0)
    (call,) = sent(session, 1.0)
    assert call["method"] == "get_processes"
    # While it is on its way others wait with the first, and for as long.
    assert session.ask_table(1.0 + TABLE_ANSWER_S / 2)
    assert not session.ask_table(1.0 + TABLE_ANSWER_S)
    assert sent(session, 2.0) == []
    params = json.loads(table())["params"]
    assert session.on_line(line(id=call["id"], result=params), 2.2)
    assert (session.table_at, session.table.rows[0]["comm"]) == (2.2, "cat")
    assert not session.ask_table(2.2 + FRESH_S / 2)
    assert session.ask_table(2.2 + FRESH_S)


def test_a_table_that_never_comes_is_asked_for_again_in_the_end():
    session = greeted()
    session.ask_table(1.0)
    sent(session, 1.0)
    assert not session.ask_table(LONGEST_PAUSE_S)
    assert session.ask_table(1.0 + LONGEST_PAUSE_S)
    assert "get_processes" in methods(sent(session, 1.0 + LONGEST_PAUSE_S))


def test_a_guest_whose_agent_did_not_greet_is_asked_for_nothing():
    session = Session(0.0, Breaches(), 100)
    assert not session.ask_table(1.0)


def test_a_guest_gets_its_part_of_a_processor_and_no_more():
    pace, read_s = Pace(), 0.0
    now, cost_s = 0.0, 0.1
    while now < 600.0:
        if pace.may_read(now):
            pace.spend(cost_s, now)
            read_s += cost_s
        now += 0.25
    most = (600.0 + AHEAD_S) * PROCESSOR_SHARE + cost_s
    assert most - 1.0 < read_s <= most
    # Time that it did not use is not saved up.
    assert pace.may_read(now + 3600.0)
    pace.spend(2 * AHEAD_S * PROCESSOR_SHARE, now + 3600.0)
    assert not pace.may_read(now + 3600.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pid", 0),
        ("pid", "812"),
        ("pid", True),
        ("pid", 2**40),
        ("comm", "x" * 65),
        ("comm", 7),
        ("cpu_ratio", -1),
        ("cpu_ratio", "much"),
        ("read_bps", 1e30),
        ("read_bps", 10**400),
        ("start_time_ticks", 2**63),
        ("inherited", 1),
        ("class", "NOT A CLASS"),
        ("class", ["x" * 1000] * 500),
        ("rule", ["x"]),
        ("threads", None),
    ],
)
def test_a_bad_row_is_a_breach_and_keeps_the_old_table(field, value):
    session = greeted()
    session.on_line(table(), 1.0)
    before = session.table
    assert session.on_line(table(**{field: value}), 2.0)
    assert session.table is before
    assert field in session.breach or "class" in session.breach
    assert len(session.breach) < 300


def test_a_class_of_any_depth_is_a_breach():
    """Some depths can be read, and not be written: a refusal must not show the value."""
    for depth in range(1, 1200):
        session = greeted()
        nested = b"[" * depth + b"]" * depth
        assert session.on_line(table(**{"class": "X"}).replace(b'"X"', nested), 1.0)
        assert session.breach


@pytest.mark.parametrize("max_tag", [7.0, 8, True, None, "15", 10**400])
def test_a_tag_that_is_no_whole_number_is_a_breach(max_tag):
    session = Session(0.0, Breaches(), 100)
    (hello,) = sent(session, 0.0)
    session.on_line(line(id=hello["id"], result={**HELLO, "max_tag": 15}), 0.0)
    (again,) = sent(session, 10.0)
    session.on_line(line(id=again["id"], result={**HELLO, "max_tag": max_tag}), 10.0)
    assert "max_tag" in session.breach
    assert session.hello["max_tag"] == 15


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","method":"reboot"}',
        b'{"jsonrpc":"2.0","id":77,"result":{}}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","method":"processes","params":{"processes":{}}}',
        b'{"jsonrpc":"2.0","method":"log","params":{"level":"loud","text":"x"}}',
        b'{"jsonrpc":"2.0","method":"processes","params":NaN}',
        b"[" * 100_000,
        None,
    ],
)
def test_breaches_end_the_connection_for_a_minute(bad):
    session = greeted()
    for i in range(BREACHES_ALLOWED - 1):
        assert session.on_line(bad, 1.0 + i)
    assert not session.on_line(bad, 20.0)
    assert session.breaches.banned_until == 20.0 + BAN_S


def test_breaches_are_counted_over_connections_and_forgotten_after_a_minute():
    breaches = Breaches()
    for i in range(BREACHES_ALLOWED - 1):
        assert not breaches.add(float(i))
    assert not breaches.add(61.0 + BREACHES_ALLOWED)
    for _ in range(BREACHES_ALLOWED - 2):
        assert not breaches.add(72.0)
    assert breaches.add(72.0)


def test_the_rest_of_a_cut_line_is_no_breach():
    session = Session(0.0, Breaches(), 1)
    assert session.on_line(b'6,"result":{}}', 0.0)
    assert session.breach is None


def test_unreadable_lines_and_unknown_methods_are_answered():
    session = greeted()
    session.on_line(b"nonsense", 1.0)
    session.on_line(line(method="reboot", id=3), 1.0)
    answers = [(m["id"], m["error"]["code"]) for m in sent(session, 1.0) if "error" in m]
    assert answers == [(None, -32700), (3, -32601)]


def test_an_agent_that_logs_may_be_another_one():
    """Restarted with its state it goes on with tables, and its version is not among them."""
    session = greeted()
    session.want_rules(RULES)
    (call,) = sent(session, 0.1)
    session.on_line(line(id=call["id"], error={"code": -32602, "message": "bad"}), 0.2)
    session.on_line(line(method="log", params={"level": "info", "text": "took up rules"}), 4.0)
    (hello,) = sent(session, 4.1)
    new = {**HELLO, "agent_version": "0.2.0"}
    session.on_line(line(id=hello["id"], result=new), 4.2)
    assert methods(sent(session, 4.3)) == ["set_rules"]


def test_what_a_breach_quotes_of_the_guest_is_escaped():
    session = greeted()
    session.on_line(table(**{"class": "a\n\x1b[2J"}), 1.0)
    assert session.breach.isprintable()


def test_a_flood_of_logs_is_a_breach():
    session = greeted()
    for _ in range(LOGS_PER_MINUTE + 1):
        session.on_line(line(method="log", params={"level": "info", "text": "x"}), 1.0)
    assert "log" in session.breach


def test_a_flood_of_lines_it_could_not_read_is_a_breach():
    session = greeted()
    unread = line(id=None, error={"code": -32700, "message": "x" * 2000})
    assert not all(session.on_line(unread, 1.0) for _ in range(1000))
    assert "log" in session.breach


def test_an_agent_that_starts_late_may_answer_every_greeting():
    """They wait in the guest's port from its boot on; each is answered."""
    session = Session(0.0, Breaches(), 1)
    greetings = []
    for step in range(200):
        greetings += sent(session, step * LONGEST_PAUSE_S)
    assert len(greetings) == 200
    now = 200 * LONGEST_PAUSE_S
    for greeting in greetings:
        assert session.on_line(line(id=greeting["id"], result=HELLO), now)
    assert session.hello is not None
    assert session.breach is None


def test_a_late_answer_is_taken_once_for_each_request_given_up():
    session = Session(0.0, Breaches(), 1)
    first = sent(session, 0.0)[0]["id"]
    for step in range(1, 34):
        sent(session, step * LONGEST_PAUSE_S)
    now = 34 * LONGEST_PAUSE_S
    # Two were given up on; whoever answers more has made them up.
    assert session.on_line(line(id=first, result=HELLO), now)
    assert session.on_line(line(id=first, result=HELLO), now)
    assert session.breach is None
    assert session.on_line(line(id=first, result=HELLO), now)
    assert "nothing that was asked" in session.breach


def test_unanswered_calls_do_not_pile_up():
    session = Session(0.0, Breaches(), 1)
    for i in range(200):
        session.due(i * LONGEST_PAUSE_S)
    assert len(session._pending) <= 32


@given(st.lists(st.binary(max_size=60)), st.integers(1, 40))
def test_lines_do_not_depend_on_how_bytes_arrive(pieces, limit):
    stream = b"".join(pieces)
    together, apart = LineSplitter(limit), LineSplitter(limit)
    one = together.feed(stream)
    many = [found for piece in pieces for found in apart.feed(piece)]
    assert one == many
    expected = [part if len(part) <= limit else None for part in stream.split(b"\n")[:-1]]
    assert one == expected


def test_memory_is_bounded_without_a_newline():
    splitter = LineSplitter()
    for _ in range(40):
        assert splitter.feed(b"x" * (MAX_LINE_BYTES // 4)) == []
    assert len(splitter._buffer) <= MAX_LINE_BYTES
    assert splitter.feed(b"\nok\n") == [None, b"ok"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, st.sampled_from(["processes", "log", "hello", "x"]), json_values)
def test_no_message_crashes_a_session(params, method, request_id):
    session = greeted()
    message = {"jsonrpc": "2.0", "method": method, "params": params, "id": request_id}
    session.on_line(json.dumps(message).encode(), 1.0)
    answer = {"jsonrpc": "2.0", "id": 1, "result": params}
    session.due(50.0)
    session.on_line(json.dumps({**answer, "id": 2}).encode(), 51.0)
    session.on_line(json.dumps({"jsonrpc": "2.0", "id": 2, "error": params}).encode(), 52.0)


@given(json_values)
def test_no_table_row_crashes_the_parser(row):
    try:
        parse_table({"revision": 1, "truncated": False, "processes": [row]})
    except Breach:
        return


# Streams


def told_of(**changes):
    row = {"record": 3, "tag": 2, "round_trip_us": 180_000, "least_us": 20_000, **changes}
    return line(method="streams", params={"streams": [row]})


def test_who_wants_to_hear_of_streams_has_the_agent_asked_once():
    session = greeted()
    session.want_streams()
    (call,) = sent(session, 0.1)
    assert (call["method"], call["params"]) == ("watch_streams", {})
    session.on_line(line(id=call["id"], result={}), 0.2)
    session.want_streams()
    assert sent(session, 0.3) == []
    assert session.on_line(told_of(), 1.0)
    assert session.round_trips == {3: (1.0, 2, 180_000, 20_000)}


def test_an_agent_that_knows_nothing_of_streams_is_asked_no_more():
    session = greeted()
    session.want_streams()
    (call,) = sent(session, 0.1)
    error = {"code": -32601, "message": "unknown method watch_streams"}
    assert session.on_line(line(id=call["id"], error=error), 0.2)
    assert session.refusal is None and session.breach is None
    session.want_streams()
    assert sent(session, 0.3) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"record": 64},
        {"record": -1},
        {"tag": 16},
        {"tag": True},
        {"round_trip_us": 0},
        {"round_trip_us": 2**32},
        {"round_trip_us": 1.5},
        {"least_us": None},
        {"least_us": "1"},
        {"more": 1},
    ],
)
def test_a_stream_out_of_range_is_a_breach(changes):
    session = greeted()
    session.on_line(told_of(), 1.0)
    session.on_line(told_of(**changes), 2.0)
    assert session.breach is not None
    assert session.round_trips == {3: (1.0, 2, 180_000, 20_000)}


def test_more_streams_than_records_and_floods_are_breaches():
    session = greeted()
    row = {"record": 0, "tag": 2, "round_trip_us": 1, "least_us": 1}
    session.on_line(line(method="streams", params={"streams": [row] * 65}), 1.0)
    assert "at most 64" in session.breach
    session = greeted()
    for number in range(STREAMS_PER_MINUTE):
        assert session.on_line(told_of(), 1.0 + number / 1000)
    assert session.breach is None
    session.on_line(told_of(), 2.0)
    assert "messages of streams" in session.breach
