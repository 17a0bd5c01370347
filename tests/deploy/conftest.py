# SPDX-License-Identifier: GPL-2.0-or-later
"""The fleet and what the tests of a deployment share.

The tests tell one story in the order of their files: nothing, installed, a
guest shaped, upgraded, proved at night, removed. A test names with
``@pytest.mark.needs`` the chapters that it builds on; when one of them failed,
it is skipped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import manifest, plan
from deploy.control import ControlNode
from deploy.fleet import Fleet
from deploy.guest import WEB1, NestedGuest
from deploy.machine import Machine
from deploy.report import Report
from testbed import paths

FAILED: set[str] = set()
RUN: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deploy")
    group.addoption("--fleet", type=Path, help="machines that `python -m deploy up` holds")
    group.addoption("--keep", action="store_true", help="hold the machines at the end")


def chapter(item: pytest.Item) -> str:
    """Return the name by which other tests need this one."""
    return item.originalname.removeprefix("test_")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        RUN.add(chapter(item))
    if report.failed:
        FAILED.add(chapter(item))


def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = {name for marker in item.iter_markers("needs") for name in marker.args}
    if needed & FAILED:
        FAILED.add(chapter(item))
        pytest.skip(f"needs {', '.join(sorted(needed & FAILED))}, which failed")
    if needed - RUN and not item.config.getoption("--fleet"):
        FAILED.add(chapter(item))
        pytest.skip(f"needs {', '.join(sorted(needed - RUN))}, which was not run")


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Report:
    return Report(paths.BUILD / "deploy", go_on=bool(request.config.getoption("--fleet")))


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest, report: Report) -> Iterator[Fleet]:
    """Two machines, booted. Their journals are saved when a test failed."""
    held = request.config.getoption("--fleet")
    if held:
        fleet = Fleet.attach(held.resolve())
        yield fleet
        _save_journals(fleet)
        return
    with Fleet() as fleet:
        print(f"machines: {fleet.folder}")
        for name, seconds in fleet.wait_ready().items():
            report.add(f"boot of {name}", seconds, "s")
        yield fleet
        _save_journals(fleet)
        hold_if_asked(request, fleet)


def _save_journals(fleet: Fleet) -> None:
    if FAILED:
        for machine in fleet.machines.values():
            machine.save_journal()


def hold_if_asked(request: pytest.FixtureRequest, fleet: Fleet) -> None:
    """With --keep: print the ways in, and wait for Enter."""
    if not request.config.getoption("--keep"):
        return
    capture = request.config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        print(f"\nThe machines stay up. Ways in:\n{fleet.shell_hint()}")
        try:
            input("Enter ends them. ")
        except EOFError:
            print("\nNobody is there to press it: they end.")
    finally:
        capture.resume_global_capture()


@pytest.fixture(scope="session")
def control(fleet: Fleet) -> ControlNode:
    """The operator's folder, with the collection installed."""
    node = ControlNode(fleet)
    node.install_collection()
    return node


@pytest.fixture(scope="session")
def inventory(fleet: Fleet, control: ControlNode) -> dict[str, Any]:
    return plan.inventory(fleet, control.passwords)


@pytest.fixture(scope="session")
def host1(fleet: Fleet) -> Machine:
    return fleet["host1"]


@pytest.fixture(scope="session")
def host2(fleet: Fleet) -> Machine:
    return fleet["host2"]


@pytest.fixture(scope="session")
def pristine(fleet: Fleet) -> dict[str, manifest.Manifest]:
    """The manifest of each machine from before anything was installed."""
    return manifest.take_all(fleet.machines.values(), fleet.folder)


@pytest.fixture(scope="session")
def guest(fleet: Fleet, host1: Machine) -> NestedGuest:
    """The operator's guest on host1."""
    return NestedGuest(fleet, host1, WEB1)
