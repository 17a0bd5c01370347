# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad input: refused with the same sentence over REST and the command line.

The sentence names the thing, the value and the remedy, and nothing changes:
neither what the controller stores, nor the domain's XML, nor the classes in
the running QEMU.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

import libvirt_qemu
import pytest

from testbed import Controller, Guest, GuestSpec, Testbed, paths, patience

GRANTED = "granted"
NOT_GRANTED = "not-granted"
LIMIT = f"/v1/domains/small/classes/{GRANTED}/limits/blk-read"


@dataclass(frozen=True)
class Bad:
    """One bad request: over REST, and as a command where there is one for it."""

    name: str
    method: str
    path: str
    body: Any
    status: int
    names: str
    command: tuple[str, ...] = ()


BAD = [
    Bad("unknown domain", "GET", "/v1/domains/nope", None, 404, "nope", ("show", "nope")),
    Bad(
        "attach an unknown domain",
        "POST",
        "/v1/domains/nope/attach",
        {},
        404,
        "nope",
        ("attach", "nope"),
    ),
    Bad(
        "negative rate",
        "PUT",
        LIMIT,
        {"bytes_per_second": "-5000000B/s"},
        422,
        "-5000000B/s",
        ("limit", "small", GRANTED, "blk-read", "--", "-5000000B/s"),
    ),
    Bad(
        "zero rate",
        "PUT",
        LIMIT,
        {"bytes_per_second": "0B/s"},
        422,
        "0B/s",
        ("limit", "small", GRANTED, "blk-read", "0B/s"),
    ),
    Bad(
        "absurd rate",
        "PUT",
        LIMIT,
        {"bytes_per_second": "1000000000000000B/s"},
        422,
        "1000000000000000B/s",
        ("limit", "small", GRANTED, "blk-read", "1000000000000000B/s"),
    ),
    Bad("zero rate as a number", "PUT", LIMIT, {"bytes_per_second": 0}, 422, "0"),
    Bad("rate as text", "PUT", LIMIT, {"bytes_per_second": "fast"}, 422, "fast"),
    Bad("rate as truth", "PUT", LIMIT, {"bytes_per_second": True}, 422, "true"),
    Bad("rate not a number", "PUT", LIMIT, {"bytes_per_second": float("nan")}, 422, "nan"),
    Bad("rate without end", "PUT", LIMIT, {"bytes_per_second": float("inf")}, 422, "inf"),
    Bad("limit of a wrong shape", "PUT", LIMIT, [1, 2], 422, ""),
    Bad("unknown member", "PUT", LIMIT, {"bytes_per_minute": 5000}, 422, "bytes_per_minute"),
    Bad(
        "unknown resource",
        "PUT",
        f"/v1/domains/small/classes/{GRANTED}/limits/tape",
        {"bytes_per_second": 5_000_000},
        422,
        "tape",
        ("limit", "small", GRANTED, "tape", "5MB/s"),
    ),
    Bad(
        "limit of a class that does not exist",
        "PUT",
        "/v1/domains/small/classes/nothing/limits/blk-read",
        {"bytes_per_second": 5_000_000},
        404,
        "nothing",
        ("limit", "small", "nothing", "blk-read", "5MB/s"),
    ),
    Bad(
        "grant of a class that does not exist",
        "PUT",
        "/v1/domains/small/classes/nothing",
        {"limits": {}, "dscp": []},
        404,
        "nothing",
        ("grant", "small", "nothing"),
    ),
    Bad(
        "limit of a class that is not granted",
        "PUT",
        f"/v1/domains/small/classes/{NOT_GRANTED}/limits/blk-read",
        {"bytes_per_second": 5_000_000},
        409,
        NOT_GRANTED,
        ("limit", "small", NOT_GRANTED, "blk-read", "5MB/s"),
    ),
    Bad(
        "assignment to a class that is not granted",
        "PUT",
        "/v1/domains/small/assignments/1",
        {"class": NOT_GRANTED},
        409,
        NOT_GRANTED,
        ("assign", "small", "1", NOT_GRANTED),
    ),
    Bad(
        "assignment to a class that does not exist",
        "PUT",
        "/v1/domains/small/assignments/1",
        {"class": "nothing"},
        404,
        "nothing",
        ("assign", "small", "1", "nothing"),
    ),
    Bad(
        "assignment of a process that does not exist",
        "PUT",
        "/v1/domains/small/assignments/4194303",
        {"class": GRANTED},
        404,
        "4194303",
        ("assign", "small", "4194303", GRANTED),
    ),
    Bad(
        "rule with an empty expression",
        "POST",
        "/v1/rules",
        {"domain": "small", "class": GRANTED, "match": {"cmdline": ""}},
        422,
        "match.cmdline",
        ("rule", "add", GRANTED, "--domain", "small", "--cmdline", ""),
    ),
    Bad(
        "rule that matches on nothing",
        "POST",
        "/v1/rules",
        {"domain": "small", "class": GRANTED, "match": {}},
        422,
        "match",
        ("rule", "add", GRANTED, "--domain", "small"),
    ),
    Bad(
        "rule with a relative path",
        "POST",
        "/v1/rules",
        {"domain": "small", "class": GRANTED, "match": {"exe": "cat"}},
        422,
        "cat",
        ("rule", "add", GRANTED, "--domain", "small", "--exe", "cat"),
    ),
    Bad(
        "class with a bad name",
        "PUT",
        "/v1/classes/No%20Name",
        {"title": "x"},
        422,
        "No Name",
        ("class", "set", "No Name"),
    ),
    Bad(
        "class with a bad priority",
        "PUT",
        "/v1/classes/other",
        {"title": "", "priority": 10, "is_stream": False},
        422,
        "10",
    ),
]


