# SPDX-License-Identifier: GPL-2.0-or-later
"""The screen of `sluice top`. textual is imported here and nowhere else.

It runs with Debian 13's textual 2.1 and with the newest one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Input, Static

from ...domain.errors import SluiceError
from ...domain.limits import RESOURCES
from .client import Client, Refused
from .common import nothing
from .output import safe
from .top_rows import (
    CLASS,
    PROCESS,
    RESOURCE_OF,
    SORTS,
    VM,
    Row,
    View,
    arranged,
    columns_for,
    is_at_limit,
    labelled,
    notes,
    rows_of,
)

MOST_NOTES = 3
# On the left margin of the scroll bar.
SCROLL_BAR = 1
# Actions of keys while no text is being typed.
PLAIN_ACTIONS = {"help", "filter", "tree", "sort", "sort_by", "turn", "processes", "pause", "fold"}
PLAIN_ACTIONS |= {"limit", "class"}
HELP = """\
Up Down PgUp PgDn Home End   choose a row
Space + -                    fold or unfold a row
F1 h ?   this help           F4 /   filter by name; Esc takes it away
F5 t     tree or flat list   F6 < > sort by another column
D N H P  sort by disk, network, held time, CPU
I        turn the order      p      hide or show processes
F7 l     set a limit: of a class, or of a VM (its ceiling)
F8 c     set the class of a process; nothing takes it back
Z        pause or go on      F10 q  quit

