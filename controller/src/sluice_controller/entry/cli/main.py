# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice: the command line of Sluice's controller."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ... import __version__
from ...domain.errors import BadValue, SluiceError
from ...domain.knobs import knob
from ...domain.model import Settings
from . import (
    auto,
    classes,
    domains,
    events,
    groups,
    live,
    nightly,
    rules,
    scheduling,
    state,
    top,
    why,
)
from .client import DEFAULT_SOCKET, DEFAULT_TOKEN_FILE, Client, Refused
from .common import Answered, command, given_of
from .output import safe, say, show, shown, take_any_encoding, when

app = typer.Typer(
    name="sluice",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Shape the disk and network I/O of KVM guests by class.",
    epilog="Example: sluice attach media --restart; sluice class set batch; "
    "sluice grant media batch; sluice limit media batch blk-read 20MB/s",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"sluice {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    context: typer.Context,
    socket: Annotated[Path, typer.Option(envvar="SLUICE_SOCKET", help="sluiced's socket")] = Path(
        DEFAULT_SOCKET
    ),
    token_file: Annotated[
        Path, typer.Option(envvar="SLUICE_TOKEN_FILE", help="file with the API token")
    ] = Path(DEFAULT_TOKEN_FILE),
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    context.obj = Client(socket, token_file)


def _say_status(answer: dict[str, Any]) -> None:
    libvirt = answer["libvirt"]
    say(
        f"sluiced {answer['version']} on {answer['host']['name']}, up since "
        f"{when(answer['started_at'])}"
    )
    state = "connected" if libvirt["connected"] else f"not connected: {libvirt['error']}"
    say(f"libvirt {libvirt['uri']}: {state}")
    say(f"database {answer['database']}, sampling at {answer['sample_hz']} Hz")
    say(f"interfaces: {', '.join(answer['uplinks'])}")
    say(answer["host"]["accelerator_note"])


@command(app, "status")
def status(context: typer.Context) -> Answered:
    """Show version, start time and database of sluiced, and whether libvirt is connected."""
    return context.obj.call("GET", "status"), _say_status


def _told(setting: tuple[str, Any]) -> str:
    name, value = setting
    return "none" if value is None else knob(Settings, name).told(value)


@command(app, "settings", options=Settings)
def settings(context: typer.Context, **options: Any) -> Answered:
    """Show the settings, or change the given ones.

    Example: sluice settings --uplink eno1 --link 40Mbit
    """

    def tell(answer: dict[str, Any]) -> None:
        columns = {"setting": lambda item: item[0], "value": _told}
        show(answer.items(), columns)

    body = given_of(Settings, options)
    return context.obj.call("PUT" if body else "GET", "settings", body=body or None), tell


@command(app, "audit")
def audit(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="how many entries")] = 20,
) -> Answered:
    """Show changes and their authors, newest first."""
    columns = {
        "when": lambda entry: when(entry["at"]),
        "who": "actor",
        "action": "action",
        "thing": "thing",
    }
    answer = context.obj.call("GET", "audit", query={"limit": limit})
    return answer, shown(columns, empty="no changes yet")


# A group without a name adds its commands to those of the top.
for part in (domains, classes, scheduling, rules, live, why, events, top, state):
    app.add_typer(part.top)
for name, part in (
    ("agent", domains.agent),
    ("class", classes.group),
    ("group", groups.group),
    ("rule", rules.group),
    ("stream", auto.streams),
    ("auto", auto.group),
    ("nightly", nightly.group),
):
    app.add_typer(part, name=name)


def check_words(words: Iterable[str]) -> None:
    """Bytes that are none of the terminal's characters are surrogates here; BadValue."""
    odd = next((c for c in "".join(words) if "\ud800" <= c <= "\udfff"), None)
    if odd is not None:
        raise BadValue(
            "command line",
            f"byte {ord(odd) & 0xFF:#04x}",
            "is not a character in the encoding of this terminal",
            "write it in the encoding that LC_ALL, LC_CTYPE or LANG names",
        )


def main() -> None:
    take_any_encoding(sys.stdout, sys.stderr)
    try:
        check_words(sys.argv)
        app()
    except (SluiceError, Refused) as error:
        print(f"sluice: {safe(error)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
