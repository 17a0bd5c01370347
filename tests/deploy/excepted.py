# SPDX-License-Identifier: GPL-2.0-or-later
"""What may differ between two manifests of a host, and why.

``ALWAYS`` holds for any host that somebody signed in to meanwhile; ``REMOVED``
is what ``remove.yml`` with data and prerequisites leaves besides.
"""

from deploy.manifest import Excepted

ALWAYS = (
    Excepted("/var/log/*", "logs are kept"),
    Excepted("/var/lib/systemd/*", "systemd's own notes: random seed, timers, credentials"),
    Excepted("/home/ops/.ansible*", "Ansible's folder of the user who signs in"),
    Excepted("/root/.ansible*", "Ansible's folder of root"),
    Excepted("/var/lib/apt/*", "APT's lists and notes"),
    Excepted("/var/cache/apt*", "APT's caches"),
    Excepted("/var/lib/dpkg/*", "dpkg's log of what was there, with times"),
)
REMOVED = (*ALWAYS,)
