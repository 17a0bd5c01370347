# SPDX-License-Identifier: GPL-2.0-or-later
"""The controller and a real guest: QMP, counters page, agent, and what comes back.

The guest reads files of the media disk; the host's own count of what its QEMU
process read is the witness.
"""

import json
import time

import libvirt_qemu
import pytest

from sluice_controller.domain.counters import read_header
from testbed import patience, rates

NAME = "small"
CLASS = "reading"
RATE_BPS = 2_000_000
GRANT = f"/v1/domains/{NAME}/classes/{CLASS}"
SECONDS = 30
READ = "while :; do cat /srv/media/f0*; echo 3 >/proc/sys/vm/drop_caches; done >/dev/null"


def until(question, seconds=SECONDS):
    deadline = time.monotonic() + patience.seconds(seconds)
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


def qmp(guest, command, **arguments):
    text = json.dumps({"execute": command, "arguments": arguments})
    return json.loads(libvirt_qemu.qemuMonitorCommand(guest.domain, text, 0))["return"]


def shaped(guest):
    """{class: {resource: bytes per second}} as the running QEMU has it."""
    (shaper,) = qmp(guest, "query-shapers")
    return {
        c["class"]: {row["resource"]: row.get("bytes-per-second") for row in c["limits"]}
        for c in shaper["classes"]
    }


@pytest.fixture
def reading(controller, guest):
    """A class for a reader that runs, and afterwards neither."""
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": "Reading", "priority": 6})
    controller.call("PUT", GRANT, {"limits": {}})
    guest.spawn(READ, unit="reader")
    yield
    guest.kill_unit("reader")
    controller.call("PUT", "/v1/auto", {"enabled": False})
    for stream in controller.call("GET", "/v1/streams"):
        controller.call("DELETE", f"/v1/streams/{stream['name']}")
    controller.call("DELETE", GRANT)
    controller.call("DELETE", f"/v1/classes/{CLASS}")


@pytest.fixture
def rule(controller, reading):
    body = {"domain": NAME, "class": CLASS, "match": {"unit": "reader.service"}}
    return controller.call("POST", "/v1/rules", body)


def sample(controller, name=CLASS):
    live = controller.call("GET", f"/v1/live?domain={NAME}")["domains"][NAME]
    return live["classes"].get(name, {}).get("blk-read", {})


def processes(controller):
    """The rows of the guest's table; none while no agent is there."""
    answer = controller.request("GET", f"/v1/domains/{NAME}/processes")
    return answer.json()["processes"] if answer.is_success else []


def readers(controller):
    """The processes of the reader that its class holds, as the agent says."""
    rows = processes(controller)
    return {r["pid"] for r in rows if r["unit"] == "reader.service" and r["class"] == CLASS}


def refusal(controller, path, body):
    """What is wrong with it; None while the agent has not said so."""
    answer = controller.request("POST", path, body)
    return answer.json() if answer.status_code == 422 else None


def listed(controller, number):
    return controller.call("GET", f"/v1/rules/{number}")


def test_grants_limits_and_the_ceiling_reach_qemu_and_leave_it(controller, guest, reading):
    until(lambda: shaped(guest).get(CLASS) == {})
    controller.call("PUT", f"{GRANT}/limits/blk-read", {"bytes_per_second": RATE_BPS})
    until(lambda: shaped(guest)[CLASS] == {"blk-read": RATE_BPS})
    controller.call("PUT", f"/v1/domains/{NAME}/ceiling", {"net-tx": {"bytes_per_second": 9e6}})
    until(lambda: qmp(guest, "query-shapers")[0]["ceiling"])
    controller.call("PUT", f"/v1/domains/{NAME}/ceiling", {})
    until(lambda: not qmp(guest, "query-shapers")[0]["ceiling"])
    controller.call("DELETE", f"{GRANT}/limits/blk-read")
    until(lambda: shaped(guest)[CLASS] == {})


def test_what_someone_else_changes_is_put_back(controller, guest, reading):
    controller.call("PUT", f"{GRANT}/limits/blk-read", {"bytes_per_second": RATE_BPS})
    until(lambda: shaped(guest)[CLASS] == {"blk-read": RATE_BPS})
    time.sleep(1.5)
    (shaper,) = qmp(guest, "query-shapers")
    qmp(guest, "shaper-remove-class", **{"id": shaper["id"], "class": CLASS})
    until(lambda: shaped(guest).get(CLASS) == {"blk-read": RATE_BPS})


