# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.choice: which rows are wanted."""

import pytest

from perf.bars import EXPECTED
from perf.choice import Choice

FLOOD = EXPECTED["FLOOD"]


def test_without_a_text_all_rows_are_wanted():
    assert Choice().of(FLOOD) == list(FLOOD)
    assert Choice().suffix() == ""


@pytest.mark.parametrize(
    ("only", "wanted"),
    [
        ("other guest, ping", [("other guest", "ping")]),
        ("Same Guest", [("same guest", "disk read"), ("same guest", "ping")]),
        ("ping", [("same guest", "ping"), ("other guest", "ping")]),
        ("tape", []),
    ],
)
def test_rows_are_chosen_by_a_text_in_their_name(only, wanted):
    assert Choice(only).of(FLOOD) == wanted


def test_files_of_a_part_have_names_of_their_own():
    assert Choice("fio 4 KiB, requests/s").suffix() == "-fio-4-kib-requests-s"
    assert Choice("../").suffix() == ""
