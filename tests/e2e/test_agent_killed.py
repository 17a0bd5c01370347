# SPDX-License-Identifier: GPL-2.0-or-later
"""A killed agent leaves its tags and its programs in the kernel; the next agent takes both over."""

import time
from collections.abc import Callable, Iterator

import pytest

from testbed import Controller, Guest, patience

CLASS = "kept"
PROGRAMS = 4


@pytest.fixture
def granted(controller: Controller, guest: Guest) -> Iterator[None]:
    """A class, to which the user ``player`` belongs."""
    path = f"/v1/domains/{guest.name}/classes/{CLASS}"
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": CLASS, "priority": 5})
    controller.call("PUT", path, {"limits": {}})
    rule = {"domain": guest.name, "class": CLASS, "match": {"user": "player"}}
    number = controller.call("POST", "/v1/rules", rule)["id"]
    yield
    guest.kill_unit("before")
    guest.kill_unit("after")
    controller.call("DELETE", f"/v1/rules/{number}")
    controller.call("DELETE", path)
    controller.call("DELETE", f"/v1/classes/{CLASS}")


def await_that(explain: Callable[[], object], is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + patience.seconds(60)
    while not is_so():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.2)


def agent(guest: Guest) -> tuple[str, list[str]]:
    """Its process and the links by which its programs are in force."""
    text = guest.ssh(
        "pid=$(systemctl show -p MainPID --value sluice-agent); echo $pid;"
        " cat /proc/$pid/fdinfo/* | grep ^link_id",
        check=False,
    ).stdout
    pid, *links = text.splitlines() or [""]
    return pid, sorted(links)


def is_tagged(guest: Guest, unit: str) -> bool:
    pid = f"systemctl show -p MainPID --value {unit}"
    return "realtime" in guest.ssh(f"ionice -p $({pid})", check=False).stdout


def test_the_next_agent_takes_over(guest: Guest, granted: None):
    guest.spawn("exec sleep 600", unit="before", user="player")
    log = "journalctl --no-pager --lines=5 --unit=sluice-agent"
    await_that(lambda: guest.ssh(log).stdout, lambda: len(agent(guest)[1]) == PROGRAMS)
    await_that(lambda: guest.ssh(log).stdout, lambda: is_tagged(guest, "before"))
    pid, links = agent(guest)
    guest.ssh(f"kill -KILL {pid}")
    guest.spawn("exec sleep 600", unit="after", user="player")
    assert is_tagged(guest, "before")
    await_that(lambda: guest.ssh(log).stdout, lambda: is_tagged(guest, "after"))
    assert is_tagged(guest, "before")
    await_that(lambda: agent(guest), lambda: agent(guest)[1] == links)
    assert agent(guest)[0] not in ("0", pid)
