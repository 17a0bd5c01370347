# SPDX-License-Identifier: GPL-2.0-or-later
"""A native VLC that plays the receiver's packets, and its own statistics.

VLC's ``oldrc`` interface answers ``stats`` with lines of the form ``| frames lost : 3``. Only
growth since the last question counts.
"""

import contextlib
import re
import socket
from dataclasses import dataclass

COUNTED = ("frames displayed", "frames lost", "buffers lost")
ANSWER_SECONDS = 0.2
LARGEST_ANSWER = 64 * 1024


def vlc_command(port: int, control: str, caching_ms: int) -> list[str]:
    """Return the player's command line: no window, no sound card, everything decoded."""
    return [
        "vlc",
        "--intf=oldrc",
        f"--rc-unix={control}",
        "--rc-fake-tty",
        "--no-media-library",
        "--ignore-config",
        "--vout=dummy",
        "--aout=dummy",
        "--no-osd",
        "--no-spu",
        "--avcodec-threads=1",
        f"--network-caching={caching_ms}",
        f"udp://@127.0.0.1:{port}",
    ]


def parse_stats(text: str) -> dict[str, int] | None:
    """Read VLC's answer; None if it has no statistics yet."""
    found = dict(re.findall(r"^\|\s*([a-z ]+?)\s*:\s*(\d+)", text, re.MULTILINE))
    if any(name not in found for name in COUNTED):
        return None
    return {name: int(found[name]) for name in COUNTED}


@dataclass
class Counts:
    """Turns VLC's totals into increases; VLC counts anew when it restarts its input."""

    last: dict[str, int] | None = None

    def new(self, stats: dict[str, int] | None) -> tuple[int, int, int]:
        """Return (shown, lost, audio buffers lost) since the last call."""
        if stats is None:
            return 0, 0, 0
        last = self.last or dict.fromkeys(COUNTED, 0)
        self.last = stats
        shown, lost, audio = (
            stats[name] - last[name] if stats[name] >= last[name] else stats[name]
            for name in COUNTED
        )
        return shown, lost, audio


@dataclass
class Viewer:
    """When a viewer presses stop and play: once the stream has come well again.

    A player whose clock was set while data came late, or in a burst after it, keeps that error,
    and loses pictures of a stream that is in order again. The decoder's counts while it starts
    anew say nothing of the stream.
    """

    patience_s: float = 2.0
    settling_s: float = 2.0
    _fault_at: float | None = None
    _quiet_until: float = 0.0

    def presses_play(self, faulty: bool, now: float) -> bool:
        """Take note of a window; True if the viewer acts now."""
        if faulty:
            self._fault_at = now
        elif self._fault_at is not None and now - self._fault_at >= self.patience_s:
            self._fault_at = None
            self._quiet_until = now + self.settling_s
            return True
        return False

    def counts(self, now: float) -> bool:
        """False while the player starts anew."""
        return now >= self._quiet_until


class Decoder:
    """Asks a running VLC for its statistics without ever waiting long for it."""

    def __init__(self, control: str):
        self._control = control
        self._socket: socket.socket | None = None
        self._text = ""
        self._counts = Counts()

    def new_counts(self) -> tuple[int, int, int]:
        """Return VLC's counts since the last call; zeros while it does not answer."""
        try:
            if not self._socket:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(ANSWER_SECONDS)
                self._socket.connect(self._control)
            answer = self._ask()
        except OSError:
            if self._socket:
                self._socket.close()
                self._socket = None
            return 0, 0, 0
        return self._counts.new(parse_stats(answer))

    def restart(self) -> None:
        """Stop and play again, as a viewer does after the picture broke."""
        if self._socket:
            with contextlib.suppress(OSError):
                self._socket.sendall(b"stop\nplay\n")

    def _ask(self) -> str:
        """Return the newest whole answer; the one to this question may come with the next."""
        self._socket.sendall(b"stats\n")
        try:
            while "end of statistical info" not in self._text:
                piece = self._socket.recv(8192)
                if not piece:
                    raise OSError("VLC closed its control socket")
                self._text = (self._text + piece.decode(errors="replace"))[-LARGEST_ANSWER:]
        except TimeoutError:
            return ""
        answer, self._text = self._text, ""
        return answer
