# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""What settings ask of the units' sandbox: what a drop-in can give, and what it must not.

Pure. The units see the host's files, but may write to their own folders alone
(ProtectSystem=strict); what is below /home and /tmp they do not see at all
(ProtectHome, PrivateTmp). sluiced reaches no network, and the page no port that
is kept for root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import unquote, urlsplit

# Not there for the services, or another folder of that name.
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
# No place for data: the system's own, or gone at the next boot.
SYSTEM = (
    *("/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run"),
    *("/sbin", "/sys", "/usr", "/var/lock", "/var/run"),
    # Of the other parts of Sluice.
    *("/var/lib/sluice-ansible", "/var/lib/sluice-apt", "/var/lib/sluice-web"),
)
STATE = {"sluiced": "/var/lib/sluice", "sluice-nightly": "/var/lib/sluice-nightly"}
# What each program makes in its folder, as fnmatch patterns: all that a removal deletes in
# one that was given.
CONTENTS = {
    "sluiced": ["sluice.db", "sluice.db-wal", "sluice.db-shm", "sluice.db-journal"],
    "sluice-nightly": [
        *("images", "ready", "results", "runs"),
        *("accelerator.json", "lock", "running.json"),
        *("accelerator.*.tmp", "running.tmp"),
    ],
}
# Of an SQLAlchemy URL, and the Debian package with its driver.
DRIVERS = {
    "postgresql": "python3-psycopg2",
    "postgresql+psycopg2": "python3-psycopg2",
}
# sluiced's own name for its SQLite file, in state_dir. No other is known to removal, nor to the
# check that a folder holds nothing else.
DATABASE = "sluice.db"
# sysctl net.ipv4.ip_unprivileged_port_start, as the kernel has it.
FIRST_FREE_PORT = 1024

_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._+-]+)+")


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    """Whether it is one of these folders, or in one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def is_made(name: str, contents: Iterable[str]) -> bool:
    """Whether a name in a folder is of what its program makes there, which ``contents`` tells."""
    return any(fnmatchcase(name, pattern) for pattern in contents)


def seen_problem(path: str) -> str | None:
    """What is wrong with a path that a service is to read."""
    if is_below(path, HIDDEN):
        return (
            "is not seen by the service, which has no /home, /root and /run/user and a /tmp of its"
            " own: give a path elsewhere"
        )
    return None


def state_problem(path: str, program: str) -> str | None:
    """What is wrong with a folder for data that a program makes its own."""
    if path == STATE[program]:
        return None
    # A unit's file reads spaces, quotes and percent signs in its own way.
    if not _PLAIN.fullmatch(path):
        return "is not written plainly: give a path of letters, digits and ._+- without .. and //"
    if seen_problem(path):
        return seen_problem(path)
    name = STATE[program].rpartition("/")[2]
    others = tuple(folder for other, folder in STATE.items() if other != program)
    if is_below(path, (*SYSTEM, *others)):
        return f"is no place for data: give a folder like /srv/{name}"
    in_var = is_below(path, ("/var",))
    if path.count("/") < (3 if in_var else 2):
        like = f"{'/srv' if in_var else path}/{name}"
        return f"is not a folder of its own, which is closed to others: give one like {like}"
    return None


def _file_of(url: str) -> str:
    """The file of an SQLite URL as SQLAlchemy reads it; empty for one in memory."""
    return unquote(url.partition("://")[2].partition("?")[0]).removeprefix("/")


def database_problem(url: str, state_dir: str) -> str | None:
    """What is wrong with an SQLAlchemy URL. It may hold a password and is not repeated."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme.partition("+")[0] == "sqlite":
        path, wanted = _file_of(url), f"{state_dir}/{DATABASE}"
        if path == wanted:
            return None
        # What is no plain path may be a password.
        told = f"is the file {path!r} and not" if _PLAIN.fullmatch(path) else "is not the file"
        return (
            f"{told} {wanted!r}: leave it out, set state_dir to the file's folder, and name the"
            f" file {DATABASE}"
        )
    if scheme in DRIVERS:
        return None
    return (
        f"is for none of the databases that are known here: begin it with {', '.join(DRIVERS)},"
        " or leave it out for SQLite"
    )


