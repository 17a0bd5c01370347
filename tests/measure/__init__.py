# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements on real guests, for which no test run has the time.

``experiments`` are the papers', with bars (``make perf``); ``stress`` looks for lost and
doubled requests in long runs (``make stress``). Both have the programs that make the
load from ``loads`` and QEMU's answers from ``qmp``.
"""
