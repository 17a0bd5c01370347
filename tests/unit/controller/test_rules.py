# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.model import Assignment, Grant, Rule
from sluice_controller.domain.rules import agent_rules, parse_match


@pytest.mark.parametrize(
    ("match", "thing"),
    [
        ({}, "match"),
        ({"exe": None}, "match"),
        (None, "match"),
        ({"pid": 1}, "match.pid"),
        ({"exe": "cat"}, "match.exe"),
        ({"cgroup": "system.slice"}, "match.cgroup"),
        ({"container": "web"}, "match.container"),
        ({"container": "4B0F2F1A6C1E"}, "match.container"),
        ({"pod": "web-0"}, "match.pod"),
        ({"cmdline": ""}, "match.cmdline"),
        ({"cmdline": "a" * 4097}, "match.cmdline"),
        ({"user": "a\nb"}, "match.user"),
        ({"user": -1.0}, "match.user"),
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


@pytest.mark.parametrize("expression", ["(", r"(a)\1", r"\p{Greek}+[a&&b]", "\n"])
def test_an_expression_is_for_the_agents_to_judge(expression):
    assert parse_match({"cmdline": expression}) == {"cmdline": expression}


def test_a_numeric_user_is_text_for_the_agent():
    assert parse_match({"user": 33}) == {"user": "33"}


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
        st.sampled_from(["exe", "cmdline", "user", "unit", "cgroup", "container", "pod", "pid"]),
        st.one_of(st.text(max_size=40), st.integers(), st.none()),
    )
)
def test_what_is_accepted_can_be_sent(raw):
    try:
        match = parse_match(raw)
    except BadValue:
        return
    assert match
    for condition in match.values():
        assert "\0" not in condition and len(condition.encode()) <= 4096