EVERYTHING = {
    "limits": {"blk-read": {"bytes_per_second": 9e6}, "net-tx": {"bytes_per_second": 5e6}},
    "dscp": [46],
    "scheduling": {
        "blk-read": {
            "reservation_bytes_per_second": 4e6,
            "policy": "token-leaky",
            "peak_bytes_per_second": 2e7,
            "minimum_charge_bytes": 65536,
            "charge": "device",
        },
        "blk-write": {"policy": "leaky-bucket", "dynamic": "throughput"},
        "net-tx": {
            "window": {"period_ns": 20_000_000, "bytes": 65536, "may_miss": 1, "of": 10},
            "dynamic": "latency",
        },
        "net-rx": {"minimum_charge_bytes": 256},
    },
    "queues": {
        "net-tx": {"limit_packets": 500, "aqm": "codel"},
        "net-rx": {
            "limit_bytes": 262144,
            "aqm": "codel",
            "ecn": True,
            "connections_per_second": 200,
        },
    },
}


def as_qemu_has_it(guest):
    (shaper,) = qmp(guest, "query-shapers")
    found = next((c for c in shaper["classes"] if c["class"] == CLASS), {})
    rows = {
        kind: {row.pop("resource"): row for row in found.get(kind, [])}
        for kind in ("limits", "scheduling", "queues")
    }
    return {**found, **rows}


def test_every_setting_of_a_class_reaches_qemu_and_leaves_it(controller, guest, reading):
    body = {"title": "Reading", "priority": 6, "weight": 300, "unmanaged": True}
    controller.call("PUT", f"/v1/classes/{CLASS}", body)
    controller.call("PUT", GRANT, EVERYTHING)
    until(lambda: as_qemu_has_it(guest).get("queues"))
    there = as_qemu_has_it(guest)
    assert (there["weight"], there["unmanaged"], there["dscp"]) == (300, True, [46])
    usual = {"policy": "token-bucket", "dynamic": "none", "charge": "all"}
    assert there["scheduling"] == {
        "blk-read": {
            **usual,
            "reservation-bytes-per-second": 4_000_000,
            "policy": "token-leaky",
            "peak-bytes-per-second": 20_000_000,
            "minimum-charge-bytes": 65536,
            "charge": "device",
        },
        "blk-write": {
            **usual,
            "policy": "leaky-bucket",
            "dynamic": "throughput",
            "minimum-charge-bytes": 4096,
        },
        "net-tx": {
            **usual,
            "dynamic": "latency",
            "minimum-charge-bytes": 0,
            "window": {"period-ns": 20_000_000, "bytes": 65536, "may-miss": 1, "of": 10},
        },
        "net-rx": {**usual, "minimum-charge-bytes": 256},
    }
    assert there["queues"] == {
        "net-tx": {"limit-packets": 500, "aqm": "codel", "ecn": False},
        "net-rx": {
            "limit-bytes": 262144,
            "aqm": "codel",
            "ecn": True,
            "connections-per-second": 200,
            "burst-connections": 10,
        },
    }
    # The page of this QEMU tells why frames are dropped.
    reasons = until(lambda: sample(controller).get("drops_per_second"))
    assert set(reasons) == {"backlog", "codel", "connection", "window", "reset"}
    # A change of one setting leaves the others.
    controller.call("PUT", f"{GRANT}/limits/blk-read", {"bytes_per_second": 8e6})
    until(lambda: as_qemu_has_it(guest)["limits"]["blk-read"]["bytes-per-second"] == 8_000_000)
    assert as_qemu_has_it(guest)["scheduling"] == there["scheduling"]
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": "Reading", "priority": 6})
    controller.call("PUT", GRANT, {"limits": {}})
    until(lambda: not as_qemu_has_it(guest)["queues"])
    there = as_qemu_has_it(guest)
    assert (there["weight"], there["unmanaged"], there["scheduling"]) == (100, False, {})


