# SPDX-License-Identifier: GPL-2.0-or-later
"""Parameters that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from ...domain.limits import RESOURCES

AsJson = Annotated[bool, typer.Option("--json", help="print the API's JSON")]
Domain = Annotated[str, typer.Argument(help="name of a libvirt domain", metavar="DOMAIN")]
ClassName = Annotated[str, typer.Argument(help="name of a class", metavar="CLASS")]
Resource = Annotated[str, typer.Argument(help=f"one of {', '.join(RESOURCES)}", metavar="RESOURCE")]
Rate = Annotated[
    str, typer.Argument(help="for example 2MB/s, 16Mbit/s, 1.5MiB/s, unlimited", metavar="RATE")
]
