# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m measure.stress PART``: the long runs with a real guest."""

import argparse
import json
import sys
import time
from dataclasses import asdict

from measure.stress import changes, hosts, migration
from testbed import paths, patience

EXAMPLES = """
  make stress ARGS="migration --count 50"      50 live migrations under fio and iperf3
  make stress ARGS="hosts"                     4 by libvirt between two hosts with KVM
  make stress ARGS="changes"                   100,000 changes of classes in 10 minutes
  make stress ARGS="changes --count 2000 --seconds 60"
  make stress ARGS="lifecycle"                 qtests with the address sanitizer, 334 cycles
  make stress ARGS="lifecycle 334 /net/"       those of cards alone
  make stress ARGS="threads 50"                several I/O threads with the thread sanitizer
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="stress",
        description=__doc__,
        epilog="examples:" + EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(dest="part", required=True)
    moving = parts.add_parser("migration", help="live migration between two QEMUs")
    moving.add_argument("--count", type=int, default=50, help="how many (%(default)s)")
    far = parts.add_parser("hosts", help="migration by libvirt between two hosts with KVM")
    far.add_argument("--count", type=int, default=4, help="how many (%(default)s)")
    changing = parts.add_parser("changes", help="changes of classes under load")
    changing.add_argument("--count", type=int, default=100_000, help="how many (%(default)s)")
    changing.add_argument(
        "--seconds", type=float, default=600.0, help="in at least this time (%(default)s)"
    )
    changing.add_argument(
        "--skip-times",
        action="store_true",
        help="do not fail, but say so, where the machine is too busy to judge times",
    )
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error(f"--count {arguments.count}: use at least 1")
    patience.use(patience.of_this_machine())
    if arguments.part == "migration":
        outcome = migration.run(arguments.count, say)
    elif arguments.part == "hosts":
        outcome = hosts.run(arguments.count, say)
    else:
        outcome = changes.run(arguments.count, arguments.seconds, say)
        if arguments.skip_times and (busy := outcome.too_busy()):
            return report(arguments.part, outcome, outcome.wrong(), f"of the times: {busy}")
    return report(arguments.part, outcome, outcome.problems())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def report(
    part: str,
    outcome: migration.Outcome | changes.Outcome,
    problems: list[str],
    skipped: str = "",
) -> int:
    """Print and keep the outcome; 1 if anything is wrong. ``skipped`` was not judged."""
    folder = paths.BUILD / "stress"
    folder.mkdir(parents=True, exist_ok=True)
    result = {**asdict(outcome), "problems": problems, "skipped": skipped}
    (folder / f"{part}.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, value in asdict(outcome).items():
        say(f"{name}: {in_words(value)}")
    for problem in problems:
        say(f"WRONG: {problem}")
    say("all well" if not problems else f"{len(problems)} things are wrong")
    if skipped:
        print(f"SKIPPED [1] {skipped}")
    told = ", 1 skipped" if skipped else ""
    print(f"{int(not problems)} passed, {len(problems)} failed{told}")
    return 1 if problems else 0


def in_words(value: float | str | list[float] | dict[str, float] | None) -> str:
    """Return a figure as people read it; the file has it to its last digit."""
    if value is None:
        return "not counted here"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list) and value:
        return f"{in_words(min(value))} to {in_words(max(value))}"
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {in_words(one)}" for name, one in value.items())
    return "none" if value in ("", [], {}) else str(value)


if __name__ == "__main__":
    sys.exit(main())
