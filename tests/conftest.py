# SPDX-License-Identifier: GPL-2.0-or-later
"""Markers by folder, and the host, guest and daemons that tests share.

The shared host is made when the first test asks for it, and is up until the
end of the run. Tests that change it restore it, or make a ``Testbed`` of their
own.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from testbed import Controller, FileDisk, Guest, GuestSpec, Testbed, Web, paths, patience, saved

TESTS = Path(__file__).parent
NULL = Path("/dev/null")
# How long an example takes is the machine's affair; nothing here asserts a time.
settings.register_profile(
    "sluice",
    settings.get_profile(settings.get_current_profile_name()),
    # Of each property whose test does not say how many; make test-long tries more.
    max_examples=int(os.environ.get("SLUICE_TEST_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sluice")
KINDS = ("unit", "integration", "e2e", "deploy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-pictures",
        action="store_true",
        help="store what the pages look like now (tests/e2e/web/test_web_pictures.py)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the folder of tests/ that it is in; be patient with real parts."""
    kinds = set()
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        kinds.add(kind)
        if kind in KINDS:
            item.add_marker(kind)
    if kinds & {"integration", "e2e"}:
        patience.use(patience.of_this_machine())


@pytest.fixture(autouse=True)
def machine_keeps_its_null_device() -> Iterator[None]:
    """Tests run as root, and every mount of devtmpfs shows the machine's own /dev.

    A program that replaces the file it writes to takes /dev/null from all others;
    the test during which that happens fails, whoever did it.
    """
    assert stat.S_ISCHR(NULL.lstat().st_mode), f"{NULL} was no device before this test began"
    yield
    assert stat.S_ISCHR(NULL.lstat().st_mode), f"{NULL} is no device any more: {NULL.lstat()}"


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """A host with libvirt and a network, and no guest."""
    with Testbed("test") as host:
        print(f"accelerator {host.accelerator.name}: {host.accelerator.reason}")
        yield host


@pytest.fixture(scope="session")
def controller(testbed: Testbed) -> Controller:
    """sluiced on the shared host."""
    return testbed.start_controller()


@pytest.fixture(scope="session")
def web(testbed: Testbed, controller: Controller) -> Web:
    """sluice-web on the shared host, reachable on this machine's loopback."""
    return testbed.start_web()


@pytest.fixture(scope="session")
def guest(testbed: Testbed, controller: Controller) -> Guest:
    """A small guest with a shaper, its agent connected, and the media disk.

    The disk is a raw file opened with O_DIRECT, so that what the guest reads
    is what the host's disk reads.
    """
    media = FileDisk(paths.image("media-data.img"), readonly=True)
    small = testbed.add_guest(GuestSpec("small", disks=(media,)), place=50)
    controller.call("POST", f"/v1/domains/{small.name}/attach", {})
    saved.start(small)
    controller.wait_for_agent(small.name)
    return small
