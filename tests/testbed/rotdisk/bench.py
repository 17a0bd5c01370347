# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m testbed.rotdisk.bench``: measure the modelled disk through its NBD server.

One reader alone; twelve greedy readers; a player (128 KiB each 150 ms) alone, beside the greedy
twelve, and beside the twelve held to a share of their rate. Takes half a minute. The images are
sparse files: the disk's time does not depend on their contents.
"""

import argparse
import contextlib
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from testbed import paths
from testbed.clients_priority import first_in_line
from testbed.rotdisk import constants

MIB = 1 << 20
READERS = 12
FILE_BYTES = 160 * MIB
REQUEST_BYTES = 3 * MIB
PLAYER_BYTES = 128 * 1024
PLAYER_BPS = 875_000
HANDSHAKE = struct.Struct(">8s8sH")
OPTION = struct.Struct(">8sII")
REQUEST = struct.Struct(">IHHQQI")
REPLY = struct.Struct(">IIQ")


class NbdClient:
    """Reads from an export, one request at a time (NBD protocol, fixed newstyle)."""

    def __init__(self, path: Path, export: str):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        magic, ihaveopt, flags = HANDSHAKE.unpack(self._exactly(HANDSHAKE.size))
        if magic != b"NBDMAGIC" or ihaveopt != b"IHAVEOPT":
            raise ConnectionError(f"{path} does not speak NBD")
        no_zeroes = flags & 2
        self._socket.sendall(struct.pack(">I", 1 | no_zeroes))
        name = export.encode()
        self._socket.sendall(OPTION.pack(b"IHAVEOPT", 1, len(name)) + name)
        self._exactly(10 if no_zeroes else 134)

    def read(self, offset: int, count: int) -> bytes:
        self._socket.sendall(REQUEST.pack(0x25609513, 0, 0, 1, offset, count))
        magic, error, _ = REPLY.unpack(self._exactly(REPLY.size))
        if magic != 0x67446698 or error:
            raise ConnectionError(f"read of {count} bytes at {offset}: NBD error {error}")
        return self._exactly(count)

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionError("the server closed the connection")
            view = view[got:]
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def server() -> Iterator[Path]:
    """A server with a volume for the readers and one for the player."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for volume, size in (("movie", 64 * MIB), ("media", READERS * FILE_BYTES)):
            with (folder / volume).open("wb") as image:
                image.truncate(size)
        path = folder / "nbd.sock"
        command = [*first_in_line(), "nbdkit", "--foreground", f"--unix={path}", "--threads=32"]
        command += [
            str(paths.rotdisk_plugin()),
            f"image=movie:{folder}/movie",
            f"image=media:{folder}/media",
        ]
        process = subprocess.Popen(command)
        try:
            deadline = time.monotonic() + 10
            while not path.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ConnectionError("nbdkit does not start")
                time.sleep(0.02)
            yield path
        finally:
            process.terminate()
            process.wait(10)


class Load:
    """Greedy or paced readers in threads, until ``stop``."""

    def __init__(self, path: Path, count: int, total_bps: float | None):
        self._stop = threading.Event()
        self._bytes = [0] * count
        period = None if total_bps is None else count * REQUEST_BYTES / total_bps
        self._threads = [
            threading.Thread(target=self._read, args=(path, i, count, period)) for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, path: Path, index: int, count: int, period: float | None) -> None:
        client = NbdClient(path, "media")
        offset, due = 0, time.monotonic() + (period or 0) * index / count
        while not self._stop.is_set():
            if period and self._stop.wait(max(0.0, due - time.monotonic())):
                break
            due += period or 0
            client.read(index * FILE_BYTES + offset, REQUEST_BYTES)
            self._bytes[index] += REQUEST_BYTES
            offset = (offset + REQUEST_BYTES) % (FILE_BYTES - REQUEST_BYTES)
        client.close()

    def rate_mb(self, seconds: float) -> float:
        before, started = sum(self._bytes), time.monotonic()
        time.sleep(seconds)
        return (sum(self._bytes) - before) / (time.monotonic() - started) / 1e6

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def play(path: Path, seconds: float) -> tuple[float, float]:
    """Return mean and longest latency in ms of a player's reads."""
    client = NbdClient(path, "movie")
    waits, offset, due = [], 0, time.monotonic()
    while due < time.monotonic() + seconds and len(waits) * PLAYER_BYTES / PLAYER_BPS < seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        due += PLAYER_BYTES / PLAYER_BPS
        started = time.monotonic()
        client.read(offset, PLAYER_BYTES)
        waits.append((time.monotonic() - started) * 1000)
        offset += PLAYER_BYTES
    client.close()
    # The first read comes from wherever the arm was.
    return sum(waits[1:]) / len(waits[1:]), max(waits[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--share", type=float, default=0.8, help="of the greedy rate, for pacing")
    arguments = parser.parse_args()
    for row in constants():
        print(f"{row.name:<18} {row.value:>14,}  {row.why}")
    with server() as path:
        alone = Load(path, 1, None)
        print(f"\none reader alone                 {alone.rate_mb(arguments.seconds):6.1f} MB/s")
        alone.stop()
        mean, longest = play(path, arguments.seconds)
        print(f"player alone                     {mean:6.1f} ms mean, {longest:.1f} ms longest")
        twelve = Load(path, READERS, None)
        time.sleep(2)
        greedy = twelve.rate_mb(arguments.seconds)
        print(f"twelve readers                   {greedy:6.1f} MB/s together")
        mean, longest = play(path, arguments.seconds)
        print(f"player beside them               {mean:6.1f} ms mean, {longest:.1f} ms longest")
        twelve.stop()
        paced = Load(path, READERS, arguments.share * greedy * 1e6)
        time.sleep(2)
        mean, longest = play(path, arguments.seconds)
        print(
            f"player beside {arguments.share * greedy:4.1f} MB/s of them   "
            f"{mean:6.1f} ms mean, {longest:.1f} ms longest"
        )
        paced.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
