# SPDX-License-Identifier: GPL-2.0-or-later
"""A program tells the host's Sluice how its stream is: frames shown or sent, late, lost.

The guest's sluice-agent takes the report and knows the class by the process::

    with Stream("film", rate=25) as stream:
        for frame in frames:
            show(frame)
            stream.frames += 1
            if half_a_second_has_passed():
                stream.report()

Nothing here blocks, and without an agent ``report`` returns false.
"""

from __future__ import annotations

import json
import socket
from types import TracebackType

PATH = "/run/sluice-agent/report.sock"


class Stream:
    """A stream is its class and its name.

    ``frames``, ``late`` and ``lost`` count since the stream began. ``rate`` is the desired
    rate in frames per second, ``name`` has 1 to 24 printable characters of ASCII. ``class_``
    must be the process's own class, unless root reports. ``source`` is ``program``, or whose
    numbers these are: ``vlc``, ``ffmpeg``, ``gstreamer``, ``socket``.
    """

    def __init__(
        self,
        name: str,
        rate: float,
        class_: str | None = None,
        path: str = PATH,
        source: str = "program",
    ) -> None:
        if not 1 <= len(name) <= 24 or not (name.isascii() and name.isprintable()):
            raise ValueError(f"name: {name!r} is not 1 to 24 printable characters of ASCII")
        self.name = name
        self.rate = rate
        self.class_ = class_
        self.source = source
        self.frames = self.late = self.lost = 0
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def report(self) -> bool:
        """Once or twice a second is enough. False if no agent took the report."""
        said = {
            "name": self.name,
            "rate": self.rate,
            "frames": self.frames,
            "late": self.late,
            "lost": self.lost,
            "source": self.source,
            "class": self.class_,
        }
        try:
            self._socket.sendto(json.dumps(said).encode(), self._path)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """The host forgets a stream that reports no more within 10 s."""
        self._socket.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
