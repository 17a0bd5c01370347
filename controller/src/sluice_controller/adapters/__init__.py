# SPDX-License-Identifier: GPL-2.0-or-later
"""The outside world: libvirt, QMP, database, agent socket, counters page, qdisc."""
