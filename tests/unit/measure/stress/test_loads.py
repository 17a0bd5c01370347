# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.loads: which load stands still."""

from hypothesis import given
from hypothesis import strategies as st

from measure.stress.loads import MOVED_BYTES, Progress, gone_on_in_words, seen

BEFORE = Progress(fio=8192, rewrite=4096, received=10**6, sent=10**6)
COUNTS = st.integers(0, 2**50)
PROGRESS = st.builds(Progress, fio=COUNTS, rewrite=COUNTS, received=COUNTS, sent=COUNTS)


def test_what_has_not_moved_at_all_is_idle():
    assert BEFORE.idle_since(BEFORE) == ["fio", "rewrite", "received", "sent"]


def test_one_write_is_enough_of_each_writer_but_ssh_is_no_network_load():
    now = Progress(fio=8193, rewrite=4097, received=10**6 + 5000, sent=10**6 + MOVED_BYTES)
    assert now.idle_since(BEFORE) == ["received"]


def test_a_writer_that_has_ended_is_idle():
    now = Progress(fio=0, rewrite=8192, received=2 * 10**6, sent=2 * 10**6)
    assert now.idle_since(BEFORE) == ["fio"]


@given(PROGRESS, st.integers(1, 2**40), st.integers(MOVED_BYTES, 2**40))
def test_property_what_has_moved_enough_in_all_is_not_idle(before, written, moved):
    now = Progress(
        before.fio + written, before.rewrite + written, before.received + moved, before.sent + moved
    )
    assert now.idle_since(before) == []


def test_each_load_has_the_moment_when_it_was_first_seen_to_go_on():
    first = seen({}, ["fio", "sent"], 1.0)
    second = seen(first, ["sent"], 2.0)
    assert second == {"rewrite": 1.0, "received": 1.0, "fio": 2.0}
    assert seen(second, [], 3.5) == {**second, "sent": 3.5}


def test_the_last_load_to_go_on_is_named():
    gone_on = {"rewrite": 1.0, "sent": 219.0, "fio": 12.0}
    assert gone_on_in_words(gone_on) == "all loads gone on after 219.0 s, the last of them: sent"
