# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads inside guests, and how the guests' disks are set for them.

Twelve ``cat`` processes read large files over and over (SCS, section 5.5.1). Each is a
transient unit with an end of its own, so a load outlives its purpose by at most ``seconds``.
"""

from testbed.guest import Guest

READERS = 12
STREAMER_WEIGHT = 1000
# An administrator's setting for a volume of large files: one request is then as long as a read,
# and pays for its seek.
READ_AHEAD_KIB = 3072
LARGEST_REQUEST_KIB = 4096


def tune_for_large_files(guest: Guest, mount: str, read_ahead_kib: int = READ_AHEAD_KIB) -> None:
    """Set a large read-ahead on the disk that is mounted at ``mount``."""
    guest.ssh(
        f"queue=/sys/block/$(basename $(findmnt -no SOURCE {mount}))/queue && "
        f"echo {LARGEST_REQUEST_KIB} >$queue/max_sectors_kb && "
        f"echo {read_ahead_kib} >$queue/read_ahead_kb"
    )


def start_readers(
    guest: Guest, mount: str, count: int, seconds: int, first: int = 1, unit: str = "readers"
) -> None:
    """Start ``count`` cats, each on a file of its own (f01, f02, …, from the ``first`` on), over
    and over."""
    if not 1 <= first <= first + count - 1 <= READERS:
        raise ValueError(f"{count} readers from {first} on: there are files 1 to {READERS}")
    guest.spawn(
        f"for number in $(seq -w 1 {READERS} | tail -n +{first} | head -n {count}); do "
        f"(while :; do cat {mount}/f$number; done >/dev/null) & done; sleep {seconds}",
        unit=unit,
    )


def stop_readers(guest: Guest, unit: str = "readers") -> None:
    guest.kill_unit(unit)


def start_streamer(guest: Guest, movie: str, address: str, port: int, seconds: int) -> None:
    """Start VLC, streaming the movie over RTP to a client, over and over.

    It reads one second ahead, as a streaming server is set up (VLC's own default of 300 ms is
    for local files and interactive use), and must not make that longer when it is late, as that
    would be a pause of the stream. It runs before the readers on the guest's processors,
    because the subject is disk and network. The guest drops its cache of the movie, so that a
    second showing reads the disk as well.
    """
    guest.spawn(
        f"dd if={movie} iflag=nocache count=0 status=none; "
        "while :; do setpriv --reuid=player --regid=player --init-groups "
        "vlc --intf=dummy --no-media-library --ignore-config "
        "--file-caching=1000 --sout-mux-caching=1000 --clock-jitter=0 "
        f"{movie} --sout '#rtp{{mux=ts,dst={address},port={port},ttl=2}}' vlc://quit; "
        f"done & sleep {seconds}",
        unit="streamer",
        weight=STREAMER_WEIGHT,
    )


def stop_streamer(guest: Guest) -> None:
    guest.kill_unit("streamer")