def test_scheduling_that_someone_else_changes_is_put_back_once(testbed, controller, guest, reading):
    controller.call("PUT", GRANT, EVERYTHING)
    until(lambda: as_qemu_has_it(guest).get("queues"))
    time.sleep(1.5)
    (shaper,) = qmp(guest, "query-shapers")
    there = as_qemu_has_it(guest)
    arguments = {"id": shaper["id"], "class": CLASS, "tag": there["tag"]}
    qmp(guest, "shaper-set-class", **arguments)
    until(lambda: as_qemu_has_it(guest)["scheduling"] == there["scheduling"])
    # What QEMU fills in by itself is no difference that would be pushed for ever.
    page = testbed.sandbox.path(shaper["page"])

    def rests():
        before = read_header(page.read_bytes()).generation
        time.sleep(3)
        return read_header(page.read_bytes()).generation == before

    until(rests)


def test_a_rule_shows_its_processes_and_moves_their_reads(controller, guest, rule):
    until(lambda: sample(controller).get("bytes_per_second", 0) > RATE_BPS)
    pids = until(lambda: readers(controller))
    preview = {"domain": NAME, "class": CLASS, "match": {"unit": "reader.service"}}
    found = controller.call("POST", "/v1/rules/preview", preview)["processes"]
    assert {row["pid"] for row in found} & pids
    controller.call("DELETE", f"/v1/rules/{rule['id']}")
    until(lambda: sample(controller).get("bytes_per_second", 0) < RATE_BPS / 10)


def test_a_rule_that_the_agent_cannot_follow_is_refused_and_leaves_the_others(controller, rule):
    pids = until(lambda: readers(controller))
    bad = {"domain": NAME, "class": CLASS, "match": {"cmdline": "(unclosed"}}
    for path in ("/v1/rules", "/v1/rules/preview"):
        problem = until(lambda path=path: refusal(controller, path, bad))
        assert problem["thing"] == "match.cmdline" and "unclosed group" in problem["remedy"]
    # Where a slow agent had given no answer in time, the rule was added, and is refused now.
    for one in controller.call("GET", "/v1/rules"):
        is_bad = one["id"] != rule["id"]
        until(lambda n=one["id"], bad=is_bad: bool(listed(controller, n)["refused"]) == bad)
    assert readers(controller) & pids


def test_a_limit_holds_on_the_hosts_disk_through_every_restart(testbed, controller, guest, rule):
    until(lambda: sample(controller).get("bytes_per_second", 0) > 2 * RATE_BPS)
    controller.call("PUT", f"{GRANT}/limits/blk-read", {"bytes_per_second": RATE_BPS})
    until(lambda: sample(controller).get("bytes_per_second", 0) < 1.1 * RATE_BPS)

    def holds():
        rates.at_limit(lambda: guest.disk_read_bps(4), RATE_BPS)

    holds()
    controller.kill()
    holds()
    controller.start()
    until(lambda: controller.call("GET", f"/v1/domains/{NAME}")["agent"]["connected"])
    holds()
    testbed.hypervisor.restart()
    until(lambda: controller.call("GET", "/v1/status")["libvirt"]["connected"])
    holds()
    guest.ssh("systemctl restart sluice-agent")
    # Its tags went with it, and come back with the next agent.
    pid = int(guest.ssh("systemctl show --property=MainPID --value sluice-agent").stdout)
    until(lambda: pid in [row["pid"] for row in processes(controller)])
    until(lambda: readers(controller))
    until(lambda: 0 < sample(controller).get("bytes_per_second", 0) < 1.1 * RATE_BPS)
    until(lambda: sample(controller, "default").get("bytes_per_second", 0) < RATE_BPS / 10)
    holds()
    assert shaped(guest)[CLASS] == {"blk-read": RATE_BPS}


def test_history_has_a_row_a_second(controller, guest, rule):
    since = time.time()

    def history():
        return controller.call("GET", f"/v1/history?domain={NAME}&since={since}&step=1")

    until(lambda: len(history()["at"]) >= 5)
    there, seconds = history(), time.time() - since
    assert len(there["at"]) <= seconds + 1
    assert f"{CLASS}/blk-read/bytes_per_second" in there["series"]


