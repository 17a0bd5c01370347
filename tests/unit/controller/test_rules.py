# SPDX-License-Identifier: GPL-2.0-or-later
import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.linear_expressions import LinearExpressions
from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.model import Assignment, Grant, Rule
from sluice_controller.domain.rules import agent_rules, matches, parse_match

EXPRESSIONS = LinearExpressions()
CAT = {
    "pid": 812,
    "exe": "/usr/bin/cat",
    "cmdline": "cat /srv/big1",
    "user": "www-data",
    "unit": "readers.service",
    "cgroup": "/system.slice/readers.service",
}


@pytest.mark.parametrize(
    ("match", "thing"),
    [
        ({}, "match"),
        ({"exe": None}, "match"),
        (None, "match"),
        ({"pid": 1}, "match.pid"),
        ({"exe": "cat"}, "match.exe"),
        ({"cgroup": "system.slice"}, "match.cgroup"),
        ({"cmdline": "("}, "match.cmdline"),
        ({"cmdline": "a" * 1025}, "match.cmdline"),
        ({"cmdline": "(?=x)y"}, "match.cmdline"),
        ({"cmdline": r"(a)\1"}, "match.cmdline"),
        ({"user": True}, "match.user"),
        ({"unit": ""}, "match.unit"),
        ({"unit": "nginx"}, "match.unit"),
        ({"unit": "a/b.service"}, "match.unit"),
        ({"exe": "/a\0b"}, "match.exe"),
        ({"exe": "/caf\udce9"}, "match.exe"),
        ({"exe": "/" + 4000 * "é"}, "match.exe"),
    ],
)
def test_bad_matches_name_the_field(match, thing):
    with pytest.raises(BadValue) as refused:
        parse_match(match)
    assert refused.value.thing == thing


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        (r"film\.mkv\Z", r"\Z"),
        (r"a\0b", r"\0"),
        (r"[\07]", r"\0"),
        (r"\N{BULLET}", r"\N"),
        (r"\é", r"\é"),
        ("--range={x}", "{"),
        ("a{,3}", "{"),
        ("{", "{"),
        ("(?#why)x", "(?#"),
        ("(?ia)x", "(?ia"),
        ("[a[b]", "["),
        (r"[\1]", r"\1"),
        ("[a&&b]", "&&"),
        ("[+--]", "--"),
        ("[a~~b]", "~~"),
        (r"[\b]", r"\b"),
        (r"\<word", r"\<"),
        (r"a\ud800", r"\ud800"),
    ],
)
def test_an_expression_that_only_python_knows_is_refused(expression, named):
    """The agent would refuse all rules of its guest because of this one."""
    with pytest.raises(BadValue) as refused:
        parse_match({"cmdline": expression})
    assert f"'{named}'" in refused.value.problem


@pytest.mark.parametrize(
    "expression",
    [
        r"a\{x\}", "[{]x", r"\\Z", "(?i)x{2,3}", "x{2}y{3,}", r"[\[a]", "[]a]", "[^]]", r"\#\&\-\~",
        r"\x41\u00e9\t", "(?i:a)(?P<n>b)", r"\[x\]", "é{2}", r"[\-\-a]", "a--b&&c", r"\bx\B",
        r"\\ud800", r"[\w.-]+@[^\s/]+\D",
    ],
)  # fmt: skip
def test_expressions_that_both_know(expression):
    assert parse_match({"cmdline": expression}) == {"cmdline": expression}
    EXPRESSIONS.check("match.cmdline", expression)


@pytest.mark.parametrize("expression", [r"a\++", "[*+]x", r"c\\+", r"\d+ (?:x|y)", "[]+*]+"])
def test_expressions_that_only_look_like_backtracking(expression):
    assert parse_match({"cmdline": expression}) == {"cmdline": expression}


