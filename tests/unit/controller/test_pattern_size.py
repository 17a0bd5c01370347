# SPDX-License-Identifier: GPL-2.0-or-later
"""How large the agent's compiled expressions are, beside what the agent was seen to take."""

import pytest

from sluice_controller.domain.errors import BadValue, Conflict
from sluice_controller.domain.model import Rule
from sluice_controller.domain.pattern_size import (
    MOST_BYTES,
    charged_bytes,
    check_room,
    check_size,
    needed_bytes,
)
from sluice_controller.domain.rules import parse_match

# In KiB, found with `sluice-agent check-rules` and as many copies as it took.
SEEN = {
    "vlc": 16,
    "^/usr/bin/vlc .*movie$": 16,
    r"\d": 16,
    r"\D": 16,
    r"\w": 64,
    r"[^\w]": 64,
    r"\w+ \w+": 128,
    r"\w{4}": 256,
    r"\w{8}": 512,
    r"(?:\w+/)*x": 64,
    r"\d{10}": 64,
    r"\d{100}": 512,
    r"\s{200}": 256,
    "(?i)movie": 16,
    "(?i)[a-z]{20}": 16,
    "a{100}": 16,
    "a{1000}": 32,
    ".{10}": 16,
    ".{100}": 128,
    "(?s).{50}": 64,
    "[a-z]{100}": 16,
    "[^ ]{50}": 64,
    "[^é]{30}": 64,
    "(a|b|c|d){50}": 16,
    "(a?){100}": 32,
    "(?:x|\\d){20}": 128,
    "[一-鿿]{50}": 16,
    "(?i)σ{100}": 32,
    # RE2 makes one class of these, the agent does not.
    r"(?:$|\d|字|\D){1,57}": 1024,
    r"(?:(?:b|\d|[^\s])){5,}": 64,
}


@pytest.mark.parametrize("expression", SEEN)
def test_no_expression_is_taken_for_smaller_than_it_is(expression):
    parse_match({"cmdline": expression})
    assert charged_bytes(expression) >= SEEN[expression] << 10


@pytest.mark.parametrize(
    "expression",
    ["vlc", "^/usr/bin/vlc .*movie$", r"\w", r"\w+ \w+", r"\w{8}", r"(?:\w+/)*x", ".{100}"],
)
def test_what_people_write_is_not_taken_for_larger(expression):
    assert charged_bytes(expression) == SEEN[expression] << 10


def test_brackets_flags_and_escapes_are_read_as_they_are_meant():
    alone = needed_bytes("")
    # An escaped bracket, and one in a class, opens nothing.
    assert needed_bytes(r"\({3}") - alone == 3 * (needed_bytes("a") - alone)
    assert needed_bytes("[(]{30}") < needed_bytes("[(a]{31}")
    assert needed_bytes("(?:ab){10}") > needed_bytes("ab{10}")
    assert needed_bytes("(?i)kkk") > needed_bytes("kkk")
    assert needed_bytes(r"\u5b57") == needed_bytes("\U0001f600") > needed_bytes("a")
    assert needed_bytes("(?P<name>a)") == needed_bytes("(a)")


def test_one_that_is_too_large_alone_is_refused():
    """The agent refuses it, and with it all rules; RE2's program of it is small."""
    expression = r"(?:.[a-z]\.(?:[^é字]|\W|(?:ab|ac|ad)|a)){4,53}"
    parse_match({"cmdline": expression})
    with pytest.raises(BadValue, match=r"too large .it may take 2\.\d+ MiB compiled, at most 1"):
        check_size("match.cmdline", expression)
    assert charged_bytes(expression) == MOST_BYTES
    check_size("match.cmdline", r"\w{19}")


def rules(expression, number):
    return [Rule(i, None, "batch", {"cmdline": expression}, 0.0) for i in range(number)]


@pytest.mark.parametrize(("expression", "most"), [(r"\w{19}", 16), (r"\w", 256), ("vlc", 1024)])
def test_together_they_have_the_room_that_the_agent_gives_them(expression, most):
    others = [Rule(0, None, "batch", {"exe": "/usr/bin/vlc"}, 0.0)] * 9
    check_room("web1", rules(expression, most) + others)
    with pytest.raises(Conflict, match=r"'web1' would have \d+ rules .* MiB compiled") as refusal:
        check_room("web1", rules(expression, most + 1))
    assert "has room for 16: remove some of them" in str(refusal.value)