def test_a_fault_that_nothing_here_explains_is_logged_and_limits_nothing(
    testbed, controller, guest, rule
):
    """The client's reports alone, with the disk at ease, change nothing."""
    controller.call("PUT", "/v1/classes/stream", {"is_stream": True, "priority": 0})
    controller.call("PUT", f"/v1/domains/{NAME}/classes/stream", {"limits": {}})
    body = {"domain": NAME, "class": "stream", "nominal_bytes_per_second": 875_000}
    controller.call("PUT", "/v1/streams/film", body)
    before = time.time()
    controller.call("PUT", "/v1/auto", {"enabled": True})
    report = {"stalls": 1, "stall_seconds": 1, "window_ms": 1000}
    controller.call("POST", "/v1/streams/film/reports", report)
    log = until(lambda: controller.call("GET", f"/v1/auto/log?since={before}"))
    assert "without a cause here" in log[0]["sentence"]
    assert controller.call("GET", "/v1/auto")["limits"] == []
    controller.call("PUT", "/v1/auto", {"enabled": False})
    controller.call("DELETE", "/v1/streams/film")
    controller.call("DELETE", f"/v1/domains/{NAME}/classes/stream")
    controller.call("DELETE", "/v1/classes/stream")


def gate_of(guest):
    """As the running QEMU has it, if it has one."""
    return qmp(guest, "query-shapers")[0].get("gate")


FILM_BPS = 500_000
# 64 KiB each eighth of a second, past the guest's cache.
FILM = """
while :; do
    for block in $(seq 0 63); do
        dd if=$(ls /srv/media/f0* | head -1) of=/dev/null bs=64k count=1 skip=$block iflag=direct
        sleep 0.12
    done
done 2>/dev/null
"""


@pytest.fixture
def film(controller, guest, rule):
    """A stream that reads at a steady rate beside the reader."""
    controller.call("PUT", "/v1/classes/film", {"is_stream": True, "priority": 0})
    controller.call("PUT", f"/v1/domains/{NAME}/classes/film", {"limits": {}})
    body = {"domain": NAME, "class": "film", "match": {"unit": "film.service"}}
    own_rule = controller.call("POST", "/v1/rules", body)
    body = {"domain": NAME, "class": "film", "nominal_bytes_per_second": FILM_BPS}
    controller.call("PUT", "/v1/streams/film", body)
    guest.spawn(FILM, unit="film")
    yield
    guest.kill_unit("film")
    controller.call("PUT", "/v1/auto", {"enabled": False})
    controller.call("DELETE", "/v1/streams/film")
    controller.call("DELETE", f"/v1/rules/{own_rule['id']}")
    controller.call("DELETE", f"/v1/domains/{NAME}/classes/film")
    controller.call("DELETE", "/v1/classes/film")


def test_a_stream_that_reads_has_a_gate_in_qemu_until_it_is_switched_off(controller, guest, film):
    def gate():
        return gate_of(guest)

    def told():
        """Of the disk's device: the stream's exact sums have reached sluiced."""
        for device in controller.call("GET", "/v1/auto")["devices"]:
            if any(one["waits_ms"] > 0 for one in device["streams"]):
                return device
        return None

    until(lambda: sample(controller, "film").get("bytes_per_second", 0) > 0)
    assert gate() is None
    controller.call("PUT", "/v1/auto", {"enabled": True})
    assert until(gate)["streams"] == ["film"]
    device = until(told)
    assert device["domains"] == [NAME] and device["target_ms"] > 0
    log = until(lambda: controller.call("GET", "/v1/auto/log"))
    assert any(entry["reason"] == "gate on" for entry in log)
    (on,) = controller.call("GET", f"/v1/events?follow=false&kind=gate+on&domain={NAME}&limit=1")
    assert on["subject"] == {**on["subject"], "device": device["name"], "stream": "film"}
    # Both go on behind it.
    until(lambda: sample(controller)["bytes_per_second"] > 0)
    until(lambda: sample(controller, "film")["bytes_per_second"] > 0.5 * FILM_BPS)
    controller.call("PUT", "/v1/auto", {"enabled": False})
    until(lambda: gate() is None)
    off = controller.call("GET", f"/v1/events?follow=false&domain={NAME}&after={on['id']}")
    assert "gate off" in [event["kind"] for event in off]


def reads_directly(device):
    return f"while :; do dd if={device} of=/dev/null bs=128k iflag=direct; done"


@pytest.fixture
def two_disks(controller, guest, rule):
    """The reader is a stream that declares 875 kB/s and takes all of its disk; another disk is
    busy beside it."""
    guest.kill_unit("reader")
    guest.spawn(reads_directly("/dev/vdb"), unit="reader")
    guest.spawn(reads_directly("/dev/vda"), unit="beside")
    controller.call("PATCH", f"/v1/classes/{CLASS}", {"is_stream": True})
    body = {"domain": NAME, "class": CLASS, "nominal_bytes_per_second": 875_000}
    controller.call("PUT", "/v1/streams/film", body)
    yield
    controller.call("PUT", "/v1/auto", {"enabled": False})
    guest.kill_unit("beside")


