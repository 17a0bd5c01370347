# SPDX-License-Identifier: GPL-2.0-or-later
"""How the page's modules write numbers and times, in a real browser."""


def test_what_is_left_of_a_burst_is_said_in_short(page):
    in_bytes = {"burst_bytes": 1_000_000, "tokens_operations": None, "burst_operations": None}
    cases = [
        ({**in_bytes, "tokens_bytes": 1_000_000}, False, "100 % of 1.00 MB"),
        ({**in_bytes, "tokens_bytes": 999_999}, False, "99 % of 1.00 MB"),
        ({**in_bytes, "tokens_bytes": 0}, False, "0 % of 1.00 MB"),
        ({**in_bytes, "tokens_bytes": -31_200}, False, "owes 31.2 kB"),
        # A leaky bucket holds nothing; it may still be owed.
        ({**in_bytes, "tokens_bytes": 1}, True, ""),
        ({**in_bytes, "tokens_bytes": -31_200}, True, "owes 31.2 kB"),
        # The scarcer of both.
        (
            {
                "tokens_bytes": 900_000,
                "burst_bytes": 1_000_000,
                "tokens_operations": 3,
                "burst_operations": 50,
            },
            False,
            "6 % of 50 ops",
        ),
        # No limit; and a QEMU or a sluiced from before there were tokens or bursts.
        ({"tokens_bytes": None, "burst_bytes": None}, False, ""),
        ({"tokens_bytes": 1_000_000}, False, ""),
        ({}, False, ""),
    ]
    shown = page.evaluate(
        """async (cases) => {
            const { burstLeft } = await import("/static/js/format.js");
            return cases.map(([sample, isLeaky]) => burstLeft(sample, isLeaky));
        }""",
        [case[:2] for case in cases],
    )
    assert shown == [case[2] for case in cases]


def test_the_hour_after_midnight_is_the_first_of_its_day(page):
    shown = page.evaluate(
        """async () => {
            const { clock } = await import("/static/js/format.js");
            return clock(new Date(2020, 0, 2, 0, 5, 9).getTime() / 1000);
        }"""
    )
    assert shown.endswith(" 00:05:09")


def test_figures_are_as_old_as_the_newest_sample(page):
    domains = {"media": {"at": 97.5}, "web": {"at": 90.0}}
    lives = [{"at": 100.0, "domains": domains}, {"at": 100.0, "domains": {}}]
    ages = page.evaluate(
        """async (lives) => {
            const { lagSeconds } = await import("/static/js/live.js");
            return lives.map(lagSeconds);
        }""",
        lives,
    )
    assert ages == [2.5, 0]
