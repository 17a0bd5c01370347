# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting for what the reconciler does in threads of its own."""


def finish(reconciler, name: str) -> None:
    """Returns when a running push for the domain is over."""
    running = reconciler._running.get(name)
    if running is not None:
        running.result()
