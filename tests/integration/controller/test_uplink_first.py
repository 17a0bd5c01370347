# SPDX-License-Identifier: GPL-2.0-or-later
"""sluiced's own queue discipline on this kernel: a stream's frames overtake, and all is put back.

The uplink is a tap in a network namespace of its own, so its frames are read here.
"""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import fcntl, json, socket, struct, subprocess, time
from types import SimpleNamespace
from sluice_controller.adapters.uplink import LinuxUplinks
from sluice_controller.adapters.uplink_queues import LinuxUplinkQueues
from sluice_controller.domain.guests import Description, Device, Guest
from sluice_controller.domain.model import Settings, Stream
from sluice_controller.services.uplink_first import UplinkFirst

MAC, OTHER = "52:54:00:aa:bb:01", "52:54:00:aa:bb:02"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
tap = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"out0", IFF_TAP | IFF_NO_PI))


def tc(*words):
    return subprocess.run(["tc", *words], check=True, capture_output=True, text=True).stdout


def root():
    return tc("qdisc", "show", "dev", "out0").split()[1]


sysctl = open("/proc/sys/net/ipv6/conf/out0/disable_ipv6", "w")
sysctl.write("1")
sysctl.close()
subprocess.run(["ip", "link", "set", "out0", "up", "txqueuelen", "1000"], check=True)
told = {"default": root()}
for line in PREPARE:
    tc(*line.split())
card = Device("net", "net0", "vnet0", True, None, True, MAC)
host = SimpleNamespace(
    guests=lambda: [Guest("media", "u", "running", 1, live=Description(devices=(card,)))]
)
declaration = SimpleNamespace(
    settings=Settings(uplink="out0", uplink_first=True, link_bytes_per_second=100_000.0),
    streams=(Stream("film", "media", "movie", 875_000.0),),
    granted_to=lambda domain: {(2, "movie")},
)
declared = SimpleNamespace(now=declaration)
uplinks, queues = LinuxUplinks(), LinuxUplinkQueues()
service = UplinkFirst(declared, host, uplinks, queues, time.monotonic)
service.round()
told["reason"], told["root"] = service.now().reason, root()
if told["root"] == "htb":
    service.round()
    told["rate"] = uplinks.read("out0").link_bytes_per_second
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)
    sender.bind(("out0", 0))

    def frame(mac, tos, version):
        first = {4: bytes([0x45, tos]), 6: bytes([0x60 | tos >> 4, tos << 4 & 0xF0])}[version]
        kind = {4: b"\\x08\\x00", 6: b"\\x86\\xdd"}[version]
        source = bytes.fromhex(mac.replace(":", ""))
        return b"\\xff" * 6 + source + kind + first.ljust(1400, b"\\0")

    film = (2 << 2 | 3) << 2
    for _ in range(400):
        sender.send(frame(MAC, 0, 4))
        # Another VM's frames of that DSCP.
        sender.send(frame(OTHER, film, 4))
    firsts = [frame(MAC, film, version) for version in (4, 6) * 10]
    for one in firsts:
        sender.send(one)
    before, left = 0, len(firsts)
    while left:
        got = tap.read(2000)
        if got in firsts:
            left -= 1
        else:
            before += 1
    told["before"] = before
    service.round()
    told["first"] = service.now().streams
    declaration.settings = Settings(uplink="out0", uplink_first=True)
    service.round()
    told["unlimited"] = uplinks.read("out0").link_bytes_per_second
    service.stop()
told["after"] = root()
print(json.dumps(told))
"""


def told(*prepare):
    script = SCRIPT.replace("PREPARE", repr(prepare))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    if "qdisc kind is unknown" in done.stderr:
        pytest.skip("this kernel has no htb")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_streams_frames_overtake_all_others_and_the_kernels_discipline_comes_back():
    found = told()
    assert found["root"] == "htb", found["reason"]
    assert found["rate"] == pytest.approx(98_500, abs=1)
    # Of 800 that were sent before them.
    assert found["before"] < 100
    assert found["first"] == ["film"]
    # A tap says a speed of its own.
    assert found["unlimited"] != found["rate"]
    assert found["after"] == found["default"] != "htb"


def test_an_operators_discipline_stays_as_it_is():
    found = told("qdisc add dev out0 root handle 7: pfifo limit 77")
    assert found["root"] == found["after"] == "pfifo"
    assert "out0 has a queue discipline that is not sluiced's (pfifo 7:)" in found["reason"]
