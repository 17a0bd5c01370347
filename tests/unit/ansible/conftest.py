# SPDX-License-Identifier: GPL-2.0-or-later
"""The collection's own code is importable in these tests."""

import ansible_collection

ansible_collection.link("--own")
