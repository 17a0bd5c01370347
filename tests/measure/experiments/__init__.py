# SPDX-License-Identifier: GPL-2.0-or-later
"""The papers' experiments, run on real guests.

``accuracy`` and ``bars`` import no testbed: the one is arithmetic on samples, the
other judges an experiment's figures. An experiment (``e1``, ``e2``, ``flood``)
drives guests and gathers ``rows`` of figures; ``report`` writes the JSON file and the
page.
"""
