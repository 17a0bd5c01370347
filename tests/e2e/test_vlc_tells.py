# SPDX-License-Identifier: GPL-2.0-or-later
"""A VLC in a real guest is judged by its own statistics, with no client's reports.

Nothing here says that the film plays well at first: on a busy machine it may not. A limit below
the film's rate makes it lose pictures everywhere.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from testbed import Controller, Guest, patience

CLASS, STREAM, RECORD = "watched-film", "film", "vlc-film"
FILM = "/home/player/film.y4m"
PORT, SECRET = 8080, "e2e-secret"
WIDTH, HEIGHT, FRAMES_PER_SECOND, SECONDS = 64, 48, 25, 200
FRAME_BYTES = len("FRAME\n") + WIDTH * HEIGHT * 3 // 2
FILM_BPS = FRAME_BYTES * FRAMES_PER_SECOND
# Pictures without compression cost an emulated processor nothing to decode.
MAKE_FILM = f"""perl -e '
print "YUV4MPEG2 W{WIDTH} H{HEIGHT} F{FRAMES_PER_SECOND}:1 Ip A1:1 C420\\n";
for $n (1 .. {FRAMES_PER_SECOND * SECONDS}) {{
    print "FRAME\\n", chr(16 + $n % 200) x {WIDTH * HEIGHT}, chr(128) x {WIDTH * HEIGHT // 2};
}}' >{FILM}"""
# A late picture is left out: without the option VLC waits longer and longer instead.
PLAY = (
    f"exec vlc --intf=http --http-host=127.0.0.1 --http-port={PORT} --http-password={SECRET} "
    "--no-media-library --ignore-config --vout=dummy --aout=dummy --no-osd --no-spu "
    f"--clock-jitter=0 --loop {FILM}"
)
TELL = (
    f"SLUICE_VLC_PASSWORD={SECRET} exec sluice-agent report --name={RECORD} "
    f"--vlc=http://127.0.0.1:{PORT}"
)
FEW_LOST = 3


@pytest.fixture
def limits(controller: Controller, guest: Guest) -> Iterator[str]:
    """The path of the limits of a stream's class; the user ``player`` belongs to it."""
    path = f"/v1/domains/{guest.name}/classes/{CLASS}"
    declared = {"title": CLASS, "priority": 0, "is_stream": True}
    controller.call("PUT", f"/v1/classes/{CLASS}", declared)
    controller.call("PUT", path, {"limits": {}})
    match = {"user": "player"}
    rule = controller.call(
        "POST", "/v1/rules", {"domain": guest.name, "class": CLASS, "match": match}
    )
    stream = {"domain": guest.name, "class": CLASS, "nominal_bytes_per_second": FILM_BPS}
    controller.call("PUT", f"/v1/streams/{STREAM}", stream)
    yield path
    guest.kill_unit("teller")
    guest.kill_unit("player")
    guest.ssh(f"rm -f {FILM}")
    controller.call("DELETE", f"/v1/streams/{STREAM}")
    controller.call("DELETE", f"/v1/rules/{rule['id']}")
    controller.call("DELETE", path)
    controller.call("DELETE", f"/v1/classes/{CLASS}")


def await_that(explain: Callable[[], object], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience.seconds(60)
    while not is_so():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.5)


def test_a_vlc_is_judged_by_its_own_statistics(controller: Controller, guest: Guest, limits: str):
    log = "journalctl --no-pager --lines=20 --unit=player --unit=teller --unit=sluice-agent"

    def stream() -> dict:
        return controller.call("GET", f"/v1/streams/{STREAM}")

    def record() -> dict:
        found = [one for one in stream()["guest"] if one["name"] == RECORD]
        return found[0] if found else {"frames": 0, "late": 0, "lost": 0}

    def explain() -> str:
        return f"{stream()}\n{guest.ssh(log).stdout}"

    guest.ssh(MAKE_FILM, timeout_seconds=120)
    guest.spawn(PLAY, unit="player", user="player")
    guest.spawn(TELL, unit="teller", user="player")
    # VLC says the film's rate; two reports make a verdict.
    await_that(
        explain,
        lambda: (
            record()["frames"] > FRAMES_PER_SECOND
            and record()["frames_per_second"] == FRAMES_PER_SECOND
            and stream()["source"] == "vlc"
        ),
    )
    before = record()
    print(f"unlimited: {stream()}")
    assert (before["source"], before["class"]) == ("vlc", CLASS)

    # The film is played from the disk again.
    guest.drop_caches()
    controller.call("PUT", limits, {"limits": {"blk-read": {"bytes_per_second": FILM_BPS // 3}}})
    # Looked for together: a VLC that waits for its data for long does not answer, and the host
    # judges meanwhile.
    await_that(explain, lambda: is_poor(stream(), before["lost"] + before["late"] + FEW_LOST))
    print(f"limited: {explain()}")

    def listed() -> list[str]:
        return controller.cli("stream", "list").stdout.splitlines()

    await_that(
        explain,
        lambda: any(f"{RECORD}:" in line and "poor" in line.split() for line in listed()),
    )


def is_poor(stream: dict, least: int) -> bool:
    """Whether VLC's record makes the stream poor, with so many pictures late or lost at least."""
    told = [one for one in stream["guest"] if one["name"] == RECORD]
    by_vlc = stream["source"] == "vlc" and stream["verdict"] == "poor"
    return by_vlc and any(one["lost"] + one["late"] >= least for one in told)
