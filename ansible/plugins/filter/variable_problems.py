# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Filters that judge variables by themselves, before any host is changed."""

from __future__ import annotations

from ansible_collections.sluice.appliance.plugins.module_utils.apt_source import (
    list_patterns,
    read_source,
)
from ansible_collections.sluice.appliance.plugins.module_utils.pem import pair_problem
from ansible_collections.sluice.appliance.plugins.module_utils.sandbox import (
    controller_dropin,
    driver_packages,
    folders_to_check,
    nightly_dropin,
    own_folders,
    web_dropin,
)
from ansible_collections.sluice.appliance.plugins.module_utils.settings import (
    nightly_needs,
    variable_problems,
    web_names_problems,
)

DOCUMENTATION = r"""
name: variable_problems
author: The Sluice developers
version_added: 0.1.0
short_description: What is wrong with the values of variables
description:
  - Checks each value's kind as it was written, and what it says, settings of files included.
  - A value whose option has C(no_log) is in no sentence.
positional: options
options:
  _input:
    description: Values by the variables' names.
    type: dict
    required: true
  options:
    description: The variables' declarations, as a role's argument_specs.yml has them.
    type: dict
    required: true
"""

EXAMPLES = r"""
problems: "{{ {'sluice_web_bind': '8480'} | sluice.appliance.variable_problems(options) }}"
"""

RETURN = r"""
_value:
  description: One sentence for each problem.
  type: list
  elements: str
"""


class FilterModule:
    """The filters by their names."""

    def filters(self):
        return {
            "apt_lists": list_patterns,
            "apt_source": read_source,
            "controller_dropin": controller_dropin,
            "driver_packages": driver_packages,
            "folders_to_check": folders_to_check,
            "nightly_dropin": nightly_dropin,
            "own_folders": own_folders,
            "web_dropin": web_dropin,
            "nightly_needs": nightly_needs,
            "pair_problem": pair_problem,
            "variable_problems": variable_problems,
            "web_names_problems": web_names_problems,
        }