def libvirt_problem(uri: str) -> str | None:
    """sluiced and the guests' pages are on one host."""
    try:
        elsewhere = bool(urlsplit(uri).netloc)
    except ValueError:
        elsewhere = True
    if elsewhere:
        return "is another host's libvirt: give this host's, qemu:///system"
    return None


def controller_problems(given: Mapping) -> dict[str, str]:
    """By setting, what the sandbox of sluiced makes impossible; values are of their kind."""
    found: dict[str, str | None] = {}
    state_dir = given.get("state_dir", STATE["sluiced"])
    if "state_dir" in given:
        found["state_dir"] = state_problem(state_dir, "sluiced")
    if "emulator" in given:
        found["emulator"] = seen_problem(given["emulator"])
    if "database" in given:
        found["database"] = database_problem(given["database"], state_dir)
    if "libvirt_uri" in given:
        found["libvirt_uri"] = libvirt_problem(given["libvirt_uri"])
    return {name: problem for name, problem in found.items() if problem}


def nightly_problems(given: Mapping) -> dict[str, str]:
    """The same of the nightly run."""
    found: dict[str, str | None] = {}
    for name, value in given.items():
        if name == "paths.state":
            found[name] = state_problem(value, "sluice-nightly")
        elif name in ("paths.socket", "paths.token_file", "paths.emulator"):
            found[name] = seen_problem(value)
    return {name: problem for name, problem in found.items() if problem}


# What drop-ins give


def own_folders(given: Mapping) -> dict[str, str]:
    """{program: folder} of those that these settings move away from where its package has it."""
    names = {"state_dir": "sluiced", "paths.state": "sluice-nightly"}
    return {
        program: given[name]
        for name, program in names.items()
        if name in given and not is_below(given[name], (STATE[program],))
    }


def folders_to_check(given: Mapping) -> dict[str, list[str]]:
    """{folder: what its program makes there}, which is all that may be in it."""
    return {folder: CONTENTS[program] for program, folder in own_folders(given).items()}


def _service(lines: list[str]) -> list[str]:
    return ["[Service]", *lines] if lines else []


def _folders(given: Mapping) -> tuple[list[str], list[str]]:
    """Lines about the unit and about the service, for folders elsewhere.

    They may be places of mounts, and the service does not start without them.
    """
    folders = list(own_folders(given).values())
    mounts = [f"RequiresMountsFor={folder}" for folder in folders]
    return ["[Unit]", *mounts] if mounts else [], [f"ReadWritePaths={folder}" for folder in folders]


def controller_dropin(given: Mapping) -> list[str]:
    """For sluiced.service with these settings."""
    unit, service = _folders(given)
    if given.get("database", "").partition("://")[0] in DRIVERS:
        # Added to those of the unit.
        service.append("RestrictAddressFamilies=AF_INET AF_INET6")
    return unit + _service(service)


def nightly_dropin(given: Mapping) -> list[str]:
    """For sluice-nightly.service with these settings."""
    unit, service = _folders(given)
    return unit + _service(service)


def web_dropin(bind: str) -> list[str]:
    """For sluice-web.service with this address.

    In a user namespace of its own (PrivateUsers) a capability says nothing about
    the host's ports.
    """
    if int(bind.rpartition(":")[2]) >= FIRST_FREE_PORT:
        return []
    return _service(
        [
            "AmbientCapabilities=CAP_NET_BIND_SERVICE",
            "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
            "PrivateUsers=no",
        ]
    )


def driver_packages(given: Mapping) -> list[str]:
    """Packages that sluiced needs besides its own for this database."""
    scheme = given.get("database", "").partition("://")[0]
    return [DRIVERS[scheme]] if scheme in DRIVERS else []
