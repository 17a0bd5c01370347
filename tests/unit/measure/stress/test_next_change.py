# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.next_change: every change is valid, and all kinds come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from measure.stress.changes import BULK, BULK_TAG, KINDS, OTHER, OTHER_TAG
from measure.stress.next_change import CARD, CEILING_SHARE, DISK, TAGS, NextChange, range_bps


def _choice(seed: int) -> NextChange:
    return NextChange(random.Random(seed), {BULK: BULK_TAG, OTHER: OTHER_TAG})


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
            rates = _rates(arguments["limits"])
            assert set(rates) == {"blk-write", *CARD}
            for resource, rate in rates.items():
                least_bps, most_bps = range_bps(resource)
                assert CEILING_SHARE * least_bps <= rate <= most_bps


def _rates(limits: list[dict]) -> dict[str, int]:
    return {each["resource"]: each["bytes-per-second"] for each in limits}


def _reserved(settings: dict) -> dict[str, int]:
    return {
        each["resource"]: each["reservation-bytes-per-second"] for each in settings["scheduling"]
    }


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_property_every_class_has_its_least_rate_after_every_change(seed, count):
    choice, classes = _choice(seed), {}
    _apply(classes, choice.first())
    for _ in range(count):
        _apply(classes, choice.next())
        assert set(classes) == {"default", BULK, OTHER}
        least = {resource: range_bps(resource)[0] for resource in ("blk-write", *CARD)}
        assert all(_reserved(each) == least for each in classes.values())
        assert len(classes) <= CEILING_SHARE
        for name in (BULK, OTHER):
            rates = _rates(classes[name]["limits"])
            assert set(rates) == {*DISK, *CARD}
            for resource, rate in rates.items():
                least_bps, most_bps = range_bps(resource)
                assert least_bps <= rate <= most_bps
            assert [queue["resource"] for queue in classes[name]["queues"]] == list(CARD)
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
