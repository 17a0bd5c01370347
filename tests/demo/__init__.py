# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo: a VLC stream survives an overload. ``python -m demo --help``.

plan      sizes, and the bars that must hold: pure
api       the web's REST interface, as a page uses it, or sluiced's own
scene     the host, its guests and their classes
sampler   once a second: rates, limits, disk, network, stream
measure   a few seconds: the cost of disk, link and stream here
scale     costs to sizes that fit the machine: pure
run       the trial, the three phases, and once more where processors were short
judge     phases to figures and bars: pure
report    report.json and report.html
charts    the page's plots: pure
show      the printed output
"""
