# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Checks the values of variables that are written freely: files' settings, names, lists.

Pure: data in, list of problems out. Each problem is one sentence that names
the thing, its value and the remedy. The programs that read these settings have
the last word, but they see them when the host has been changed already. So
their tables stand here once more; a test compares them with the programs' own.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .rates import is_number, shown
from .sandbox import STATE, controller_problems, nightly_problems
from .shaping import SHUTDOWN_SECONDS

HISTORY_SECONDS = (60, 30 * 86400)
USER_CHARACTERS = 32
PASSWORD_CHARACTERS = (10, 1024)
# Null leaves what sluiced has.
MAY_BE_NULL = ("sluice_uplink", "sluice_history_seconds")

_INTERFACE = re.compile(r"[^\s/:]{1,15}")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_USER = re.compile(rf"[A-Za-z0-9._-]{{1,{USER_CHARACTERS}}}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?")
_RELEASE = re.compile(r"[a-z0-9._-]+ [a-z0-9._-]+")
_SOURCE = re.compile(r"deb[ \t]+(?:\[[^]\n]*\][ \t]+)?[^\s\[]\S*[ \t]+\S[^\n]*")
# Whom a URI names before its host, with their password.
_USERINFO = re.compile(r":(?://)?[^/\s]*@")


@dataclass(frozen=True)
class Setting:
    """One setting of a file.

    ``kind`` is str, bool, int (a whole number), float (a number) or PATH. Numbers
    have bounds; a text may have choices. A ``secret`` is not repeated in messages.
    """

    kind: object
    default: object
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()
    secret: bool = False


PATH = "absolute path"

# /etc/sluice/sluiced.toml. The folders with choices are where the collection and
# the page look for the daemon, and the group is the one that the page's unit and the
# operators are in: another would lock them out.
CONTROLLER = {
    "state_dir": Setting(PATH, STATE["sluiced"]),
    "run_dir": Setting(PATH, "/run/sluice", choices=("/run/sluice",)),
    "etc_dir": Setting(PATH, "/etc/sluice", choices=("/etc/sluice",)),
    "libvirt_uri": Setting(str, "qemu:///system"),
    "emulator": Setting(PATH, None),
    "group": Setting(str, "sluice", choices=("sluice",)),
    "qemu_group": Setting(str, "libvirt-qemu"),
    "database": Setting(str, None, secret=True),
    "log_level": Setting(str, "info", choices=("debug", "info", "warning", "error")),
}

# /etc/sluice/nightly.toml
NIGHTLY = {
    "run.accelerator": Setting(str, "auto", choices=("auto", "kvm", "tcg")),
    "run.probe_s": Setting(float, 20, 5, 600),
    "run.link_mbit": Setting(int, 200, 50, 10_000),
    "run.readers": Setting(int, 12, 1, 12),
    "run.wgets": Setting(int, 3, 1, 16),
    "run.overload": Setting(float, 1.5, 1, 10),
    "run.control_s": Setting(float, 20, 5, 120),
    "run.unshaped_s": Setting(float, 30, 5, 300),
    "run.auto_s": Setting(float, 30, 5, 600),
    "run.media_mib": Setting(int, 768, 512, 1536),
    "run.web_mib": Setting(int, 512, 384, 1024),
    "run.patience": Setting(float, 1, 1, 20),
    "run.limit_s": Setting(float, 1200, 60, 7200),
    "checks.background_ratio": Setting(float, 0.70, 0, 1),
    "checks.settled_s": Setting(float, 60, 1, 600),
    "start.guest_disk_mb_per_s": Setting(float, 5, 0, 1e6),
    "start.guest_net_mb_per_s": Setting(float, 5, 0, 1e6),
    "start.guest_processors": Setting(float, 0.5, 0, 1e4),
    "start.pressure_cpu": Setting(float, 10, 0, 100),
    "start.pressure_io": Setting(float, 10, 0, 100),
    "start.pressure_memory": Setting(float, 1, 0, 100),
    "start.load_per_processor": Setting(float, 0.5, 0, 100),
    "start.memory_spare_mib": Setting(int, 1024, 0, 1_000_000),
    "start.disk_spare_mib": Setting(int, 2048, 0, 100_000_000),
    "start.watch_s": Setting(float, 5, 1, 60),
    "start.without_libvirt": Setting(bool, False),
    "abort.guest_disk_mb_per_s": Setting(float, 20, 0, 1e6),
    "abort.guest_net_mb_per_s": Setting(float, 20, 0, 1e6),
    "abort.guest_processors": Setting(float, 1, 0, 1e4),
    "abort.pressure": Setting(float, 20, 0, 100),
    "abort.memory_spare_mib": Setting(int, 512, 0, 1_000_000),
    "abort.every_s": Setting(float, 5, 1, 60),
    "abort.samples": Setting(int, 2, 1, 100),
    "keep.results": Setting(int, 90, 1, 1000),
    "paths.state": Setting(PATH, STATE["sluice-nightly"]),
    "paths.socket": Setting(PATH, "/run/sluice/sluiced.sock"),
    "paths.token_file": Setting(PATH, "/etc/sluice/api-token"),
    "paths.emulator": Setting(PATH, "/usr/lib/sluice/qemu/bin/qemu-system-x86_64"),
    "paths.libvirt_uri": Setting(str, "qemu:///system"),
}


