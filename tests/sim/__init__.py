# SPDX-License-Identifier: GPL-2.0-or-later
"""A host in simulated time, to measure auto-shaping on hundreds of scenarios (``make sim``).

``plant`` is the host, in C, with the real engine; ``scenario`` draws scenarios by seed;
``run`` lets one pass under a policy, with the real sampler and tuner of sluiced; ``optimum``
searches the best static rates; ``figures`` and ``report`` judge. It lies beside ``measure``,
whose subjects are real guests: nothing here needs a guest, root or the machine's clock.
"""
