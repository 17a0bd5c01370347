# SPDX-License-Identifier: GPL-2.0-or-later
"""A stream as its client receives it, and its quality.

``packets`` reads RTP and MPEG transport packets, ``playout`` models the player's
buffer, ``meter`` puts both together, ``verdict`` judges: all pure, bytes and
times in, numbers out. ``receiver`` is the program around them, ``decoder`` a
native VLC whose decoder counts lost pictures.
"""

from testbed.stream.meter import Meter, Window, total
from testbed.stream.verdict import Quality, judge

__all__ = ["Meter", "Quality", "Window", "judge", "total"]
