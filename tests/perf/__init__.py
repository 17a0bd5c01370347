# SPDX-License-Identifier: GPL-2.0-or-later
"""The papers' experiments, run on real guests.

``accuracy`` is arithmetic on samples and imports no testbed; an experiment
(``e2``) drives guests and hands its samples to it; ``report`` writes the JSON
file and the page.
"""
