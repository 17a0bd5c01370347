# SPDX-License-Identifier: GPL-2.0-or-later
"""The suites of ``make test`` and ``make test-long``: one list, in the order of starting."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from tally import Reader, count_cargo, count_closing_line, count_pytest, count_tap

TOP = Path(__file__).resolve().parents[2]
KINDS = ("unit", "property", "fuzz", "qtest", "integration", "e2e", "stress")
# Of tests/integration/controller, the tests with guests or whole hosts.
GUESTS = ("test_shaped_guest.py", "test_restarts.py", "test_migration.py")
PATCHES = TOP / "qemu-patches"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider"]
PYTEST += ["--durations=10", "--durations-min=0.5"]


@dataclass(frozen=True)
class Suite:
    """A command and the reader that counts its tests.

    ``processors`` is the number that a suite keeps busy when it is alone: 2 if it can use more,
    0.5 if it waits half of its time. ``long`` suites belong to ``make test-long``, the others
    to ``make test``. ``budget_seconds`` ends a suite that hangs: several times its time beside
    another suite on two cores of a slow machine.
    """

    name: str
    kinds: tuple[str, ...]
    command: list[str]
    count: Reader
    budget_seconds: int
    long: bool = False
    processors: float = 1.0
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


def tap_suite(name: str, script: str, count: Reader, *arguments: str) -> Suite:
    """A script whose every line is a test, of which some are properties."""
    return Suite(name, ("unit", "property"), ["bash", script, *arguments], count, 900)


def suites() -> list[Suite]:
    """All suites, of each list those first that take longest: so both lanes end together."""
    return [*_daily(), *_long()]


def _daily() -> list[Suite]:
    scripts = PATCHES / "scripts"
    controller = "tests/integration/controller"
    guests = [f"{controller}/{name}" for name in GUESTS]
    no_guests = [controller, *(f"--ignore={name}" for name in guests)]
    page_tests = "tests/e2e/web"
    return [
        script_suite("qtest", "qtest", 1800, f"{scripts}/qtest.sh", processors=0.5),
        pytest_suite("controller-guests", "integration", 1800, *guests, processors=0.5),
        pytest_suite("e2e", "e2e", 1800, f"--ignore={page_tests}", "tests/e2e", processors=0.5),
        pytest_suite("python-unit", "unit", 900, "-m", "not hypothesis", "tests/unit"),
        pytest_suite("testbed", "integration", 1200, "tests/integration/testbed", processors=0.5),
        pytest_suite("e2e-web", "e2e", 900, page_tests),
        pytest_suite("controller", "integration", 900, *no_guests),
        pytest_suite("python-property", "property", 900, "-m", "hypothesis", "tests/unit"),
        script_suite("fuzz", "fuzz", 900, f"{scripts}/fuzz.sh", "--smoke"),
        pytest_suite("nightly", "integration", 1200, "tests/integration/nightly", processors=0.5),
        tap_suite("engine", f"{PATCHES}/tests/run.sh", count_tap),
        tap_suite("agent", f"{TOP}/tools/setup/agent.sh", count_cargo, "test"),
    ]


def _long() -> list[Suite]:
    """Pieces that are bounded, so that a night is enough for them."""
    scripts, stress = PATCHES / "scripts", [sys.executable, "-m", "measure.stress"]
    builds = [f"{TOP}/build/qemu-stock-full", f"{TOP}/build/qemu-full"]
    return [
        Suite(
            "stock-tests",
            ("qtest",),
            [sys.executable, f"{scripts}/stock_tests.py", *builds, "--short"],
            count_closing_line("qtest"),
            5400,
            processors=2,
            long=True,
        ),
        script_suite(
            "fuzz-long",
            "fuzz",
            1800,
            f"{scripts}/fuzz.sh",
            processors=2,
            long=True,
            may_skip=True,
            environment={"SLUICE_FUZZ_SECONDS": "60"},
        ),
        Suite(
            "stress-changes",
            ("stress",),
            [*stress, "changes", "--count=10000", "--seconds=60", "--skip-times"],
            count_closing_line("stress"),
            1200,
            processors=2,
            long=True,
            folder=TOP / "tests",
        ),
        Suite(
            "stress-migration",
            ("stress",),
            [*stress, "migration", "--count=5"],
            count_closing_line("stress"),
            1200,
            processors=2,
            long=True,
            folder=TOP / "tests",
        ),
        script_suite(
            "lifecycle",
            "qtest",
            3600,
            f"{scripts}/stress.sh",
            "lifecycle",
            f"{TOP}/build/qemu-asan",
            "10",
            long=True,
        ),
        # Two machines are booted; faults of a host are named before it is changed.
        Suite(
            "hosts",
            ("e2e",),
            ["bash", f"{TOP}/tools/test/deploy.sh", "-k", "test_1"],
            count_pytest("e2e"),
            3600,
            long=True,
        ),
        pytest_suite("ansible", "integration", 3600, "tests/integration/ansible", long=True),
        # It builds the packages first; with an empty cache that takes longest.
        pytest_suite("packaging", "integration", 3600, "tests/integration/packaging", long=True),
        pytest_suite(
            "python-property-long",
            "property",
            5400,
            "-m",
            "hypothesis",
            "tests/unit",
            long=True,
            environment={"SLUICE_TEST_EXAMPLES": "500"},
        ),
    ]