@pytest.fixture(scope="module")
def classes(controller: Controller, guest: Guest):
    """One class that the guest may use, and one that it may not."""
    for name in (GRANTED, NOT_GRANTED):
        controller.call("PUT", f"/v1/classes/{name}", {"title": name, "priority": 5})
    limits = {"blk-read": {"bytes_per_second": 90_000_000}}
    controller.call("PUT", f"/v1/domains/small/classes/{GRANTED}", {"limits": limits})
    # The domain carries its classes in its XML, a moment after the answer.
    until(lambda: guest.domain.XMLDesc(), lambda xml: f'"{GRANTED}"' in xml)
    yield
    controller.call("DELETE", f"/v1/domains/small/classes/{GRANTED}")
    for name in (GRANTED, NOT_GRANTED):
        controller.call("DELETE", f"/v1/classes/{name}")


def everything(controller: Controller, guest: Guest) -> list[Any]:
    """What a refused request must leave as it is."""
    asked = ["/v1/classes", "/v1/rules", "/v1/settings", "/v1/domains/small/assignments"]
    state = [controller.call("GET", path) for path in asked]
    domain = controller.call("GET", "/v1/domains/small")
    shapers = qmp(guest, "query-shapers")
    for shaper in shapers:
        for entry in shaper["classes"]:
            entry.pop("stats")
    return [*state, domain["classes"], domain["ceiling"], guest.domain.XMLDesc(), shapers]


def qmp(guest: Guest, command: str) -> Any:
    text = json.dumps({"execute": command})
    return json.loads(libvirt_qemu.qemuMonitorCommand(guest.domain, text, 0))["return"]


def problem_of(answer, status: int) -> dict[str, Any]:
    """The body of a refusal, with every member that it must have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem = answer.json()
    assert problem["type"].startswith("/problems/") and problem["title"]
    assert problem["status"] == status
    assert problem["thing"] and problem["remedy"] and "value" in problem
    assert problem["thing"] in problem["detail"] and problem["remedy"] in problem["detail"]
    return problem


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_refused_alike_and_without_effect(bad: Bad, controller: Controller, guest: Guest, classes):
    before = everything(controller, guest)
    answer = controller.request(bad.method, bad.path, bad.body)
    problem = problem_of(answer, bad.status)
    assert bad.names.lower() in problem["detail"].lower()
    if bad.command:
        done = controller.cli(*bad.command)
        assert done.returncode == 1, done
        assert done.stderr.strip() == f"sluice: {problem['detail']}"
    assert everything(controller, guest) == before


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b""])
def test_a_body_that_is_not_json(body: bytes, controller: Controller, guest: Guest, classes):
    before = everything(controller, guest)
    problem_of(controller.request("PUT", LIMIT, content=body), 422)
    assert everything(controller, guest) == before


def test_a_wrong_token_is_refused(controller: Controller):
    answer = controller.request("GET", "/v1/domains", token="wrong")
    problem_of(answer, 401)


def test_a_qemu_without_shaping(controller: Controller, testbed: Testbed):
    """The distribution's QEMU, as it is."""
    stock = str(paths.require(paths.STOCK_QEMU, "make packages"))
    own = controller.call("GET", "/v1/settings")["emulator"]
    plain = testbed.add_guest(GuestSpec("stock"))
    xml = plain.domain.XMLDesc()
    controller.call("PUT", "/v1/settings", {"emulator": stock})
    try:
        problem = problem_of(controller.request("POST", "/v1/domains/stock/attach", {}), 409)
        assert stock in problem["detail"]
        done = controller.cli("attach", "stock")
        assert done.returncode == 1
        assert done.stderr.strip() == f"sluice: {problem['detail']}"
        assert plain.domain.XMLDesc() == xml
    finally:
        controller.call("PUT", "/v1/settings", {"emulator": own})
        testbed.remove_guest(plain)


