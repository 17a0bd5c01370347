# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure auto-shaping on simulated hosts: ``python -m sim``; writes build/sim/report.json."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from sim import report
from sim.figures import Figures
from sim.scenario import JUDGED_FROM, KINDS
from sim.sweep import POLICIES, all_measured
from testbed import paths

SEEDS = f"{JUDGED_FROM}-{JUDGED_FROM + 11}"
MOST_SEEDS = 1000
OUT = paths.BUILD / "sim" / "report.json"
EXAMPLES = f"""\
seeds below {JUDGED_FROM} are for fitting constants, seeds from {JUDGED_FROM} on for judging them.

examples:
  make sim                                        12 seeds of each kind, for judging
  make sim ARGS="--seeds 0-19 --kind ssd"         20 seeds of one kind, for fitting
  make sim ARGS="--kind beyond --policy none"     without shaping
  make sim ARGS="--seeds 3 --kind sliced --each"  a line for each run
"""


def seeds(text: str) -> range:
    """A seed, or the first and the last of several: 0-19."""
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range; write 7 or 0-19") from None
    if not 1 <= len(found) <= MOST_SEEDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} has {len(found)} seeds; give 1 to {MOST_SEEDS}, the lowest first"
        )
    return found


def _line(run: Figures) -> str:
    background = "–" if run.background is None else f"{run.background:.2f}"
    perfect = run.seconds_to_perfect
    return (
        f"{run.kind} {run.seed} {run.policy}: imperfect half-seconds {run.imperfect_half_seconds},"
        f" perfect after {'never' if perfect is None else f'{perfect:.1f} s'},"
        f" background {background}"
        f"{'' if run.overloaded else ', no overload'}"
        f"{'' if run.possible else ', not possible in each epoch'}"
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sim",
        description="Measure auto-shaping on simulated hosts, request by request.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seeds", type=seeds, default=SEEDS, metavar="N[-M]", help=f"default: {SEEDS}"
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        help="a kind of scenario, several times for several (default: all)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        choices=POLICIES,
        help="gate (default): sluiced steers bytes in flight, and the uplink has streams first;"
        " rates: it sets limits; undeclared: gate, without declared rates; none: no shaping;"
        " several times for several",
    )
    parser.add_argument("--each", action="store_true", help="print a line for each run")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="scenarios at a time (default: one a processor)",
    )
    parser.add_argument("--out", type=Path, default=OUT, help=f"default: {OUT}")
    return parser


def main() -> int:
    parser = _options()
    chosen = parser.parse_args()
    if chosen.jobs < 1:
        parser.error(f"--jobs is {chosen.jobs}; it must be 1 or more")
    policies = tuple(chosen.policy or POLICIES[:1])
    jobs = [(kind, seed, policies) for seed in chosen.seeds for kind in chosen.kind or KINDS]
    started, runs, events = time.monotonic(), [], 0
    shows_progress = sys.stderr.isatty()
    for done, (found, more) in enumerate(all_measured(jobs, min(chosen.jobs, len(jobs))), 1):
        runs += found
        events += more
        if chosen.each:
            print("\n".join(map(_line, found)), flush=True)
        if shows_progress:
            seconds = time.monotonic() - started
            end = "\n" if done == len(jobs) else ""
            print(
                f"\r{done} of {len(jobs)} scenarios, {seconds:.0f} s",
                end=end,
                file=sys.stderr,
                flush=True,
            )
    order = {job[:2]: number for number, job in enumerate(jobs)}
    runs.sort(key=lambda run: (order[run.kind, run.seed], run.policy))
    print(report.table(runs))
    print(report.LEGEND)
    calm = sum(not run.overloaded for run in runs)
    print(
        f"{len(runs)} runs, of which {calm} were no overload; seeds {chosen.seeds[0]} to"
        f" {chosen.seeds[-1]}; {events / 1e6:.0f} million events,"
        f" {time.monotonic() - started:.0f} s; all runs: {chosen.out}"
    )
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(report.as_json(runs, sys.argv[1:], events), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
