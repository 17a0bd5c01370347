# SPDX-License-Identifier: GPL-2.0-or-later
"""Many scenarios under each policy, several at a time."""

import logging
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace

from sim import native
from sim.figures import Figures, figures
from sim.optimum import optimum
from sim.run import Course, Unshaped, run
from sim.scenario import Scenario, draw
from sim.sluiced import sluiced
from sluice_controller.domain.model import GATE, METHODS

# A gate for streams that do not declare their rate.
UNDECLARED = "undeclared"
POLICIES = (*METHODS, UNDECLARED, "none")

# (kind, seed, policies)
Job = tuple[str, int, Sequence[str]]


def _course(scenario: Scenario, policy: str) -> Course:
    if policy == "none":
        return run(scenario, Unshaped())
    method = GATE if policy == UNDECLARED else policy
    with sluiced(scenario, method, declares=policy != UNDECLARED) as daemon:
        return run(_streams_first(scenario) if method == GATE else scenario, daemon)


def _streams_first(scenario: Scenario) -> Scenario:
    """With a root `prio` on the uplink."""
    if scenario.link is None:
        return scenario
    link = native.Link.from_buffer_copy(scenario.link)
    link.streams_first = True
    return replace(scenario, link=link)


def measured(job: Job) -> tuple[list[Figures], int]:
    """The figures of a scenario under each policy, and how many events these runs had."""
    kind, seed, policies = job
    # The log of sluiced has a line for each decision.
    logging.getLogger("sluice_controller").setLevel(logging.ERROR)
    scenario = draw(kind, seed)
    best = optimum(scenario)
    found, events = [], 0
    for policy in policies:
        course = _course(scenario, policy)
        found.append(figures(scenario, policy, course, best))
        events += course.events
    return found, events


def all_measured(jobs: Sequence[Job], processes: int) -> Iterator[tuple[list[Figures], int]]:
    """Of each job, in the order of their ends; processes of their own run several at a time."""
    native.build()
    if processes == 1:
        yield from map(measured, jobs)
        return
    # Not forked: the parent may have threads.
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning) as pool:
        for done in as_completed(pool.submit(measured, job) for job in jobs):
            yield done.result()
