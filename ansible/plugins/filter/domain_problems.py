# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Filters over the inventory's variables."""

from __future__ import annotations

import difflib

from ansible_collections.sluice.appliance.plugins.module_utils.shaping import (
    class_definitions,
    problems_of,
)

DOCUMENTATION = r"""
name: domain_problems
author: The Sluice developers
version_added: 0.1.0
short_description: What is wrong with C(sluice_domains) as a whole
description:
  - Checks domains, classes and rules one by one and against each other.
positional: classes, rules
options:
  _input:
    description: The variable C(sluice_domains).
    type: list
    elements: dict
    required: true
  classes:
    description: The variable C(sluice_classes).
    type: list
    elements: dict
  rules:
    description: The variable C(sluice_rules).
    type: list
    elements: dict
"""

EXAMPLES = r"""
problems: "{{ sluice_domains | sluice.appliance.domain_problems(sluice_classes, sluice_rules) }}"
"""

RETURN = r"""
_value:
  description: One sentence for each problem.
  type: list
  elements: str
"""


def unknown_variables(names, known):
    """Sentences about variables that begin with sluice_ and that no role knows."""
    found = []
    for name in sorted(set(names) - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see docs/reference/ansible.md"
        found.append(f"variable {name!r} is not known: {hint}")
    return found


class FilterModule:
    """The filters by their names."""

    def filters(self):
        return {
            "domain_problems": problems_of,
            "class_definitions": class_definitions,
            "unknown_variables": unknown_variables,
        }
