# SPDX-License-Identifier: GPL-2.0-or-later
"""Print sluice(1), in scdoc's language, from the commands themselves.

scdoc reads ``*`` and ``_`` as emphasis and needs two equal lines around verbatim text; all text
of the commands is escaped. Whether typer brings its own click or uses the installed one makes
no difference here.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from sluice_controller.entry.cli.main import app

HEAD = """\
sluice(1)

# NAME

sluice - shape the disk and network I/O of virtual machines by class

# SYNOPSIS

*sluice* [_OPTION_...] _COMMAND_ [_ARGUMENT_...]

# DESCRIPTION

*sluice* is the command line of *sluiced*(8), which must run. Its user must be
root or in the group sluice. A domain is a virtual machine as libvirt names it;
rates are written like 2MB/s, 16Mbit/s or unlimited.
"""
TAIL = """\
# EXIT STATUS

0 when it is done, 1 when sluiced refused or does not answer, 2 when the command
line is wrong.

# FILES

_/run/sluice/sluiced.sock_
	Where sluiced listens.

_/etc/sluice/api-token_
	What it asks for.

# SEE ALSO

*sluiced*(8), *sluice-web*(8), *virsh*(1)
"""


def escaped(text: str) -> str:
    """``text`` as scdoc prints it unchanged."""
    return re.sub(r"([\\*_`])", r"\\\1", text)


def commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every command below ``group`` that does something, with its full name."""
    for name in group.commands:
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def options(command: Any) -> Iterator[str]:
    """A definition for each option of its own that ``--help`` shows."""
    context = command.context_class(command, info_name="sluice")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or parameter.param_type_name != "option":
            continue
        flags, said = record
        if flags not in ("--help", "--install-completion", "--show-completion"):
            yield f"*{escaped(flags)}*\n\t{escaped(' '.join(said.split()))}\n"


def metavar(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def arguments(command: Any) -> Iterator[str]:
    """The text of ``--help`` about each argument."""
    for parameter in command.params:
        said = getattr(parameter, "help", None)
        if parameter.param_type_name == "argument" and said:
            yield f"_{escaped(metavar(parameter))}_\n\t{escaped(said)}\n"


def paragraphs(command: Any) -> Iterator[str]:
    """The command's own text; click's mark of kept lines is dropped."""
    for block in inspect.cleandoc(command.help or "").replace("\b\n", "").split("\n\n"):
        yield escaped(block) + "\n"


def usage(name: str, command: Any) -> str:
    pieces = [name]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = metavar(parameter)
            pieces.append(shown if parameter.required or shown.startswith("[") else f"[{shown}]")
    return f"## sluice {escaped(' '.join(pieces))}\n"


def page() -> str:
    top = typer.main.get_command(app)
    parts = [HEAD, "# OPTIONS\n", *options(top), "# COMMANDS\n"]
    for name, command in commands(top, ()):
        parts += [usage(name, command), *paragraphs(command), *arguments(command)]
        parts += options(command)
    return "\n".join([*parts, TAIL])


if __name__ == "__main__":
    print(page())
