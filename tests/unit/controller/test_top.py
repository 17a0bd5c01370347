# SPDX-License-Identifier: GPL-2.0-or-later
"""`sluice top`: its rows, and its keys on a screen of textual's own."""

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.entry.cli.client import Refused
from sluice_controller.entry.cli.top import say_reading
from sluice_controller.entry.cli.top_app import Top
from sluice_controller.entry.cli.top_rows import (
    SORTS,
    View,
    arranged,
    columns_for,
    labelled,
    notes,
    rate_of_limit,
    rows_of,
    short,
)
from unit.controller.top_data import domain, live, process, reading, sample

# Figures


@given(st.floats(min_value=-999e12, max_value=999e12))
def test_a_figure_has_five_characters_and_three_digits(value):
    text = short(value)
    assert len(text.removeprefix("-")) <= 5
    number = text.rstrip("kMGT")
    scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[text[len(number) :]]
    assert float(number) * scale == pytest.approx(value, rel=0.006, abs=0.5)


@given(st.floats(min_value=0, max_value=1e12), st.floats(min_value=1024, max_value=1e12))
def test_a_rate_and_its_limit_fit_their_column(rate, limit):
    (row,) = [r for r in rows_of(one_class(rate, limit)) if len(r.path) == 2]
    width, cell = columns_for(80)["READ"]
    assert len(cell(row)) < width


def one_class(rate, limit):
    found = sample(bytes_per_second=rate, limit_bytes_per_second=limit)
    classes = live(default={"blk-read": found})
    return {
        "live": {"at": 0.0, "domains": {"media": classes}, "uplink": None},
        "domains": [domain("media")],
        "processes": {},
    }


def row(*path):
    return next(r for r in rows_of(reading()) if r.path == path)


def test_a_limit_stands_beside_its_rate():
    assert rate_of_limit(row("media", "batch"), "blk-read") == "19.6M/20M"
    assert rate_of_limit(row("media", "batch"), "net-tx") == "1.23M"
    assert rate_of_limit(row("web1", "batch"), "net-tx") == "-/5M"


def test_a_vm_has_the_sum_of_its_classes():
    assert row("media").rates["blk-read"] == 19.6e6
    assert (row("media").backlog_requests, row("media").held_p99_ms) == (12, 65.536)


def test_what_is_missing_says_why():
    said = notes(reading(), rows_of(reading()))
    assert said == ["web1: limits are not in force: the domain is not attached"]
    found = reading()
    found["live"]["domains"]["media"] |= {"page_ok": False, "error": "page: gone", "classes": {}}
    found["processes"]["media"] = {"error": "agent of domain 'media' is not connected"}
    assert notes(found, rows_of(found))[0] == (
        "media: no figures: page: gone; no processes: agent of domain 'media' is not connected"
    )


def test_a_process_of_a_class_that_is_not_granted_has_a_class_above_it():
    found = one_class(0.0, None)
    found["processes"]["media"] = {"processes": [process(7, "strange")], "truncated": False}
    assert [r.path for r in arranged(rows_of(found), View(sort="name"))] == [
        ("media",),
        ("media", "default"),
        ("media", "strange"),
        ("media", "strange", "7"),
    ]


# Order

views = st.builds(
    View,
    st.sampled_from(sorted(SORTS)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "rsync", "BATCH", "media", "nothing of that name"]),
    st.frozensets(st.sampled_from([r.path for r in rows_of(reading())])),
    st.booleans(),
)


@given(views)
def test_rows_are_shown_once_and_below_those_above_them(view):
    paths = [r.path for r in arranged(rows_of(reading()), view)]
    assert len(set(paths)) == len(paths)
    for place, path in enumerate(paths):
        assert not view.tree or len(path) == 1 or path[:-1] in paths[:place]
        assert not view.tree or path[:-1] not in view.folded


@given(views)
def test_each_row_that_a_filter_leaves_is_of_a_row_with_the_text(view):
    rows = arranged(rows_of(reading()), view)
    text = view.filter.lower()
    hits = [r.path for r in rows_of(reading()) if text in r.name.lower()]
    for one in rows:
        assert any(one.path[: len(hit)] == hit or hit[: len(one.path)] == one.path for hit in hits)


@pytest.mark.parametrize("sort", sorted(SORTS))
def test_turned_round_a_flat_list_is_the_other_way(sort):
    ways = [
        [
            SORTS[sort](r)
            for r in arranged(rows_of(reading()), View(sort=sort, ascending=up, tree=False))
        ]
        for up in (False, True)
    ]
    assert ways[0] == ways[1][::-1] == sorted(ways[0], reverse=sort != "name")


def test_a_flat_list_says_whose_a_row_is():
    process_row = row("media", "batch", "812")
    assert labelled(process_row, View(tree=False)).startswith("media/batch/812 /usr/bin/rsync")


# Keys


class Client:
    """Keeps what is asked; `refuses` is a refusal instead of the answer."""

    def __init__(self):
        self.calls = []
        self.refuses = None

    def call(self, method, *path, body=None):
        self.calls.append((method, path, body))
        if self.refuses:
            raise Refused({"detail": self.refuses})
        return {"later": [{"sentence": "web1: not in force yet"}]}


