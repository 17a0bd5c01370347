# SPDX-License-Identifier: GPL-2.0-or-later
"""The nightly run: a host proves itself. ``sluice-nightly --help``.

config    /etc/sluice/nightly.toml: pure, but for reading the file
decide    may it start, must it end: pure
activity  libvirt's counters to guests' traffic: pure
facts     the host's figures for the decisions
host      sluiced's API and libvirt, as the run asks them
images    the guest's and the disks' images, made on the host
result    the demo's report to the night's result: pure
shelf     results on disk until sluiced has them, and leftovers of runs
watch     looks at the host during a run, and ends it
night     one night from lock to result
cli       the command

The scenario, its judge, its report and the testbed below it are the demo's.
"""
