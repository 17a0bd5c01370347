# SPDX-License-Identifier: GPL-2.0-or-later
"""Differences between two manifests of a host that somebody signed in to meanwhile, and why."""

from deploy.manifest import Excepted

ALWAYS = (
    Excepted("/var/log/*", "logs are kept"),
    Excepted("/var/lib/systemd/*", "systemd's own notes: random seed, timers, credentials"),
    Excepted("/home/ops/.ansible*", "Ansible's folder of the user who signs in"),
    Excepted("/root/.ansible*", "Ansible's folder of root"),
    Excepted("/var/lib/apt/lists*", "what the archives offer, as last fetched"),
    Excepted("/var/cache/apt*", "APT's caches"),
)