def pressed(*keys, client=None, size=(80, 24), first=None):
    """The screen as lines after these keys, and the app; a row is chosen by ("row", its path)."""
    app = Top(client or Client(), reading, first or reading(), 60.0)

    async def run():
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys:
                if isinstance(key, tuple):
                    paths = [r.path for r in app.shown]
                    app.table.move_cursor(row=paths.index(key))
                else:
                    await pilot.press(key)
                while app.asked:
                    await pilot.pause(0.01)
            await pilot.pause()
            return lines_of(app)

    return asyncio.run(run()), app


def lines_of(app):
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip) for strip in strips]


def test_as_text_a_long_command_takes_no_figure_away(capsys):
    long = process(813, "batch", cmdline="/usr/bin/vlc " + "--an-option=1 " * 40, cpu_ratio=0.37)
    found = reading()
    found["processes"]["media"] = {"processes": [long]}
    say_reading(found)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "813 /usr/bin/vlc" in line]
    assert line.rstrip().endswith("37%") and "…" in line


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_screen_has_all_columns_and_rows(size):
    lines, _app = pressed(size=size)
    heading = next(line for line in lines if "NAME" in line)
    assert [name for name in columns_for(size[0]) if name not in heading] == []
    for word in ("media", "batch", "812 /usr", "19.6M/20M", "web1: limits are not in force"):
        assert any(word in line for line in lines), word
    assert ("CPU" in heading) == (size[0] == 120)
    assert "F10 Quit" in lines[-1].replace("  ", " ")


@pytest.mark.parametrize(
    ("keys", "view"),
    [
        (("f5", "f6"), View(tree=False, sort="network")),
        (("t", "t", "less_than_sign"), View(sort="name")),
        (("H", "I", "p"), View(sort="held", ascending=True, processes=False)),
        (("slash", *"rsync", "enter"), View(filter="rsync")),
        (("f4", *"rsync", "enter", "escape"), View()),
        ((("media",), "space"), View(folded=frozenset({("media",)}))),
        ((("media",), "space", "plus"), View()),
    ],
)
def test_keys_change_the_view(keys, view):
    assert pressed(*keys)[1].view == view


def test_a_filter_holds_while_it_is_typed():
    lines, app = pressed("slash", *"rsync")
    assert app.view.filter == "rsync" and not any("init" in line for line in lines)


def test_help_comes_and_goes():
    assert any("this help" in line for line in pressed("f1")[0])
    assert not any("this help" in line for line in pressed("f1", "question_mark")[0])


def test_a_limit_is_set_taken_away_and_refused():
    client = Client()
    keys = (("media", "batch"), "f7", *"net-tx 5MB/s".replace(" ", "_"), "enter")
    keys = tuple({"_": "space", "-": "minus", "/": "slash"}.get(k, k) for k in keys)
    lines, _app = pressed(*keys, client=client)
    path = ("domains", "media", "classes", "batch", "limits", "net-tx")
    assert client.calls == [("PATCH", path, {"bytes_per_second": "5MB/s"})]
    assert any("media/batch: net-tx 5MB/s. web1: not in force yet" in line for line in lines)
    client.refuses = "rate '5MB/s' is too much"
    assert any(client.refuses in line for line in pressed(*keys, client=client)[0])
    said = pressed(("media", "batch"), "l", *"disk", "enter", client=client)[0]
    assert any("limit 'disk' is not RESOURCE RATE" in line for line in said)


def test_a_process_is_put_into_a_class_and_taken_back():
    client = Client()
    chosen = ("media", "default", "1")
    erase = ["backspace"] * len("default")
    pressed(chosen, "f8", *erase, *"batch", "enter", client=client)
    pressed(chosen, "c", *erase, "enter", client=client)
    path = ("domains", "media", "assignments", "1")
    assert client.calls == [("PUT", path, {"class": "batch"}), ("DELETE", path, None)]
    said = pressed(("media",), "f8")[0]
    assert any("choose a process first" in line for line in said)


def test_a_sluiced_that_is_away_is_said_and_the_figures_stay():
    app = Top(Client(), reading, reading(), 60.0)

    async def run():
        async with app.run_test(size=(80, 24)) as pilot:
            app.take(None, "sluiced cannot be reached")
            await pilot.pause()
            return lines_of(app)

    lines = asyncio.run(run())
    assert any("old figures: sluiced cannot be reached" in line for line in lines)
    assert any("19.6M/20M" in line for line in lines)


def test_words_of_a_guest_are_no_commands_of_the_terminal():
    found = reading()
    found["processes"]["media"]["processes"][0]["cmdline"] = "[red]\x1b[2J"
    lines, _app = pressed(first=found, size=(120, 40))
    assert any("[red]\\x1b[2J" in line for line in lines)


@pytest.mark.parametrize("key", ["q", "f10", "ctrl+c"])
def test_it_ends(key):
    app = Top(Client(), reading, reading(), 60.0)

    async def run():
        async with app.run_test() as pilot:
            await pilot.press(key)
            await pilot.pause()
            return app.is_running

    assert asyncio.run(run()) is False


def test_other_commands_do_not_load_textual():
    code = "import sys, sluice_controller.entry.cli.main; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
