# SPDX-License-Identifier: GPL-2.0-or-later
"""The suites of ``make test`` and ``make test-long``: one list, in the order of starting."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from tally import Reader, count_cargo, count_closing_line, count_pytest, count_tap

TOP = Path(__file__).resolve().parents[2]
KINDS = ("unit", "property", "fuzz", "qtest", "integration", "e2e")
PATCHES = TOP / "qemu-patches"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider"]
PYTEST += ["--durations=10", "--durations-min=0.5"]


@dataclass(frozen=True)
class Suite:
    """A command and the reader that counts its tests.

    A suite runs on one processor, beside another one, unless it is ``alone``. Of suites that
    ``need`` the same thing only one runs at a time. ``long`` ones belong to ``make test-long``.
    ``budget_seconds`` ends a suite that hangs: several times what it takes beside another
    suite on two cores of a slow machine.
    """

    name: str
    kinds: tuple[str, ...]
    command: list[str]
    count: Reader
    budget_seconds: int
    long: bool = False
    alone: bool = False
    need: frozenset[str] = frozenset()
    may_skip: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = TOP


def pytest_suite(name: str, kind: str, budget_seconds: int, *what: str, **options) -> Suite:
    command = [*PYTEST, *what]
    return Suite(name, (kind,), command, count_pytest(kind), budget_seconds, **options)


def script_suite(name: str, kind: str, budget_seconds: int, *command: str, **options) -> Suite:
    """A script whose last line is ``N passed, N failed``."""
    counted = count_closing_line(kind)
    return Suite(name, (kind,), ["bash", *command], counted, budget_seconds, **options)


def suites() -> list[Suite]:
    """All suites. The long ones of each list come first, so that both lanes end together."""
    scripts = PATCHES / "scripts"
    return [
        pytest_suite("e2e", "e2e", 1500, "tests/e2e"),
        pytest_suite("controller", "integration", 2400, "tests/integration/controller"),
        script_suite("qtest", "qtest", 1200, f"{scripts}/qtest.sh"),
        pytest_suite("python-unit", "unit", 900, "-m", "not hypothesis", "tests/unit"),
        pytest_suite("testbed", "integration", 1200, "tests/integration/testbed"),
        pytest_suite("python-property", "property", 900, "-m", "hypothesis", "tests/unit"),
        # Seven of half a minute; clang may lack the library for them.
        script_suite("fuzz", "fuzz", 900, f"{scripts}/fuzz.sh", may_skip=True),
        pytest_suite("nightly", "integration", 1200, "tests/integration/nightly"),
        Suite("engine", ("unit", "property"), ["bash", f"{PATCHES}/tests/run.sh"], count_tap, 900),
        Suite(
            "agent",
            ("unit", "property"),
            ["bash", f"{TOP}/tools/setup/agent.sh", "test"],
            count_cargo,
            900,
        ),
        pytest_suite("ansible", "integration", 2400, "tests/integration/ansible", long=True),
        # It builds the packages first; with an empty cache that takes longest.
        pytest_suite("packaging", "integration", 2400, "tests/integration/packaging", long=True),
    ]