def test_libvirt_that_is_not_running():
    """Said plainly while it is away; forgotten as soon as it is back."""
    with Testbed("no-libvirt") as host:
        controller = host.start_controller()
        host.hypervisor.stop()
        answer = until(
            lambda: controller.request("GET", "/v1/domains/any"), lambda a: a.status_code == 503
        )
        problem_of(answer, 503)
        # The first cause is the connection that broke; from now on there is none.
        problem = problem_of(controller.request("GET", "/v1/domains/any"), 503)
        assert "libvirt" in problem["detail"]
        done = controller.cli("show", "any")
        assert done.returncode == 1
        assert done.stderr.strip() == f"sluice: {problem['detail']}"
        status = controller.call("GET", "/v1/status")
        assert status["libvirt"]["connected"] is False and status["libvirt"]["error"]
        host.hypervisor.start()
        answer = until(
            lambda: controller.request("GET", "/v1/domains/any"), lambda a: a.status_code == 404
        )
        problem_of(answer, 404)


NONSENSE = {
    "no JSON at all": "echo '}{ nonsense'",
    "JSON of no meaning": "echo '[1, null, \"x\"]'",
    "a table of wrong types": (
        'echo \'{"jsonrpc":"2.0","method":"processes","params":{"processes":7}}\''
    ),
    "a line beyond all bounds": "head -c 9000000 /dev/zero | tr '\\000' x; echo",
    "half a message": 'printf \'{"jsonrpc":"2.0","method":"proc\'',
}


def domain_when(controller: Controller, wanted, seconds: float = 45.0) -> dict[str, Any]:
    return until(lambda: controller.call("GET", "/v1/domains/small"), wanted, seconds)


@pytest.fixture
def speak(guest: Guest, controller: Controller):
    """A function that takes the agent's place; the true agent comes back at the end."""
    # What an earlier test caused must not be taken for what this one does.
    domain_when(controller, lambda d: d["agent"]["connected"] and not d["agent"]["error"])

    def as_agent(command: str) -> None:
        guest.ssh("systemctl stop sluice-agent")
        # The host may stop reading: then the writer waits, and is ended.
        port = "/dev/virtio-ports/org.sluice.agent.0"
        guest.ssh(f"({command}) | timeout 10 dd of={port} bs=4096", check=False)

    yield as_agent
    guest.ssh("systemctl start sluice-agent")
    controller.wait_for_agent(guest.name)


@pytest.mark.parametrize("command", NONSENSE.values(), ids=NONSENSE.keys())
def test_an_agent_of_nonsense(command: str, speak, controller: Controller, guest: Guest, classes):
    """The controller says so, stays well and keeps shaping."""
    shapers = everything(controller, guest)[-1]
    speak(command)
    domain = domain_when(controller, lambda answer: answer["agent"]["error"])
    assert "agent" in domain["agent"]["error"]
    assert domain["active"]
    assert everything(controller, guest)[-1] == shapers


@pytest.fixture
def fresh_start(controller: Controller):
    """Afterwards a new sluiced, which knows nothing of who was shut out."""
    yield
    controller.stop()
    controller.start()


def test_an_agent_that_does_not_stop(speak, fresh_start, controller: Controller, guest, classes):
    """It is shut out, and the processes it told of are not shown as the present ones."""
    speak("yes '}{ nonsense' | head -n 40")
    domain = domain_when(controller, lambda d: d["agent"]["error"] and not d["agent"]["connected"])
    assert "minute" in domain["agent"]["error"]
    answer = controller.request("GET", "/v1/domains/small/processes")
    assert problem_of(answer, 503)["thing"]


def until(read, wanted, seconds: float = 45.0):
    """Read until the answer is as wanted, and return it."""
    deadline = time.monotonic() + patience.seconds(seconds)
    while not wanted(answer := read()):
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {patience.seconds(seconds):g} s, but: {answer}")
        time.sleep(0.3)
    return answer
