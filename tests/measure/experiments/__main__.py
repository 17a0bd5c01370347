# SPDX-License-Identifier: GPL-2.0-or-later
"""Run an experiment: ``python -m measure.experiments E2``; writes build/perf/NAME.json and .html.

The exit status is 1 unless every bar of the experiment is met and nothing is missing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure.experiments import bars, burden, e1, e2, e10, e12, flood, machine, report, syn
from measure.experiments.choice import Choice
from testbed import FAILURES, paths, patience

EXPERIMENTS = {
    "E1": e1,
    "E2": e2,
    "E10": e10,
    "E12": e12,
    "FLOOD": flood,
    "SYN": syn,
    "BURDEN": burden,
}
# Failures with a reason that end an experiment; any other error is a mistake in it.
KNOWN = (*FAILURES, machine.NotAlike, TimeoutError)
OUT = paths.BUILD / "perf"


def main() -> int:
    known = "\n".join(f"  {name}  {module.TITLE}" for name, module in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="perf",
        description="Run one of the papers' experiments on real guests.",
        epilog=f"experiments:\n{known}\n\nexamples:\n  make perf EXPERIMENT=E2\n"
        "  make perf EXPERIMENT=FLOOD ARGS=\"--only 'other guest, ping'\"",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", type=str.upper)
    usual = ", ".join(f"{name} {module.REPEATS}" for name, module in EXPERIMENTS.items())
    parser.add_argument("--repeats", type=int, help=f"runs of each row (default: {usual})")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="measure the rows with this in their name alone"
    )
    chosen = parser.parse_args()
    if chosen.experiment not in EXPERIMENTS:
        parser.error(
            f"EXPERIMENT is {chosen.experiment}; this version has {', '.join(EXPERIMENTS)}"
        )
    experiment = EXPERIMENTS[chosen.experiment]
    repeats = experiment.REPEATS if chosen.repeats is None else chosen.repeats
    if not 1 <= repeats <= 100:
        parser.error(f"--repeats is {repeats}; it must be from 1 to 100")
    choice = Choice(chosen.only)
    if not choice.of(bars.EXPECTED[chosen.experiment]):
        names = "; ".join(", ".join(name) for name in bars.EXPECTED[chosen.experiment])
        parser.error(f"--only is {chosen.only!r}, which is in no row's name: {names}")
    patience.use(patience.of_this_machine())
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    try:
        found = experiment.run(repeats, say, choice)
    except KNOWN as problem:
        say(f"WRONG: {chosen.experiment} came to no end: {problem}")
        return 1
    return conclude(found, OUT, say, choice)


def conclude(
    found: dict[str, Any], folder: Path, say: Callable[[str], None], choice: Choice
) -> int:
    """Judge the wanted rows, keep them, print them; return the exit status."""
    problems = bars.problems(found, choice)
    verdicts = bars.as_json(bars.judge(found))
    whole = {
        "missing": [],
        "only": choice.only,
        **found,
        "verdicts": verdicts,
        "problems": problems,
    }
    folder.mkdir(parents=True, exist_ok=True)
    name = found["experiment"].lower() + choice.suffix()
    text = json.dumps(report.finite(whole), indent=2, allow_nan=False)
    (folder / f"{name}.json").write_text(text + "\n")
    (folder / f"{name}.html").write_text(report.page(whole))
    for problem in problems:
        say(f"WRONG: {problem}")
    met = sum(verdict["outcome"] == bars.Outcome.MET for verdict in verdicts)
    say(f"{met} of {len(verdicts)} bars met, {len(problems)} problems")
    say(f"wrote {folder / name}.json and .html")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