# What a nightly run takes beside its guests' memory, and what making each part of
# its images takes on the disk until it is made, with the files that tell.
NIGHTLY_BESIDE_MIB = 512
NIGHTLY_RUN_MIB = 512
NIGHTLY_PARTS = (
    {"files": ["vmlinuz", "initrd.img", "root.img", "id_ed25519"], "mib": 1600},
    {"files": ["media-data.img", "web-data.img", "movie.img"], "mib": 4300},
)


def _number_problem(value: object, setting: Setting) -> str | None:
    whole = setting.kind is int
    if not is_number(value) or (whole and value != int(value)):
        return f"is no {'whole ' if whole else ''}number: give one, without quotes"
    if not setting.least <= value <= setting.most:
        return f"is out of range: give {setting.least:g} to {setting.most:g}"
    return None


def _text_problem(value: object, setting: Setting) -> str | None:
    if not isinstance(value, str):
        return "is no text: write it in quotes"
    # A file's string holds no control characters, and an empty one names nothing.
    if not value or not value.isprintable():
        return "is not usable text: give printable characters"
    if setting.choices and value not in setting.choices:
        return f"is not possible: use {', '.join(setting.choices)}"
    if setting.kind is PATH and not value.startswith("/"):
        return "is not an absolute path: begin it with /"
    return None


def setting_problem(value: object, setting: Setting) -> str | None:
    """What is wrong with one value, and the remedy after a colon; None if nothing is."""
    if setting.kind is bool:
        known = isinstance(value, bool)
        return None if known else "is neither true nor false: give one, without quotes"
    if setting.kind in (int, float):
        return _number_problem(value, setting)
    return _text_problem(value, setting)


def _unknown_hint(name: object, known: Mapping) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    sections = sorted({key.partition(".")[0] for key in known if "." in key})
    if str(name) in sections:
        return f"write dotted names, for example {next(k for k in known if k.startswith(name))}"
    return f"use one of {', '.join(known)}"


def file_problems(variable: str, given: Mapping, known: Mapping[str, Setting]) -> list[str]:
    """What is wrong with a mapping of settings' names to values."""
    problems = []
    for name, value in given.items():
        setting = known.get(name) if isinstance(name, str) else None
        if setting is None:
            hint = _unknown_hint(name, known)
            problems.append(f"{variable}: setting {name!r} is not known: {hint}")
            continue
        problem = setting_problem(value, setting)
        if problem:
            told = "" if setting.secret else f" {shown(value)}"
            problems.append(f"{variable}: {name}{told} {problem}")
    return problems


def _files_problems(variable: str, known: Mapping[str, Setting], impossible: Callable) -> Callable:
    """Judges a file's settings: each by itself, then what the unit's sandbox makes of them."""

    def judge(given: Mapping) -> list[str]:
        problems = file_problems(variable, given, known)
        if problems:
            return problems
        for name, problem in impossible(given).items():
            told = "" if known[name].secret else f" {shown(given[name])}"
            problems.append(f"{variable}: {name}{told} {problem}")
        return problems

    return judge


def nightly_needs(given: Mapping) -> dict:
    """What the nightly run needs with these settings, as the module preflight takes it."""

    def setting(name: str) -> object:
        return given.get(name, NIGHTLY[name].default)

    guests = setting("run.media_mib") + setting("run.web_mib") + NIGHTLY_BESIDE_MIB
    return {
        "state": setting("paths.state"),
        "parts": [dict(part) for part in NIGHTLY_PARTS],
        "run_mib": int(NIGHTLY_RUN_MIB + setting("start.disk_spare_mib")),
        "memory_mib": int(guests + setting("start.memory_spare_mib")),
    }


def _each(variable: str, values: list, good: Callable[[str], bool], problem: str) -> list[str]:
    return [f"{variable}: {value!r} {problem}" for value in values if not good(value)]


