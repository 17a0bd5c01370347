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
    Excepted("/var/lib/apt/lists*", "what the archives offer, as last fetched"),
    Excepted("/var/cache/apt*", "APT's caches"),
)
# What these files say is compared package by package: see ``collect.packages``.
NO_FIXED_ORDER = "it keeps packages in no fixed order"
REMOVED = (
    *ALWAYS,
    Excepted("/var/lib/dpkg/status", NO_FIXED_ORDER, by_chance=True),
    Excepted("/var/lib/apt/extended_states", NO_FIXED_ORDER, by_chance=True),
    Excepted("/var/lib/dpkg/*-old", "the version before the last change"),
    # Only some of the packages, those of the nightly run, keep a file by ucf.
    Excepted("/var/lib/ucf/hashfile.*", "ucf's lists before the last changes", by_chance=True),
    Excepted("/etc/passwd-", "the version before the last change, which each change writes"),
    Excepted("/etc/group-", "the version before the last change, which each change writes"),
    Excepted("/etc/shadow-", "the version before the last change, which each change writes"),
    Excepted("/etc/gshadow-", "the version before the last change, which each change writes"),
    Excepted("/etc/apparmor.d/disable", "an empty folder that dpkg removes with libvirt"),
    Excepted("/var/cache/debconf/*", "debconf's copies of the version before"),
    Excepted("/var/cache/ldconfig/*", "ldconfig's notes on when libraries changed"),
    Excepted(
        "state:unit/systemd-machined.service",
        "systemd-container, which libvirt needs, is purged without stopping it; it ends at "
        "the next boot",
    ),
)