def test_a_numeric_user_is_text_for_the_agent():
    assert parse_match({"user": 33}) == {"user": "33"}


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({"exe": "/usr/bin/cat"}, True),
        ({"exe": "/bin/cat"}, False),
        ({"cmdline": r"big\d+$"}, True),
        ({"cmdline": "^big"}, False),
        ({"user": "www-data", "unit": "readers.service"}, True),
        ({"user": "www-data", "unit": "other.service"}, False),
        ({"cgroup": "/system.slice"}, True),
        ({"cgroup": "/system.slice/"}, True),
        ({"cgroup": "/system.sl"}, False),
    ],
)
def test_matching(match, expected):
    assert matches(match, CAT, EXPRESSIONS.is_found) is expected


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        (r"big\d$", "cat /srv/big1", True),
        # The end is the end, as to the agent.
        (r"big1$", "cat /srv/big1\n", False),
        (r"^\w+$", "Führer٣", True),
        (r"^[\w]+$", "Führer٣", True),
        (r"^\W+$", "é", False),
        (r"^\d\D$", "٣é", True),
        (r"^[\d]$", "٣", True),
        (r"^a\sb$", "a\u3000b", True),
        (r"^[\s]$", "\u0085", True),
        (r"^\S$", "\u2028", False),
        (r"^\u00e9\U0001f600[\u00e8-\u00ea]$", "é😀é", True),
        ("(?i)FILM", "vlc film.mkv", True),
        # Half a pair of a guest's text.
        ("vlc", "vlc \udce9", True),
    ],
)
def test_what_is_found_in_a_command_line(expression, text, expected):
    EXPRESSIONS.check("match.cmdline", expression)
    match = parse_match({"cmdline": expression})
    assert matches(match, {"cmdline": text}, EXPRESSIONS.is_found) is expected


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|a)*$", "(?:a|aa)+$", r"(\w+\s?)+$"])
def test_no_expression_takes_years(expression):
    """Of a rule that somebody makes, or by a command line that a guest makes up for it."""
    match = parse_match({"cmdline": expression})
    EXPRESSIONS.check("match.cmdline", expression)
    done = threading.Event()

    def search():
        matches(match, {"cmdline": 4000 * "a" + "!"}, EXPRESSIONS.is_found)
        done.set()

    threading.Thread(target=search, daemon=True).start()
    assert done.wait(60)


def test_others_go_on_while_a_large_expression_is_searched():
    text = "".join(random.Random(1).choices("xy", k=4096))
    expression = "x.{450}z"
    EXPRESSIONS.check("match.cmdline", expression)
    over = threading.Event()

    def search():
        for _ in range(5):
            EXPRESSIONS.is_found(expression, text)
        over.set()

    threading.Thread(target=search, daemon=True).start()
    turns = 0
    while not over.is_set():
        time.sleep(0.001)
        turns += 1
    assert turns > 20


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (r"\w{30}", "too large"),
        (r"\d{300}", "too large"),
        (r"[\W]{30}", "too large"),
        ("(?:x{1000}){1000}", "linear time"),
        ("(?x)a b", "linear time"),
        (60 * "(?:x" + 60 * ")*", "deeper than 50"),
        (60 * "(" + "x" + 60 * ")", "deeper than 50"),
    ],
)
def test_what_the_agent_would_find_too_large_is_refused(expression, said):
    with pytest.raises(BadValue, match=said) as refused:
        parse_match({"cmdline": expression})
        EXPRESSIONS.check("match.cmdline", expression)
    assert refused.value.thing == "match.cmdline"


def test_what_the_agent_is_told():
    grants = [Grant("media", "batch", 1), Grant("media", "movie", 2), Grant("media", "default", 0)]
    rules = [
        Rule(1, None, "batch", {"exe": "/bin/cat"}, 0.0),
        Rule(2, "media", "movie", {"unit": "vlc.service"}, 0.0),
        Rule(3, "web", "batch", {"exe": "/bin/dd"}, 0.0),
        Rule(4, None, "ungranted", {"exe": "/bin/dd"}, 0.0),
    ]
    told = agent_rules("media", grants, rules, [Assignment("media", 812, 99, "batch", 0.0)])
    assert told["classes"] == [{"name": "batch", "tag": 1}, {"name": "movie", "tag": 2}]
    assert [rule["id"] for rule in told["rules"]] == ["assignment-812", "rule-2", "rule-1"]
    assert told["rules"][0]["match"] == {"pid": 812, "start_time_ticks": 99}


@given(
    st.dictionaries(
        st.sampled_from(["exe", "cmdline", "user", "unit", "cgroup", "pid"]),
        st.one_of(st.text(max_size=40), st.integers(), st.none()),
    )
)
def test_what_is_accepted_can_be_matched(raw):
    try:
        match = parse_match(raw)
    except BadValue:
        return
    try:
        EXPRESSIONS.check("match.cmdline", match.get("cmdline", "x"))
    except BadValue:
        return
    assert matches(match, CAT, EXPRESSIONS.is_found) in (True, False)
