# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Sluice's packages in a folder of the control node."""

from __future__ import annotations

import os

from ansible.plugins.lookup import LookupBase
from ansible_collections.sluice.appliance.plugins.module_utils.package_index import (
    IndexProblem,
    index_of,
    read_folder,
)

DOCUMENTATION = r"""
name: packages
author: The Sluice developers
version_added: 0.1.0
short_description: Find and check .deb files on the control node
description:
  - Reads the index C(Packages) of a folder, takes the named packages and what they need of the
    same folder, and checks size and SHA-256 of each file.
options:
  _terms:
    description: Names of packages.
    type: list
    elements: str
    required: true
  folder:
    description: The folder on the control node.
    type: path
    required: true
"""

EXAMPLES = r"""
found: "{{ lookup('sluice.appliance.packages', 'sluice-web', folder='build/deb') }}"
"""

RETURN = r"""
_raw:
  description: >-
    One mapping with C(packages) (list), C(index), the text of their own C(Packages), and
    C(problem), a sentence where something is wrong.
  type: list
  elements: dict
"""


class LookupModule(LookupBase):
    """See DOCUMENTATION."""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        folder = os.path.abspath(os.path.expanduser(self.get_option("folder")))
        names = [name for term in terms for name in ([term] if isinstance(term, str) else term)]
        try:
            packages = read_folder(folder, names)
        except IndexProblem as problem:
            # Said by the role: an exception here would be buried in Ansible's own words.
            sentence = f"sluice_packages_dir {folder!r} {problem}"
            return [{"packages": [], "index": "", "problem": sentence}]
        found = [package.as_dict(folder) for package in packages]
        return [{"packages": found, "index": index_of(packages), "problem": ""}]
