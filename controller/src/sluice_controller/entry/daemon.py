# SPDX-License-Identifier: GPL-2.0-or-later
"""sluiced: the API on a UNIX socket, and the loops behind it."""

from __future__ import annotations

import errno
import fcntl
import gc
import grp
import logging
import os
import pwd
import secrets
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from flask import Flask
from waitress.server import UnixWSGIServer, create_server

from ..adapters.database.opening import check_url
from ..domain.errors import BadValue, SluiceError, Unavailable
from ..services.events import Events
from .api.app import create_app, written_document
from .api.pools import Pools
from .config import Config, argument_parser, check_state_dir, load
from .wiring import Services

log = logging.getLogger(__name__)

# Of an answer in parts, as a stream is: the next part waits for a client that does not read.
UNREAD_BYTES = 256 << 10
# Exit codes of faults that may pass, and of faults that need a correction, such as wrong
# options (2 is argparse's own): sluiced.service tries again only after the first.
FAILED_NOW, CANNOT_WORK = 1, 2
# Set-group-ID and sticky: only its maker can remove a page.
PAGES_MODE = 0o3770
# Debian puts users of /dev/kvm into it.
ACCELERATOR_GROUP = "kvm"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def _give_to_group(path: Path, group: str, mode: int) -> None:
    """Group and mode; a host without the group, or without root, keeps its own."""
    path.chmod(mode)
    if os.geteuid() != 0:
        return
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        log.warning("there is no group %s: %s is left to root", group, path)


def _make_folder(name: str, folder: Path, mode: int | None = None) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if mode is not None:
            folder.chmod(mode)
    except OSError as error:
        kind = Unavailable if error.errno in NO_ROOM else BadValue
        raise kind(
            name,
            str(folder),
            f"cannot be made ({error.strerror})",
            "give a folder that sluiced may write to; its unit writes only to those that"
            " ReadWritePaths= of a drop-in names, which must be there",
        ) from error


def _users_in(group: str) -> set[str]:
    """The users with this primary or further group; none if there is no group of that name."""
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return set()
    primary = (user.pw_name for user in pwd.getpwall() if user.pw_gid == found.gr_gid)
    return {*found.gr_mem, *primary}


def warn_of_group(group: str) -> None:
    """Warns unless QEMU's user is the group's only member."""
    users = sorted(_users_in(group))
    if len(users) == 1 and group != ACCELERATOR_GROUP:
        return
    who = "nobody is" if not users else "every user of KVM may be"
    if len(users) > 1:
        who = f"{', '.join(users)} are"
    log.warning(
        "qemu_group %s: %s in it: give the group that QEMU's user alone is in, on Debian"
        " libvirt-qemu; who is in it can spoil what guests are shaped and judged by, and a"
        " guest whose QEMU is not in it does not start",
        group,
        who,
    )


def prepare_folders(config: Config) -> None:
    _make_folder("state_dir", config.state_dir, 0o750)
    _make_folder("run_dir", config.run_dir)
    _make_folder("etc_dir", config.etc_dir)
    config.pages_dir.mkdir(exist_ok=True)
    # QEMU, under libvirt's user, creates its counters page here, and no other user can replace
    # it: pages belong to the group, and their names to their maker.
    _give_to_group(config.pages_dir, config.qemu_group, PAGES_MODE)
    warn_of_group(config.qemu_group)


def take_lock(config: Config) -> IO[str]:
    """One daemon per run folder; the lock lasts as long as the file is open."""
    lock = config.lock_path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # It may end.
        raise Unavailable(
            "run folder",
            str(config.run_dir),
            "is in use by another sluiced",
            "stop that one, or give this one a --run-dir of its own",
        ) from None
    return lock


def api_token(config: Config) -> str:
    path = config.token_path
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        token = ""
    if not token:
        token = secrets.token_urlsafe(32)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
        log.info("made a new API token in %s", path)
    _give_to_group(path, config.group, 0o640)
    return token


def spare_the_collector() -> None:
    """Collects garbage seldom, and only among new objects: each tick makes and drops thousands
    of values, while the libraries, loaded by now, stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _on_signal(signum: int, _frame: Any) -> None:
    raise SystemExit(0)


def api_server(app: Flask, socket: Path, events: Events) -> UnixWSGIServer:
    return create_server(
        app,
        unix_socket=str(socket),
        unix_socket_perms="660",
        # Also while an answer is under way, so that a stream's client that left is noticed.
        channel_request_lookahead=1,
        outbuf_high_watermark=UNREAD_BYTES,
        ident=None,
        _dispatcher=Pools(events.close),
    )


def serve(config: Config) -> None:
    # Set before any lasting change begins: an interrupted change is taken back.
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    prepare_folders(config)
    with ExitStack() as at_end:
        at_end.enter_context(take_lock(config))
        token = api_token(config)
        services = Services(config)
        at_end.callback(services.stop)
        at_end.callback(config.socket_path.unlink, missing_ok=True)
        server = api_server(create_app(services, token), config.socket_path, services.events)
        at_end.callback(server.close)
        _give_to_group(config.socket_path, config.group, 0o660)
        # Each page of the web needs it: the first visitor does not wait for its making.
        written_document()
        spare_the_collector()
        services.start()
        # Objects of the start stay. A collection that walked it each time would hold up the
        # loops while it does.
        gc.collect()
        gc.freeze()
        log.info("listening on %s", config.socket_path)
        at_end.callback(log.info, "stopping")
        server.run()


def exit_status(error: SluiceError) -> int:
    """Of a start that failed."""
    return FAILED_NOW if isinstance(error, Unavailable) else CANNOT_WORK


def check(config: Config) -> None:
    """Say that a start with these settings makes sense; nothing is made, opened or reached.

    Raises BadValue.
    """
    check_state_dir(config.state_dir)
    check_url(config.database_url)
    print("sluiced: the configuration can work")


def main() -> None:
    try:
        arguments = argument_parser().parse_args()
        config = load(arguments)
        if arguments.check_config:
            return check(config)
        logging.basicConfig(
            level=config.log_level.upper(),
            format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s",
        )
        # Each migration logs two useless lines at "info".
        logging.getLogger("alembic").setLevel(logging.WARNING)
        # The end of each client of an event stream is no news.
        logging.getLogger("waitress").setLevel(logging.WARNING)
        serve(config)
    except SluiceError as error:
        print(f"sluiced: {error}", file=sys.stderr)
        sys.exit(exit_status(error))


if __name__ == "__main__":
    main()
