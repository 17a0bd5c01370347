# SPDX-License-Identifier: GPL-2.0-or-later
"""Print APT sources for another Debian suite, derived from this machine's own.

The machine's administrator has already chosen where Debian comes from (a
mirror, a proxy, a snapshot), so guest trees and build roots are made from the
same place: each source that carries this machine's own suite is printed with
the suite replaced. Security and update pockets are left out: a guest of the
tests lives in a network namespace, and a build root serves no one.

Both forms are read: one-line (``*.list``) and deb822 (``*.sources``). The
answer is in deb822 form, on standard output.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ETC = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
# APT's words for no.
OFF = ("no", "false", "without", "off", "disable", "0")


class NoSource(Exception):
    """No source of the machine carries the suite; the text has the remedy."""


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield each enabled deb822 stanza as {lower-case field: value}."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        last = None
        for line in block.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t" and last:
                fields[last] += "\n" + line
                continue
            name, colon, value = line.partition(":")
            if colon:
                last = name.strip().lower()
                fields[last] = value.strip()
        if fields and fields.get("enabled", "yes").lower() not in OFF:
            yield fields


def one_line_stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield each ``deb [options] URI SUITE COMPONENT…`` line as deb822 fields."""
    pattern = re.compile(r"\s*deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)")
    for line in text.splitlines():
        match = pattern.match(line)
        if not match:
            continue
        fields = {
            "types": "deb",
            "uris": match[2],
            "suites": match[3],
            "components": match[4].strip(),
        }
        for option in (match["options"] or "").split():
            name, _, value = option.partition("=")
            if name.lower() in ("signed-by", "trusted", "check-valid-until"):
                fields[name.lower()] = value
        yield fields


def for_suite(sources: Iterable[dict[str, str]], own: str, wanted: str) -> str:
    """Return deb822 text: those of ``sources`` that carry ``own``, for ``wanted``."""
    found = []
    for fields in sources:
        if "deb" not in fields.get("types", "deb").split():
            continue
        if own not in fields.get("suites", "").split():
            continue
        if "main" not in fields.get("components", "").split():
            continue
        changed = {**fields, "types": "deb", "suites": wanted, "components": "main"}
        changed.pop("enabled", None)
        found.append("".join(f"{name.title()}: {value}\n" for name, value in changed.items()))
    if not found:
        raise NoSource(
            f"no APT source under {ETC} carries the suite {own} with the component main; "
            "add one (guest images and build roots are made from the same place)"
        )
    return "\n".join(dict.fromkeys(found))


def own_suite(os_release: str) -> str:
    """Return VERSION_CODENAME of an os-release file."""
    match = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', os_release, re.MULTILINE)
    if not match:
        raise NoSource(f"{OS_RELEASE} names no VERSION_CODENAME; use Debian 12 or 13")
    return match[1]


def of_machine(etc: Path) -> list[dict[str, str]]:
    """Return every source configured under ``etc``."""
    found: list[dict[str, str]] = []
    lists = [etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]
    for path in lists:
        if path.is_file():
            found += one_line_stanzas(path.read_text())
    for path in sorted(etc.glob("sources.list.d/*.sources")):
        found += stanzas(path.read_text())
    return found


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: apt_sources.py SUITE", file=sys.stderr)
        return 2
    try:
        own = own_suite(OS_RELEASE.read_text())
        print(for_suite(of_machine(ETC), own, sys.argv[1]), end="")
    except NoSource as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
