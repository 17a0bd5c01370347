# SPDX-License-Identifier: GPL-2.0-or-later
"""What the documents say can be looked up: their links lead somewhere, their commands exist."""

import argparse
import dataclasses
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.cli import get_docs_for_click
from typer.testing import CliRunner

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Unavailable
from sluice_controller.domain.model import ShapingClass
from sluice_controller.entry.cli.main import app
from sluice_controller.entry.config import DEFAULTS
from sluice_controller.entry.config import argument_parser as sluiced_parser
from sluice_nightly.cli import parser as nightly_parser
from sluice_nightly.config import SECTIONS
from sluice_web.cli import parser as web_parser
from sluice_web.store import Store
from testbed import paths

PAGES = [
    paths.TOP / "README.md",
    *sorted((paths.TOP / "docs").rglob("*.md")),
    *sorted((paths.TOP / "ansible").glob("*.md")),
]
REFERENCE = paths.TOP / "docs" / "reference" / "cli.md"
# Of the reference what follows is made from the commands themselves.
GENERATED = "<!-- typer -->\n"
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# On a line of a block, maybe run elsewhere; or between words.
LINE = re.compile(r"^(?:\$ |ssh \S+ )?(sluice [^(].*)$")
INLINE = re.compile(r"`(sluice [^`…]*)`")
# These do something, or print something, without sluiced.
BY_ITSELF = re.compile(r" --(help|version|install-completion)\b")
# What the shell does with it afterwards.
END = re.compile(r"\s+(?:[|>&#].*)?$")


def name(page: Path) -> str:
    return str(page.relative_to(paths.TOP))


@cache
def anchors(page: Path) -> set[str]:
    """Of a page's headings, as a forge makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), f"{target}#{anchor}"


# Commands


def commands(group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, word))
        else:
            yield " ".join((*path, word)), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def written(page: Path) -> Iterator[str]:
    """The sluice commands of a page."""
    text = page.read_text().partition(GENERATED)[0]
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := LINE.match(line.strip()):
                yield END.sub("", found[1])
    words = re.sub(r"^#.*$", "", BLOCK.sub("", text), flags=re.MULTILINE)
    yield from INLINE.findall(words.replace("\n", " "))


def is_whole(line: str) -> bool:
    """A command with what it is given, and not just its name."""
    return line.removeprefix("sluice ") not in NEED_MORE and not BY_ITSELF.search(line)


NEED_MORE = {
    words for words, command in COMMANDS.items() if any(p.required for p in command.params)
} | {words.rpartition(" ")[0] for words in COMMANDS}
LINES = [
    pytest.param(line, id=f"{name(page)}: {line}")
    for page in PAGES
    for line in dict.fromkeys(written(page))
    if is_whole(line)
]


def test_the_pages_have_commands():
    assert len(LINES) > 30


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_one_that_sluice_takes(line, tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text("t")
    nobody = ["--socket", str(tmp_path / "nobody"), "--token-file", str(token_file)]
    done = CliRunner().invoke(app, [*nobody, *shlex.split(line)[1:]])
    # It is understood, and then asked of sluiced, which does not answer here.
    assert isinstance(done.exception, Unavailable), done.output or done.exception


# The reference


def test_the_reference_is_what_the_commands_say_of_themselves():
    """`make cli-reference` writes it."""
    written = REFERENCE.read_text().partition(GENERATED)[2]
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="sluice")
    said = get_docs_for_click(obj=command, ctx=context, name="sluice")
    assert written.strip() == said.strip()


# Options of the other programs


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """As its own help shows them, commands' options included."""
    parts = [parser.format_help()]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts += [command.format_help() for command in action.choices.values()]
    return set(re.findall(r"(?<![\w-])--[a-z-]+", " ".join(parts))) - {"--help", "--version"}


@pytest.mark.parametrize(
    ("parser", "page", "before", "after"),
    [
        (sluiced_parser, "reference/configuration.md", "`", ""),
        (sluiced_parser, "man/sluiced.8.scd", "*", "*"),
        (web_parser, "reference/web.md", "", ""),
        (nightly_parser, "man/sluice-nightly.8.scd", "*", "*"),
    ],
)
def test_a_page_has_every_option_of_its_program(parser, page, before, after):
    text = (paths.TOP / "docs" / page).read_text()
    missing = {flag for flag in options_of(parser()) if f"{before}{flag}{after}" not in text}
    assert missing == set()


def test_the_service_s_options_are_in_its_man_page():
    text = (paths.TOP / "docs" / "man" / "sluice-web.8.scd").read_text()
    of_commands = {"--user", "--role", "--password-stdin", "--scope", "--stream"}
    assert {f for f in options_of(web_parser()) - of_commands if f"*{f}*" not in text} == set()


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_setting_of_sluiced_is_on_its_pages(name):
    assert f"\n*{name}*\n" in (paths.TOP / "docs" / "man" / "sluiced.toml.5.scd").read_text()
    reference = (paths.TOP / "docs" / "reference" / "configuration.md").read_text()
    default = DEFAULTS[name]
    (row,) = re.findall(rf"^\| `{name}` \| `--.*$", reference, re.MULTILINE)
    assert default is None or f"| `{default}` |" in row


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_of_the_nightly_run_is_in_its_reference(section):
    reference = (paths.TOP / "docs" / "reference" / "nightly.md").read_text()
    rows = re.search(rf"^\| `{section}` \|.*\n(?:\| \|.*\n)*", reference, re.MULTILINE)[0]
    for item in dataclasses.fields(SECTIONS[section]):
        (row,) = [line for line in rows.splitlines() if f"`{item.name}`" in line.split("|")[2]]
        if "range" in item.metadata:
            assert f"{item.default:g}" in row.split("|")[3] or f"{item.default:.2f}" in row


# Looking after a host


def test_the_backup_has_what_only_the_log_of_the_database_has(tmp_path):
    """The page's own lines, while the program has the database open and has written to it."""
    page = (paths.TOP / "docs" / "how-to" / "operate.md").read_text()
    lines = re.search(r"^for database in .*?^done$", page, re.MULTILINE | re.DOTALL)[0]
    live, copies = tmp_path / "lib", tmp_path / "copies"
    for folder in (live / "sluice", live / "sluice-web", copies):
        folder.mkdir(parents=True)
    store = SqlStore(f"sqlite:///{live / 'sluice' / 'sluice.db'}")
    users = Store(live / "sluice-web")
    users.record(1.0, "alice", "sign in", "192.0.2.9")
    with store.transaction() as unit:
        unit.put_class(ShapingClass("batch", "Batch work"))
    script = lines.replace("/var/lib/", f"{live}/")
    subprocess.run(["bash", "-euc", script], check=True, cwd=copies, timeout=60)
    store.close()
    copy = SqlStore(f"sqlite:///{copies / 'sluice.db'}")
    with copy.transaction() as unit:
        assert [one.name for one in unit.classes()] == ["batch"]
    copy.close()
    with sqlite3.connect(copies / "web.sqlite") as copied:
        assert copied.execute("SELECT actor FROM events").fetchall() == [("alice",)]
