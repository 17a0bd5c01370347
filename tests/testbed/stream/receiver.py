# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m testbed.stream.receiver``: receive a stream, measure it, report the figures.

Prints one JSON line per window on standard output (the fields of
``meter.Window``; ``start_s`` is CLOCK_MONOTONIC). Forwards the
transport packets, without RTP, to a player on the loopback whose decoder's
counts go into the windows. Ends at
SIGTERM, or when its standard output is closed.
"""

import argparse
import json
import signal
import socket
import sys
import time
from dataclasses import asdict

from testbed.stream.decoder import Decoder, Viewer
from testbed.stream.meter import Meter

# Linux' SO_RCVBUFFORCE, which Python's socket module does not name.
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
DATAGRAM_BYTES = 65536


class Ended(Exception):
    """SIGTERM came."""


def end(_number: int, _frame: object) -> None:
    raise Ended


def open_input(port: int) -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # A burst after a pause must not be lost here: only the network may lose.
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    receiver.bind(("0.0.0.0", port))
    return receiver


def decoder_counts(decoder: Decoder | None, viewer: Viewer, now: float) -> tuple[int, int, int]:
    """Return (pictures shown, pictures lost, audio buffers lost) since the last window."""
    counts = decoder.new_counts() if decoder else (0, 0, 0)
    return counts if viewer.counts(now) else (0, 0, 0)


def receive(arguments: argparse.Namespace) -> None:
    incoming = open_input(arguments.port)
    outgoing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    player = ("127.0.0.1", arguments.forward) if arguments.forward else None
    decoder = Decoder(arguments.control) if arguments.control else None
    viewer = Viewer()
    meter = Meter(arguments.buffer_ms / 1000)
    next_window = time.monotonic() + arguments.window_ms / 1000
    while True:
        incoming.settimeout(max(0.001, next_window - time.monotonic()))
        try:
            datagram = incoming.recv(DATAGRAM_BYTES)
        except TimeoutError:
            datagram = None
        now = time.monotonic()
        if datagram:
            payload = meter.add(datagram, now)
            if player and payload:
                outgoing.sendto(payload, player)
        if now >= next_window:
            next_window = max(next_window + arguments.window_ms / 1000, now)
            if meter.started:
                window = meter.close_window(now, decoder_counts(decoder, viewer, now))
                print(json.dumps(asdict(window)), flush=True)
                faulty = bool(window.continuity_errors or window.stall_seconds)
                if decoder and viewer.presses_play(faulty, now):
                    decoder.restart()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True, help="UDP port to receive on")
    parser.add_argument("--forward", type=int, help="UDP port of a player on the loopback")
    parser.add_argument("--control", help="the player's control socket (VLC's --rc-unix)")
    parser.add_argument("--buffer-ms", type=float, default=1000.0, help="the player's buffer")
    parser.add_argument("--window-ms", type=float, default=500.0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    try:
        receive(arguments)
    except (Ended, BrokenPipeError, KeyboardInterrupt):
        return 0
    except OSError as problem:
        print(f"receiver: port {arguments.port}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
