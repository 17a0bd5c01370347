# SPDX-License-Identifier: GPL-2.0-or-later
"""Run an experiment: ``python -m perf E2``; writes build/perf/NAME.json and .html."""

import argparse
import json
import sys
import time
from pathlib import Path

from perf import e1, e2, flood, report

EXPERIMENTS = {"E1": e1, "E2": e2, "FLOOD": flood}
OUT = Path(__file__).resolve().parents[2] / "build" / "perf"


def main() -> int:
    known = "\n".join(f"  {name}  {module.TITLE}" for name, module in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="perf",
        description="Run one of the papers' experiments on real guests.",
        epilog=f"experiments:\n{known}\n\nexample: make perf EXPERIMENT=E2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", type=str.upper)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each row (default 3)")
    chosen = parser.parse_args()
    if chosen.experiment not in EXPERIMENTS:
        parser.error(
            f"EXPERIMENT is {chosen.experiment}; this version has {', '.join(EXPERIMENTS)}"
        )
    if not 1 <= chosen.repeats <= 100:
        parser.error(f"--repeats is {chosen.repeats}; it must be from 1 to 100")
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    found = EXPERIMENTS[chosen.experiment].run(chosen.repeats, say)
    OUT.mkdir(parents=True, exist_ok=True)
    name = chosen.experiment.lower()
    (OUT / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    (OUT / f"{name}.html").write_text(report.page(found))
    say(f"wrote {OUT / name}.json and .html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
