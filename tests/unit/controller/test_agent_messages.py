# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of an agent: what an honest one says is taken, whatever costs more is not parsed."""

import json

import pytest

from sluice_controller.domain import agent_messages
from sluice_controller.domain.agent_messages import (
    MAX_BRACKETS,
    MAX_COMMAS,
    MAX_LINE_BYTES,
    MAX_ROWS,
    SHORTEST_ROW_BYTES,
    Breach,
    parse_hello,
    parse_table,
    read_line,
)

# As an agent writes it, and as short as it can be.
SHORTEST = {
    "pid": 2,
    "ppid": 0,
    "start_time_ticks": 0,
    "comm": "",
    "exe": "",
    "cmdline": "",
    "user": "",
    "unit": "",
    "cgroup": "",
    "class": "a",
    "rule": "",
    "inherited": True,
    "threads": 0,
    "cpu_ratio": 0.0,
    "rss_bytes": 0,
    "read_bps": 0,
    "write_bps": 0,
}
HEAD = {"time_ns": 1, "revision": 0, "interval_ms": 1000, "truncated": False}
NASTY = "\x1b[2J\r\n\x9b31m\x7f\u202e\ud800\u2028\tz"


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def table(rows, **more):
    params = {**HEAD, "processes": rows, **more}
    return compact({"jsonrpc": "2.0", "method": "processes", "params": params})


def test_an_honest_agent_s_largest_table_is_taken():
    assert len(compact(SHORTEST)) + 1 == SHORTEST_ROW_BYTES
    room = MAX_LINE_BYTES - len(table([]))
    line = table([SHORTEST] * (room // SHORTEST_ROW_BYTES))
    assert MAX_LINE_BYTES - SHORTEST_ROW_BYTES < len(line) <= MAX_LINE_BYTES
    assert len(read_line(line).table.rows) <= MAX_ROWS


def test_brackets_and_commas_of_a_command_line_are_nobody_s_fault():
    """Any process of a guest may have them; it must not cost its agent the connection."""
    row = {**SHORTEST, "cmdline": '[{,\\"' * 800}
    rows = [row] * (MAX_LINE_BYTES // (len(compact(row)) + 2))
    assert len(rows) * 800 > max(MAX_COMMAS, MAX_BRACKETS)
    assert len(read_line(table(rows)).table.rows) == len(rows)


def padded(unit):
    """A table of a mebibyte, all of it one unit again and again beside the processes."""
    line = table([], x="@")
    return line.replace(b'"@"', b"[" + b",".join([unit] * (1000000 // (len(unit) + 1))) + b"]")


@pytest.mark.parametrize(
    "line",
    [
        padded(b"[[]]"),
        padded(b"{}"),
        padded(b"0"),
        padded(b'""'),
        b"[" * MAX_LINE_BYTES,
        b'{"":' * (MAX_LINE_BYTES // 4),
        table([{}] * (MAX_BRACKETS + 1)),
    ],
    ids=["lists", "objects", "numbers", "texts", "deep", "deep objects", "rows"],
)
def test_what_costs_more_than_an_honest_table_is_refused_unparsed(line, monkeypatch):
    def parsed(*_arguments, **_options):
        raise AssertionError("it was parsed")

    monkeypatch.setattr(agent_messages.json, "loads", parsed)
    read = read_line(line)
    assert read.breach is not None and read.table is None


@pytest.mark.parametrize("unit", [b'\\"[', b'",[', b"[\\"], ids=["quotes", "pairs", "backslashes"])
def test_a_text_that_does_not_end_is_looked_at_once(unit):
    """Each of its quotes might begin one: a search from each would take hours."""
    assert read_line(b'"' + unit * (MAX_LINE_BYTES // 4)).breach is not None


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (table([], x=1), "process table with the unknown member 'x'"),
        (table([{**SHORTEST, "x": None}]), "process with the unknown member 'x'"),
        (compact({"jsonrpc": "2.0", "id": 1, "result": {}, "x": []}), "message with the unknown"),
        (table([SHORTEST] * (MAX_ROWS + 1)), f"{MAX_ROWS} fit a line"),
        (table([{**SHORTEST, "\x1b" * 500: 1}]), "unknown member '\\\\x1b"),
    ],
    ids=["table", "row", "message", "rows", "nasty"],
)
def test_what_the_specification_does_not_have_is_refused(line, named):
    said = str(read_line(line).breach)
    assert named.replace("\\\\", "\\") in said and said.isprintable() and len(said) < 400


def test_all_texts_of_a_table_are_printable_and_as_long_as_before():
    texts = {name: NASTY for name in ("comm", "exe", "cmdline", "user", "unit", "cgroup", "rule")}
    found = read_line(table([{**SHORTEST, **texts}])).table
    for name in texts:
        assert found.rows[0][name] == "\ufffd[2J  \ufffd31m\ufffd\ufffd\ufffd  z"
    assert json.loads(found.text) == found.rows


def test_what_an_agent_says_of_itself_is_printable():
    said = {"protocol": 2, "max_tag": 15, "boot_id": "b", "kernel": NASTY, "hostname": NASTY}
    hello = parse_hello({**said, "agent_version": NASTY}, 2)
    assert all(hello[name].isprintable() for name in ("kernel", "hostname", "agent_version"))


GREETING = {"protocol": 2, "max_tag": 15, "boot_id": "b"}


def test_an_agent_says_whether_its_channel_is_in_force():
    assert parse_hello(GREETING, 2)["channel"] is None, "an older agent"
    channel = {"version": 1, "port_map": False, "why": NASTY}
    said = parse_hello({**GREETING, "channel": channel}, 2)["channel"]
    assert (said["version"], said["port_map"]) == (1, False)
    assert said["why"].isprintable()


@pytest.mark.parametrize(
    "change", [{"version": -1}, {"version": True}, {"port_map": 1}, {"why": "x" * 501}, {"more": 1}]
)
def test_a_channel_that_the_protocol_does_not_have_is_a_breach(change):
    channel = {"version": 1, "port_map": True, "why": "", **change}
    with pytest.raises(Breach):
        parse_hello({**GREETING, "channel": channel}, 2)


@pytest.mark.parametrize("channel", [[], "on", 1])
def test_a_channel_that_is_no_object_is_a_breach(channel):
    with pytest.raises(Breach):
        parse_hello({**GREETING, "channel": channel}, 2)


def test_a_table_as_an_answer_is_read_like_one_by_itself():
    result = {**HEAD, "processes": [SHORTEST]}
    read = read_line(compact({"jsonrpc": "2.0", "id": 1, "result": result}))
    assert read.table == parse_table(result)