Rates are bytes per second, beside their limit: 1.2M/20M, yellow from 95 %
of it. HELD: 99th percentile of the wait. TOKENS: bytes that a limit lets
pass at once, negative in debt; of several resources the least. "-" is not
known; "!" is a VM of which something is missing or not in force: the reason
stands above and, for the chosen row, below. Agents report no network and no
cached throughput of processes."""


class Top(App[None]):
    """`ask` makes a reading; it blocks, and runs in a thread."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; max-height: 5; background: $panel; }
    DataTable { height: 1fr; scrollbar-size: 1 1; overflow-x: hidden; }
    #help { display: none; height: 1fr; }
    #detail { height: 5; border-top: solid $primary; }
    #said { height: auto; max-height: 3; }
    #prompt { border: none; height: 1; padding: 0; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,h,question_mark", "help", "Help ", key_display="F1"),
        Binding("f4,slash", "filter", "Filter ", key_display="F4"),
        Binding("f5,t", "tree", "Tree ", key_display="F5"),
        Binding("f6,greater_than_sign", "sort(1)", "Sort ", key_display="F6"),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("f7,l", "limit", "Limit ", key_display="F7"),
        Binding("f8,c", "class", "Class ", key_display="F8"),
        Binding("f10,q", "quit", "Quit", key_display="F10"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("D", "sort_by('disk')", show=False),
        Binding("N", "sort_by('network')", show=False),
        Binding("H", "sort_by('held')", show=False),
        Binding("P", "sort_by('cpu')", show=False),
        Binding("I", "turn", show=False),
        Binding("p", "processes", show=False),
        Binding("Z", "pause", show=False),
        Binding("space,plus,minus", "fold", show=False),
        Binding("escape", "leave", show=False),
    ]

    def __init__(
        self,
        client: Client,
        ask: Callable[[], dict[str, Any]],
        reading: dict[str, Any],
        interval_seconds: float,
    ) -> None:
        super().__init__()
        self.client, self.ask, self.interval_seconds = client, ask, interval_seconds
        self.rows: list[Row] = rows_of(reading)
        self.reading = reading
        self.view = View()
        self.shown: list[Row] = []
        self.paused = False
        self.failed = ""
        # The use of the text of the prompt.
        self._use: Callable[[str], None] | None = None
        # Questions of sluiced that are not answered yet.
        self.asked = 0

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(cursor_type="row", cell_padding=0, zebra_stripes=False)
        yield Static(HELP, id="help", markup=False)
        yield Static(id="detail")
        yield Static(id="said")
        yield Input(id="prompt")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#prompt").can_focus = False
        self.table.focus()
        self.set_interval(self.interval_seconds, self._read_on)

    def on_resize(self, _event: events.Resize) -> None:
        self.call_after_refresh(self.draw)

    @property
    def table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    # Readings

    def _in_thread(self, question: Callable[[], Callable[[], None]]) -> None:
        """Asks without stopping the screen; what it returns is done by the screen's thread.

        The end of the screen does not wait for an answer.
        """

        def run() -> None:
            try:
                then = question()
            except Exception as error:
                # Unforeseen: it ends the screen, with its trace.
                then = partial(_raise, error)
            # The screen may have ended meanwhile.
            with suppress(RuntimeError):
                self.call_from_thread(end, then)

        def end(then: Callable[[], None]) -> None:
            self.asked -= 1
            then()

        self.asked += 1
        threading.Thread(target=run, daemon=True).start()

    def _read_on(self) -> None:
        if not self.paused and not self.asked:
            self._in_thread(self._answer)

    def _answer(self) -> Callable[[], None]:
        try:
            return partial(self.take, self.ask(), "")
        except (SluiceError, Refused) as error:
            return partial(self.take, None, str(error))

    def take(self, reading: dict[str, Any] | None, failed: str) -> None:
        """A new reading; or None, and the reason for that."""
        self.failed = failed
        if reading is not None:
            self.reading, self.rows = reading, rows_of(reading)
        self.draw()

    # Drawing

    def draw(self) -> None:
        """All anew; the cursor stays on its row."""
        place = self.table.cursor_row
        chosen = self.chosen
        self.shown = arranged(self.rows, self.view)
        columns = columns_for(self.size.width)
        room = self.size.width - SCROLL_BAR - sum(width for width, _ in columns.values())
        with self.batch_update():
            at_y = self.table.scroll_y
            self.table.clear(columns=True)
            self.table.add_column(Text("NAME"), width=max(8, room))
            for name, (width, _) in columns.items():
                self.table.add_column(Text(name, justify="right"), width=width)
            for row in self.shown:
                cells = (_cell(row, name, cell) for name, (_, cell) in columns.items())
                self.table.add_row(_name(row, self.view), *cells)
            paths = [row.path for row in self.shown]
            if chosen is not None and chosen.path in paths:
                place = paths.index(chosen.path)
            self.table.cursor_coordinate = Coordinate(max(0, min(place, len(paths) - 1)), 0)
            self.table.scroll_to(y=at_y, animate=False)
            self._draw_head()
            self._draw_detail()

    @property
    def chosen(self) -> Row | None:
        at = self.table.cursor_row
        return self.shown[at] if 0 <= at < len(self.shown) else None

    def _draw_head(self) -> None:
        of = {kind: sum(len(r.path) == kind for r in self.rows) for kind in (VM, CLASS, PROCESS)}
        parts = [
            time.strftime("%H:%M:%S", time.localtime(self.reading["live"]["at"])),
            f"VMs {of[VM]}, classes {of[CLASS]}, processes {of[PROCESS]}",
            f"by {self.view.sort}{' (turned)' if self.view.ascending else ''}",
            *([f"filter: {safe(self.view.filter)}"] if self.view.filter else []),
            *(["paused"] if self.paused else []),
        ]
        lines = [Text("  ".join(parts), style="bold")]
        if self.failed:
            lines.append(Text(f"old figures: {safe(self.failed)}", style="bold red"))
        said = notes(self.reading, self.rows)
        lines += [Text(safe(note)) for note in said[:MOST_NOTES]]
        if len(said) > MOST_NOTES:
            lines[-1] = Text(f"{len(said) - MOST_NOTES + 1} more notes: sluice top --batch")
        for line in lines[1:]:
            line.truncate(
                2 * self.size.width if self.failed else self.size.width, overflow="ellipsis"
            )
        self.query_one("#head", Static).update(Text("\n").join(lines))

    def _draw_detail(self) -> None:
        row = self.chosen
        lines = [Text(safe(line)) for line in row.detail] if row else [Text("no row is chosen")]
        self.query_one("#detail", Static).update(Text("\n").join(lines))

    def on_data_table_row_highlighted(self, _event: DataTable.RowHighlighted) -> None:
        self._draw_detail()

    def say(self, text: str, style: str = "") -> None:
        self.query_one("#said", Static).update(Text(safe(text), style=style))

    # Keys

    def change(self, **changes: Any) -> None:
        self.view = replace(self.view, **changes)
        self.draw()

    def action_help(self) -> None:
        is_shown = not self.query_one("#help").display
        self.query_one("#help").display = is_shown
        self.table.display = not is_shown
        self.query_one("#detail").display = not is_shown
        if not is_shown:
            self.table.focus()

    def action_leave(self) -> None:
        """Esc: out of the prompt, of the help, then of the filter."""
        if self._use is not None:
            self._close_prompt()
        elif self.query_one("#help").display:
            self.action_help()
        else:
            self.change(filter="")

    def action_tree(self) -> None:
        self.change(tree=not self.view.tree)

    def action_sort(self, step: int) -> None:
        names = list(SORTS)
        self.change(sort=names[(names.index(self.view.sort) + step) % len(names)])

    def action_sort_by(self, name: str) -> None:
        self.change(sort=name)

    def action_turn(self) -> None:
        self.change(ascending=not self.view.ascending)

    def action_processes(self) -> None:
        self.change(processes=not self.view.processes)

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.draw()

    def action_fold(self) -> None:
        if self.chosen is not None and len(self.chosen.path) < PROCESS:
            self.change(folded=self.view.folded ^ {self.chosen.path})

    # The prompt

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that are not of the prompt do nothing while it is open."""
        return self._use is None or action not in PLAIN_ACTIONS

    def _prompt(self, hint: str, value: str, use: Callable[[str], None]) -> None:
        self._use = use
        self.say(hint)
        prompt = self.query_one("#prompt", Input)
        prompt.value = value
        prompt.can_focus = True
        # At once: of quickly typed words no letter is taken for a command.
        self.screen.set_focus(prompt)

    def _close_prompt(self) -> None:
        self._use = None
        self.say("")
        prompt = self.query_one("#prompt", Input)
        prompt.value = ""
        self.screen.set_focus(self.table)
        prompt.can_focus = False

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._use == self._filter:
            self._filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        use = self._use
        self._close_prompt()
        if use is not None:
            use(event.value.strip())

    def _filter(self, text: str) -> None:
        self.change(filter=text)

    def action_filter(self) -> None:
        self._prompt("filter by name; Enter keeps it:", self.view.filter, self._filter)

    def action_limit(self) -> None:
        row = self.chosen
        if row is None:
            return self.say("choose a VM or a class first")
        place = row.path[:CLASS]
        hint = f"limit of {'/'.join(place)}: RESOURCE RATE, e.g. blk-read 20MB/s, or unlimited:"
        self._prompt(hint, "", lambda text: self._limit(place, text))

    def _limit(self, place: tuple[str, ...], text: str) -> None:
        resource, _, rate = text.partition(" ")
        rate = rate.strip()
        if resource not in RESOURCES or not rate:
            self.say(
                f"limit {text!r} is not RESOURCE RATE: give one of {', '.join(RESOURCES)}, "
                "and for example 20MB/s",
                "bold red",
            )
            return
        domain, *of_class = place
        kind = ("classes", of_class[0], "limits") if of_class else ("ceiling",)
        path = ("domains", domain, *kind, resource)
        body = None if nothing(rate) else {"bytes_per_second": rate}
        self._do(f"{'/'.join(place)}: {resource} {rate}", "PATCH" if body else "DELETE", path, body)

    def action_class(self) -> None:
        row = self.chosen
        if row is None or len(row.path) < PROCESS:
            return self.say("choose a process first; its class is set here")
        domain, of_class, pid = row.path
        hint = f"class of process {pid} of {domain}; an empty line takes an assignment back:"
        self._prompt(hint, of_class, lambda name: self._assign(domain, pid, name))

    def _assign(self, domain: str, pid: str, name: str) -> None:
        path = ("domains", domain, "assignments", pid)
        if name:
            self._do(f"{domain}: process {pid} → {name}", "PUT", path, {"class": name})
        else:
            self._do(f"{domain}: process {pid} is not assigned any more", "DELETE", path, None)

    def _do(self, done: str, method: str, path: tuple[str, ...], body: Any) -> None:
        """Asks for a change in a thread, and says `done` or the refusal."""

        def call() -> Callable[[], None]:
            try:
                answer = self.client.call(method, *path, body=body)
            except (SluiceError, Refused) as error:
                return partial(self.say, str(error), "bold red")
            later = answer.get("later", ()) if isinstance(answer, dict) else ()
            said = ". ".join([done, *(one["sentence"] for one in later)])
            drawn = self._answer()

            def tell() -> None:
                self.say(said)
                drawn()

            return tell

        self._in_thread(call)


def _raise(error: Exception) -> None:
    raise error


def _name(row: Row, view: View) -> Text:
    style = "bold" if len(row.path) == VM else ""
    return Text(labelled(row, view), style="bold red" if row.note else style)


def _cell(row: Row, name: str, cell: Callable[[Row], str]) -> Text:
    at_limit = name in RESOURCE_OF and is_at_limit(row, RESOURCE_OF[name])
    return Text(cell(row), style="yellow" if at_limit else "", justify="right")
