# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.model import Assignment, Grant, Rule
from sluice_controller.domain.rules import agent_rules, matches, parse_match

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
        r"\x41\u00e9\t", "(?i:a)(?P<n>b)", r"\[x\]", "é{2}",
    ],
)  # fmt: skip
def test_expressions_that_both_know(expression):
    assert parse_match({"cmdline": expression}) == {"cmdline": expression}


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
    assert matches(match, CAT) is expected


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
    assert matches(match, CAT) in (True, False)
