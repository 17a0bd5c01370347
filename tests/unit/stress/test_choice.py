# SPDX-License-Identifier: GPL-2.0-or-later
"""stress.choice: every change is valid, and all kinds come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from stress.changes import BULK, BULK_TAG, KINDS, OTHER, OTHER_TAG
from stress.choice import CEILING_MIN_BPS, RATE_MAX_BPS, RATE_MIN_BPS, TAGS, Choice


def _choice(seed: int) -> Choice:
    return Choice(random.Random(seed), {BULK: BULK_TAG, OTHER: OTHER_TAG})


def _apply(classes: dict[str, dict], commands: list) -> None:
    """Do what QEMU does with them, and refuse what it refuses."""
    for command, arguments in commands:
        if command == "shaper-set-class":
            name = arguments["class_"]
            others = [each["tag"] for other, each in classes.items() if other != name]
            assert arguments["tag"] not in others
            classes[name] = arguments
        elif command == "shaper-remove-class":
            del classes[arguments["class_"]]
        else:
            (limit,) = arguments["limits"]
            assert CEILING_MIN_BPS <= limit["bytes-per-second"] <= RATE_MAX_BPS


def _reserved_bps(settings: dict) -> int:
    (scheduling,) = settings["scheduling"]
    assert scheduling["resource"] == "blk-write"
    return scheduling["reservation-bytes-per-second"]


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_property_every_class_has_its_least_rate_after_every_change(seed, count):
    choice, classes = _choice(seed), {}
    _apply(classes, choice.first())
    for _ in range(count):
        _apply(classes, choice.next())
        assert set(classes) == {"default", BULK, OTHER}
        assert sum(map(_reserved_bps, classes.values())) <= CEILING_MIN_BPS
        for name in (BULK, OTHER):
            rates = [limit["bytes-per-second"] for limit in classes[name]["limits"]]
            assert len(rates) == 2
            assert RATE_MIN_BPS <= min(rates) <= max(rates) <= RATE_MAX_BPS
            assert _reserved_bps(classes[name]) == RATE_MIN_BPS
            assert classes[name]["tag"] in TAGS
    assert sum(choice.made.values()) == count


def test_all_kinds_come_and_both_programs_meet_every_class():
    choice, seen = _choice(1), set()
    for _ in range(2000):
        choice.next()
        seen.add(tuple(choice.classes.items()))
    assert set(choice.made) == set(KINDS)
    assert min(choice.made.values()) >= 10
    assert len(seen) == len(TAGS) * (len(TAGS) - 1)
