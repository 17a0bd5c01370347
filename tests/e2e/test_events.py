# SPDX-License-Identifier: GPL-2.0-or-later
"""A program in a real guest hears of its class's limit, through the channel and the agent."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from testbed import Controller, Guest, patience

CLASS = "watched"
LIMIT_BPS = 2_000_000
HEARD = "/run/heard"
# Longer than the agent takes to find the process, and than a few of the host's looks, which are
# four a second.
WRITE = "dd if=/dev/zero of=/var/tmp/load bs=256k count=64 oflag=direct status=none"
WRITES = f"timeout 60 sh -c 'while {WRITE}; do :; done'"


@pytest.fixture
def watched(controller: Controller, guest: Guest) -> Iterator[str]:
    """The path of a granted class without limits; the user ``player`` belongs to it."""
    path = f"/v1/domains/{guest.name}/classes/{CLASS}"
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": CLASS, "priority": 5})
    controller.call("PUT", path, {"limits": {}})
    match = {"user": "player"}
    rule = controller.call(
        "POST", "/v1/rules", {"domain": guest.name, "class": CLASS, "match": match}
    )
    yield path
    guest.kill_unit("listener")
    guest.kill_unit("load")
    controller.call("DELETE", f"/v1/rules/{rule['id']}")
    controller.call("DELETE", path)
    controller.call("DELETE", f"/v1/classes/{CLASS}")


def await_that(explain: Callable[[], str], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience.seconds(30)
    while not is_so():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.2)


def heard(guest: Guest) -> list[dict]:
    lines = guest.ssh(f"cat {HEARD}", check=False).stdout.splitlines()
    return [json.loads(line) for line in lines]


def interrupts(guest: Guest) -> int:
    lines = guest.ssh("grep uio_pci_generic /proc/interrupts", check=False).stdout.splitlines()
    return sum(int(word) for line in lines for word in line.split()[1:] if word.isdigit())


def test_a_program_hears_of_its_limit(controller: Controller, guest: Guest, watched: str):
    listen = f"runuser -u player -- sluice-agent events --class {CLASS} --json"
    # Until the rules have come to the agent, it refuses.
    guest.spawn(f"until {listen} >{HEARD} 2>/run/refused; do sleep 0.2; done", unit="listener")
    log = "journalctl --no-pager --lines=5 --unit=sluice-agent; cat /run/refused"
    limit_bps = LIMIT_BPS

    def has_heard(kind: str) -> bool:
        return kind in {one["kind"] for one in heard(guest)}

    def has_heard_of_a_limit() -> bool:
        """Each look at another limit: the first may come before the subscription."""
        nonlocal limit_bps
        limit_bps += 1
        limits = {"blk-write": {"bytes_per_second": limit_bps}}
        controller.call("PUT", watched, {"limits": limits})
        return has_heard("limit-changed")

    await_that(lambda: guest.ssh(log).stdout, has_heard_of_a_limit)
    guest.spawn(f"exec runuser -u player -- {WRITES}", unit="load")
    await_that(lambda: str(heard(guest)), lambda: has_heard("limited"))
    told = heard(guest)
    print(told)
    assert {one["class"] for one in told} == {CLASS}
    changes = [one for one in told if one["kind"] == "limit-changed"]
    assert {one["resource"] for one in changes} == {"disk.write"}
    assert changes[-1]["datum"] == limit_bps
    print(f"{interrupts(guest)} interrupts; {guest.ssh(log).stdout}")
