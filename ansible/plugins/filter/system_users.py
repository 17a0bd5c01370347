# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Filters that say which accounts a removal may delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

DOCUMENTATION = r"""
name: system_users
author: The Sluice developers
version_added: 0.1.0
short_description: Which of some users are the system's
description:
  - What packages make has a number that people do not have. Who has another was there before.
positional: names
options:
  _input:
    description: Users as ansible.builtin.getent has them, of the host's own files.
    type: dict
    required: true
  names:
    description: Of whom it is asked.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
users: "{{ ansible_facts.getent_passwd | sluice.appliance.system_users(['sluice-web']) }}"
"""

RETURN = r"""
_value:
  description: Names, in the order that they were given.
  type: list
  elements: str
"""

# Debian's SYS_UID_MAX and SYS_GID_MAX (login.defs).
NUMBER_MAX = 999
# In an entry without its name.
UID, PRIMARY_GID = 1, 2
GID = 1

Entries = Mapping[str, Sequence[str]]


def system_users(passwd: Entries, names: Iterable[str]) -> list[str]:
    """Those of the names that are users of the system.

    >>> system_users({"a": ["x", "999", "1"], "b": ["x", "1000", "1"]}, ["a", "b", "c"])
    ['a']
    """
    return [name for name in names if name in passwd and int(passwd[name][UID]) <= NUMBER_MAX]


def system_groups(group: Entries, names: Iterable[str], passwd: Entries) -> list[str]:
    """Those of the names that are groups of the system, and nobody's first.

    >>> group = {"a": ["x", "7", ""], "b": ["x", "8", ""]}
    >>> system_groups(group, ["a", "b"], {"user": ["x", "1", "8"]})
    ['a']
    """
    first = {int(entry[PRIMARY_GID]) for entry in passwd.values()}
    return [
        name
        for name in names
        if name in group
        and int(group[name][GID]) <= NUMBER_MAX
        and int(group[name][GID]) not in first
    ]


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict:
        """Return them."""
        return {"system_users": system_users, "system_groups": system_groups}
