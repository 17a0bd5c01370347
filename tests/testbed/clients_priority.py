# SPDX-License-Identifier: GPL-2.0-or-later
"""Processors for programs that would have a machine of their own.

The viewer's machine and the disk have nothing to do with how busy the host is.
Here they share its processors, so they come first: under real-time scheduling
where that is allowed, else with a high priority. Both need a few per cent.
"""

import functools
import subprocess


@functools.cache
def first_in_line() -> tuple[str, ...]:
    """Return the words to put before a command so that it never waits for the host's load."""
    real_time = ("chrt", "--rr", "10")
    tried = subprocess.run([*real_time, "true"], capture_output=True, timeout=10, check=False)
    return real_time if tried.returncode == 0 else ("nice", "-n", "-15")


# Within its control group (``testbed.processors``), runs only when no other program would.
LAST_IN_LINE = ("chrt", "--idle", "0")