def certificate_name(value: str) -> bool:
    """Whether a certificate can hold the name: one of DNS, or an address without a zone."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return len(value) <= 253 and bool(_DNS_NAME.fullmatch(value))
    return "%" not in value


def web_names_problems(values: list, variable: str = "sluice_web_names") -> list[str]:
    """Names in a certificate that the host makes itself."""
    remedy = "is no name for a certificate: give DNS names (xn-- for others) and IP addresses"
    return _each(variable, values, certificate_name, remedy)


def _free_problems(given: Mapping) -> list[str]:
    problems = []
    for path, need in given.items():
        if not isinstance(path, str) or not path.startswith("/"):
            problems.append(f"sluice_free_mib: {path!r} is no folder of the host: begin it with /")
        elif not is_number(need) or need < 0:
            problems.append(
                f"sluice_free_mib: {path} {shown(need)} is no number of MiB: give 0 or more,"
                " without quotes"
            )
    return problems


def _bind_problems(value: str) -> list[str]:
    host, _colon, port = value.rpartition(":")
    address = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\]", host)
    try:
        sound = (
            bool(ipaddress.IPv6Address(address[1]))
            if address
            else bool(_DNS_NAME.fullmatch(host) and "*" not in host)
        )
    except ValueError:
        sound = False
    if sound and re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536:
        return []
    return [f"sluice_web_bind {value!r} is not HOST:PORT: give for example 0.0.0.0:8480"]


def _uplink_problems(value: str) -> list[str]:
    if not value or (_INTERFACE.fullmatch(value) and value.isprintable()):
        return []
    return [f"sluice_uplink {value!r} is not an interface: give a name that 'ip link' shows"]


def _range_problems(name: str, value: object, bounds: tuple[int, int]) -> list[str]:
    least, most = bounds
    # With -e a number arrives as text.
    if re.fullmatch(r"[0-9]{1,9}", str(value)) and least <= int(value) <= most:
        return []
    return [f"{name} {shown(value)} is out of range: give {least} to {most}"]


def _user_problems(value: str) -> list[str]:
    if _USER.fullmatch(value):
        return []
    return [
        f"sluice_web_admin_user {value!r} is not a user name: give 1 to {USER_CHARACTERS} letters,"
        " digits, dots, dashes or underscores"
    ]


def _password_problems(value: str) -> list[str]:
    """The password itself is in no message."""
    least, most = PASSWORD_CHARACTERS
    name = "sluice_web_admin_password"
    if value and not least <= len(value) <= most:
        return [
            f"{name} has {len(value)} characters: use {least} to {most}, or leave it empty to have"
            " one generated"
        ]
    if "\n" in value:
        return [f"{name} has more than one line: give one, without a line's end"]
    return []


def _source_problems(value: str) -> list[str]:
    """What may be a password is in no message."""
    name = "sluice_apt_repository"
    if _USERINFO.search(value):
        return [
            f"{name} has a user or a password in its URI, which all users of the host could read:"
            " write the URI without, and put both into a file in /etc/apt/auth.conf.d on the host"
            " (see apt_auth.conf(5))"
        ]
    if not value or _SOURCE.fullmatch(value):
        return []
    told = "" if "@" in value else f" {value!r}"
    return [f"{name}{told} is not a source: write 'deb URI SUITE COMPONENT'"]


CHECKS: dict[str, Callable] = {
    "sluice_controller_config": _files_problems(
        "sluice_controller_config", CONTROLLER, controller_problems
    ),
    "sluice_nightly_config": _files_problems("sluice_nightly_config", NIGHTLY, nightly_problems),
    "sluice_web_names": web_names_problems,
    "sluice_free_mib": _free_problems,
    "sluice_web_bind": _bind_problems,
    "sluice_uplink": _uplink_problems,
    "sluice_history_seconds": lambda v: _range_problems(
        "sluice_history_seconds", v, HISTORY_SECONDS
    ),
    "sluice_shutdown_seconds": lambda v: _range_problems(
        "sluice_shutdown_seconds", v, SHUTDOWN_SECONDS
    ),
    "sluice_web_admin_user": _user_problems,
    "sluice_web_admin_password": _password_problems,
    "sluice_apt_repository": _source_problems,
    "sluice_prerequisites": lambda v: _each(
        "sluice_prerequisites", v, _PACKAGE.fullmatch, "is not a package's name: correct it"
    ),
    "sluice_host_releases": lambda v: _each(
        "sluice_host_releases", v, _RELEASE.fullmatch, "is not ID and VERSION_ID: write 'debian 13'"
    ),
    "sluice_guest_releases": lambda v: _each(
        "sluice_guest_releases",
        v,
        _RELEASE.fullmatch,
        "is not ID and VERSION_ID: write 'debian 13'",
    ),
}


def kind_problem(value: object, option: Mapping) -> str | None:
    """Whether a value is of its option's kind as it stands.

    Ansible's own check takes what could be converted (a number for a text, a text
    with commas for a list), but the roles get the value as it was written.
    """
    kind = option.get("type")
    if value is None:
        return "has no value: give one, or leave the variable out"
    if kind == "str" and not isinstance(value, str):
        return "is no text: write it in quotes"
    if kind == "dict" and not isinstance(value, Mapping):
        return "is no mapping: give 'name: value' lines below it"
    if kind != "list":
        return None
    if not isinstance(value, (list, tuple)):
        return "is no list: begin each entry with '- '"
    if option.get("elements") == "str":
        odd = [entry for entry in value if not isinstance(entry, str)]
        if odd:
            return f"has an entry that is no text ({odd[0]!r}): write it in quotes"
    return None


def variable_problems(values: Mapping, options: Mapping[str, Mapping]) -> list[str]:
    """Every problem of variables, each looked at by itself."""
    problems: list[str] = []
    for name, option in options.items():
        value = values.get(name)
        if value is None and name in MAY_BE_NULL:
            continue
        problem = kind_problem(value, option)
        if problem:
            told = "" if value is None or option.get("no_log") else f" {shown(value)}"
            problems.append(f"{name}{told} {problem}")
        elif name in CHECKS:
            problems += CHECKS[name](value)
    return problems
