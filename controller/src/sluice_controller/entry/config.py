# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon's configuration: a TOML file under command-line options."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import __version__
from ..domain.errors import BadValue

LOG_LEVELS = ("debug", "info", "warning", "error")
# Files of the state folder, and of the top of a file system. Other files there belong to
# another program, which the folder's mode would lock out.
STATE_FILES = ("sluice.db", "lost+found")


def _setting(default: str | None, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Config:
    """Each setting with its default and its sentence for --help."""

    state_dir: Path = _setting("/var/lib/sluice", "folder of the database")
    run_dir: Path = _setting(
        "/run/sluice", "folder of the socket, the lock and the pages that QEMU shares"
    )
    etc_dir: Path = _setting("/etc/sluice", "folder of the API token and of sluiced.toml")
    libvirt_uri: str = _setting("qemu:///system", "how libvirt is reached")
    emulator: str | None = _setting(
        None, "the patched QEMU that attach puts into a domain; replaces the stored setting"
    )
    group: str = _setting(
        "sluice", "group of the socket and the token, whose members may control it"
    )
    qemu_group: str = _setting(
        "libvirt-qemu", "group that QEMU's user alone is in, who writes the pages"
    )
    agent_archive: Path = _setting(
        "/usr/share/sluice/sluice-agent-linux-amd64.tar.gz",
        "the agent for guests, which 'sluice agent install' copies into one",
    )
    database: str | None = _setting(
        None, "an SQLAlchemy URL; SQLite in the folder of --state-dir unless given"
    )
    log_level: str = _setting("info", "how much is written to standard error")

    @property
    def socket_path(self) -> Path:
        return self.run_dir / "sluiced.sock"

    @property
    def pages_dir(self) -> Path:
        return self.run_dir / "pages"

    @property
    def groups_dir(self) -> Path:
        return self.run_dir / "groups"

    @property
    def gates_dir(self) -> Path:
        return self.run_dir / "gates"

    @property
    def lock_path(self) -> Path:
        return self.run_dir / "sluiced.lock"

    @property
    def token_path(self) -> Path:
        return self.etc_dir / "api-token"

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.state_dir / 'sluice.db'}"


DEFAULTS = {one.name: one.default for one in fields(Config)}


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluiced", description="Sluice's host daemon: shapes the I/O of libvirt domains."
    )
    parser.add_argument("--version", action="version", version=f"sluiced {__version__}")
    parser.add_argument("--config", type=Path, help="TOML file (default: ETC-DIR/sluiced.toml)")
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="say whether these options and the file could work, change nothing, and end",
    )
    for one in fields(Config):
        words = one.metadata["help"] + (f" (default: {one.default})" if one.default else "")
        choices = LOG_LEVELS if one.name == "log_level" else None
        parser.add_argument(f"--{one.name.replace('_', '-')}", choices=choices, help=words)
    return parser


def _from_file(path: Path, required: bool) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if required:
            raise BadValue(
                "configuration file", str(path), "does not exist", "create it, or drop --config"
            ) from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadValue(
            "configuration file", str(path), f"cannot be read ({error})", "correct it"
        ) from error
    for key, value in values.items():
        if key not in DEFAULTS:
            raise BadValue(
                f"{path}: {key}", value, "is not a setting", f"use {', '.join(DEFAULTS)}"
            )
        if not isinstance(value, str):
            raise BadValue(f"{path}: {key}", value, "is not a string", "give a string in quotes")
    return values


def load(arguments: argparse.Namespace) -> Config:
    given = {k: v for k, v in vars(arguments).items() if k in DEFAULTS and v is not None}
    etc_dir = Path(given.get("etc_dir", DEFAULTS["etc_dir"]))
    path = arguments.config or etc_dir / "sluiced.toml"
    values = {**DEFAULTS, **_from_file(path, arguments.config is not None), **given}
    if values["log_level"] not in LOG_LEVELS:
        raise BadValue(
            "log_level", values["log_level"], "is not a level", f"use {', '.join(LOG_LEVELS)}"
        )
    for name in ("state_dir", "run_dir", "etc_dir", "agent_archive"):
        values[name] = Path(values[name]).absolute()
    if values["emulator"] is not None:
        # It is stored, and no setting is a path from wherever this start was.
        values["emulator"] = str(Path(values["emulator"]).absolute())
    return Config(**values)


def check_state_dir(folder: Path) -> None:
    """Raises BadValue for a folder with foreign files.

    The package's own folder is sluiced's, even with an operator's files in it.
    """
    if folder == Path(DEFAULTS["state_dir"]):
        return
    try:
        strangers = sorted(n.name for n in folder.iterdir() if not n.name.startswith(STATE_FILES))
    except FileNotFoundError:
        return
    except OSError as error:
        strangers = [f"something that cannot be read: {error.strerror}"]
    if strangers:
        raise BadValue(
            "state_dir",
            str(folder),
            f"has {strangers[0]}, which is none of sluiced's",
            "give an empty folder, or one that is not there yet",
        )
