# SPDX-License-Identifier: GPL-2.0-or-later
"""Sluice's controller: one daemon per KVM host, and the command line.

Layers, inner to outer; a module imports only from its own layer and those
before it: `domain` (values and decisions, standard library only), `services`
(use cases against the ports they declare), `adapters` (libvirt, QMP, database,
agent socket, counters page, queue discipline), `entry` (API, CLI, daemon).
"""

__version__ = "0.1.0"
