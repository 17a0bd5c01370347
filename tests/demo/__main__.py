# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m demo``: a VLC stream survives an overload.

Exit code 0: all bars hold. 1: a bar does not hold. 2: the demo could not run. 3: processors
were short, so that nothing is said of disk and link.
"""

import argparse
import signal
import sys
import threading
from dataclasses import replace

from rich.console import Console

from demo import judge, report, show
from demo.plan import METHODS, BadPlan, Plan
from demo.run import KNOWN, Outcome, Run
from demo.scale import FILMS_MBIT
from demo.scene import Scene
from testbed import patience, processors

PROCESSORS_SHORT = 3


def megabytes(text: str) -> int:
    """Read MB/s; return bytes per second."""
    try:
        return round(float(text) * 1e6)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is no speed of a disk in MB/s") from None


def parse() -> Plan:
    default = Plan()
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="A VLC stream beside cat readers and an overloaded web server: "
        "alone, without shaping, and with auto-shaping. Film, link, disk and readers are "
        "chosen to fit this machine, unless they are given.",
        epilog="examples: make demo ARGS=--once\n"
        "          make demo ARGS='--once --policy rates'\n"
        "          make demo ARGS='--once --link-mbit 400 --film-mbit 7'\n"
        "exit code: 0 all bars hold, 1 one does not, 2 it could not run, 3 processors were short",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--once", action="store_true", help="end by itself and clean up")
    parser.add_argument(
        "--policy",
        choices=METHODS,
        default=default.method,
        help="auto-shaping of the disk by bytes in flight (gate), or by rates as in the papers"
        " (gate)",
    )

    def setting(option: str, kind: type, preset: object, metavar: str, words: str) -> None:
        chosen = "chosen" if preset is None else f"{preset:g}"
        parser.add_argument(
            option, type=kind, default=preset, metavar=metavar, help=f"{words} ({chosen})"
        )

    films = ", ".join(f"{film:g}" for film in FILMS_MBIT)
    setting("--film-mbit", float, None, "N", f"the film's rate in Mbit/s, of {films}")
    setting("--link-mbit", int, None, "N", "the uplink's rate in Mbit/s")
    setting("--disk-mb", megabytes, None, "N", "the speed of the disk's platter in MB/s")
    setting("--readers", int, None, "N", "how many cats read")
    setting("--wgets", int, default.wgets, "N", "how many wgets fetch files")
    setting("--overload", float, None, "X", "what httperf asks for, in links")
    setting("--seconds-control", float, default.control_s, "S", "length of the first phase")
    setting("--seconds-unshaped", float, default.unshaped_s, "S", "length of the second")
    setting("--seconds-auto", float, default.auto_s, "S", "how long auto must be perfect")
    arguments = parser.parse_args()
    try:
        return Plan(
            film_mbit=arguments.film_mbit,
            link_mbit=arguments.link_mbit,
            disk_bytes_per_s=arguments.disk_mb,
            readers=arguments.readers,
            wgets=arguments.wgets,
            overload=arguments.overload,
            control_s=arguments.seconds_control,
            unshaped_s=arguments.seconds_unshaped,
            auto_s=arguments.seconds_auto,
            method=arguments.policy,
            once=arguments.once or not sys.stdout.isatty(),
        )
    except BadPlan as problem:
        parser.error(str(problem))


def wait_for_end(console: Console, scene: Scene) -> None:
    """Leave everything up until Ctrl-C."""
    web = scene.testbed.web
    console.print(f"\nSluice's page: [bold]{web.url}[/]", highlight=False)
    console.print(f"  user {web.user}, password {web.password}", highlight=False)
    console.print("Everything stays up, under load and shaped. Ctrl-C ends it.")
    threading.Event().wait()


def finish(console: Console, scene: Scene, outcome: Outcome) -> int:
    """Judge, print, write; return the exit code."""
    attempt, short = outcome.attempt, outcome.shortage
    found = judge.check(attempt.phases, attempt.settled_after_s, outcome.bars)
    written = report.write(scene, outcome, found)
    console.print()
    if short:
        console.print(
            f"[bold red]processors were short[/]: {short}. Nothing is said of disk and link; "
            "end other programs, or give this machine more processors.",
            highlight=False,
        )
    console.print(show.table(outcome))
    if not short:
        show.checks(console, found)
    console.print(attempt.scale.words, highlight=False)
    if outcome.given_up:
        before = judge.shortage(outcome.given_up.phases)
        console.print(f"A larger demo was given up before: {before}.", highlight=False)
    console.print("The disk is a model of a rotating one; its constants are in the report.")
    if outcome.problem:
        console.print(f"note: {outcome.problem}", highlight=False)
    for path in written:
        console.print(f"wrote {path}", highlight=False)
    if short:
        return PROCESSORS_SHORT
    return 0 if all(check.holds for check in found) else 1


def play(console: Console, plan: Plan) -> int:
    say = show.Progress(console)
    with processors.Group("sluice-demo") as group, Scene(plan, say, processors=group) as scene:
        if group.reason:
            say(f"{group.reason}; other programs have the same right to processors as the demo")
        run = Run(scene, say)
        try:
            outcome = run.phases()
            if plan.once:
                say("ending the loads")
                outcome = replace(outcome, httperf=run.stop_loads())
            code = finish(console, scene, outcome)
            if not plan.once:
                wait_for_end(console, scene)
        finally:
            run.stop()
    say("done")
    return code


def interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    plan = parse()
    console = Console(soft_wrap=True)
    patience.use(patience.of_this_machine())
    signal.signal(signal.SIGTERM, interrupted)
    try:
        return play(console, plan)
    except KeyboardInterrupt:
        console.print("\nended; everything is cleaned up")
        return 130 if plan.once else 0
    except KNOWN as problem:
        console.print(f"error: {problem}", style="red", highlight=False, markup=False)
        return 2


if __name__ == "__main__":
    sys.exit(main())
