# SPDX-License-Identifier: GPL-2.0-or-later
"""Long runs that no test run has the time for; see ``python -m measure.stress --help``."""
