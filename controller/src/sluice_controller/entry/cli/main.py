# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice: the command line of Sluice's controller."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ... import __version__
from ...domain.errors import BadValue, SluiceError
from ...domain.model import Settings
from . import auto, classes, domains, groups, live, nightly, rules, scheduling, state
from .client import DEFAULT_SOCKET, DEFAULT_TOKEN_FILE, Client, Refused
from .common import AsJson, described
from .output import print_json, safe, say, show, take_any_encoding, when

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


@app.command()
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show what runs, since when, with which database, and whether libvirt is connected."""
    answer = context.obj.call("GET", "status")
    if as_json:
        return print_json(answer)
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


@app.command()
def settings(
    context: typer.Context,
    history_seconds: Annotated[int | None, described(Settings, "history_seconds")] = None,
    uplink: Annotated[str | None, described(Settings, "uplink")] = None,
    emulator: Annotated[str | None, described(Settings, "emulator")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings, or change those given.

    Example: sluice settings --uplink eno1
    """
    body = {"history_seconds": history_seconds, "uplink": uplink, "emulator": emulator}
    body = {key: value for key, value in body.items() if value is not None}
    if body.get("uplink") == "none":
        body["uplink"] = None
    if body:
        answer = context.obj.call("PUT", "settings", body=body)
    else:
        answer = context.obj.call("GET", "settings")
    if as_json:
        return print_json(answer)
    show(("setting", "value"), [(k, "none" if v is None else v) for k, v in answer.items()])


@app.command()
def audit(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="how many entries")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show who changed what, newest first."""
    answer = context.obj.call("GET", "audit", query={"limit": limit})
    if as_json:
        return print_json(answer)
    rows = [(when(e["at"]), e["actor"], e["action"], e["thing"]) for e in answer]
    show(("when", "who", "action", "thing"), rows, empty="no changes yet")


domains.register(app)
classes.register(app)
scheduling.register(app)
groups.register(app)
rules.register(app)
live.register(app)
auto.register(app)
nightly.register(app)
state.register(app)


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