@pytest.fixture
def slow_by_iotune(guest, two_disks):
    """libvirt slows the stream's own disk down."""
    guest.domain.setBlockIoTune("vdb", {"read_bytes_sec": 200_000})
    yield
    guest.domain.setBlockIoTune("vdb", {"read_bytes_sec": 0})


@pytest.mark.parametrize("method", ["gate", "rates"])
def test_a_stream_that_takes_far_more_than_it_declares_takes_nothing_from_others(
    controller, guest, two_disks, method
):
    def rate(name="default"):
        return sample(controller, name).get("bytes_per_second", 0.0)

    until(lambda: rate(CLASS) > 5_000_000 and rate() > 5_000_000)
    time.sleep(1.5)
    before_bps, began = rate(), time.monotonic()
    controller.call("PUT", "/v1/auto", {"enabled": True, "method": method})

    def is_left_alone():
        auto = controller.call("GET", "/v1/auto")
        return not auto["limits"] and not any(device["target_ms"] for device in auto["devices"])

    # A peak of up to 10 s is a stream's right; later it counts as gone.
    until(lambda: time.monotonic() - began > 11 and is_left_alone())
    assert gate_of(guest) is None and shaped(guest)["default"] == {}
    until(lambda: rate() >= 0.95 * before_bps, 10)


@pytest.mark.parametrize("method", ["gate", "rates"])
def test_a_stream_slowed_by_its_own_iotune_leaves_the_others_their_rate(
    controller, guest, slow_by_iotune, method
):
    def rate(name="default"):
        return sample(controller, name).get("bytes_per_second", 0.0)

    until(lambda: 0 < rate(CLASS) < 875_000 and rate() > 5_000_000)
    time.sleep(1.5)
    before_bps, began = rate(), time.time()
    controller.call("PUT", "/v1/auto", {"enabled": True, "method": method})

    def cut():
        auto = controller.call("GET", "/v1/auto")
        return auto["limits"] or any(device["target_ms"] for device in auto["devices"])

    def given_back():
        log = controller.call("GET", f"/v1/auto/log?since={began}")
        return [line for line in log if "waits for something else" in line["sentence"]]

    until(cut)
    (line,) = until(given_back, 10)
    assert line["stream"] == "film"
    assert not cut()
    until(lambda: shaped(guest)["default"] == {}, 2)
    until(lambda: gate_of(guest) is None, 2)
    until(lambda: rate() >= 0.95 * before_bps, 10)


def test_of_every_device_the_api_says_whether_its_qemu_shapes_it(controller, guest):
    def devices():
        return controller.call("GET", f"/v1/domains/{NAME}")["devices"]

    until(lambda: all(d["shaped"] for d in devices() if d["shapeable"]))
    (shaper,) = qmp(guest, "query-shapers")
    assert len(shaper["devices"]) == sum(d["shaped"] for d in devices()) >= 2


def test_the_guest_finds_the_channel_where_its_definition_puts_it(controller, guest):
    """libvirt knows nothing of the device, and must have given its slot to no other one."""
    lists_it = guest.ssh("cat /sys/bus/pci/devices/0000:00:1c.0/vendor").stdout.strip()
    assert lists_it == "0x1af4"
    channel = controller.call("GET", f"/v1/domains/{NAME}")["channel"]
    assert channel["present"] and channel["absent_because"] is None


def test_the_dscp_of_a_card_counts_in_qemu_as_it_was_declared(controller, guest):
    """The running card takes it at once, and has the default back when it is taken back."""
    devices = controller.call("GET", f"/v1/domains/{NAME}")["devices"]
    card = next(device for device in devices if device["kind"] == "net")
    place = {"path": f"/machine/peripheral/{card['alias']}", "property": "shaper-dscp"}
    assert qmp(guest, "qom-get", **place) == "auto"
    for dscp in ("both", "off", "auto"):
        controller.call("PUT", f"/v1/domains/{NAME}/cards/{card['mac']}", {"dscp": dscp})
        until(lambda wanted=dscp: qmp(guest, "qom-get", **place) == wanted)
