# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m demo``: a VLC stream survives an overload.

Exit code 0: all bars hold. 1: a bar does not hold. 2: the demo could not run.
"""

import argparse
import signal
import sys
import threading
from dataclasses import replace

import httpx
import libvirt
from rich.console import Console

from demo import judge, report, show
from demo.api import ApiError
from demo.plan import BadPlan, Bars, Plan
from demo.run import Outcome, Run, RunError
from demo.scene import Scene, SceneError
from testbed import CommandFailed, GuestError, SandboxError, ServiceError
from testbed.hypervisor import HypervisorError
from testbed.paths import Missing
from testbed.rotdisk import DiskError

KNOWN = (
    ApiError,
    CommandFailed,
    DiskError,
    GuestError,
    HypervisorError,
    Missing,
    RunError,
    SandboxError,
    SceneError,
    ServiceError,
    httpx.HTTPError,
    libvirt.libvirtError,
)


def parse() -> Plan:
    default = Plan()
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="A VLC stream beside twelve cat readers and an overloaded web server: "
        "alone, without shaping, and with auto-shaping.",
        epilog="example: make demo ARGS='--once --link-mbit 400'",
    )
    parser.add_argument("--once", action="store_true", help="end by itself and clean up")
    parser.add_argument("--link-mbit", type=int, default=default.link_mbit, metavar="N")
    parser.add_argument("--readers", type=int, default=default.readers, metavar="N")
    parser.add_argument("--wgets", type=int, default=default.wgets, metavar="N")
    parser.add_argument("--overload", type=float, default=default.overload, metavar="X")
    parser.add_argument("--seconds-control", type=float, default=default.control_s, metavar="S")
    parser.add_argument("--seconds-unshaped", type=float, default=default.unshaped_s, metavar="S")
    parser.add_argument("--seconds-auto", type=float, default=default.auto_s, metavar="S")
    arguments = parser.parse_args()
    try:
        return Plan(
            link_mbit=arguments.link_mbit,
            readers=arguments.readers,
            wgets=arguments.wgets,
            overload=arguments.overload,
            control_s=arguments.seconds_control,
            unshaped_s=arguments.seconds_unshaped,
            auto_s=arguments.seconds_auto,
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


def finish(console: Console, scene: Scene, outcome: Outcome) -> bool:
    """Judge, print, write; return whether all bars hold."""
    found = judge.check(outcome.phases, outcome.settled_after_s, Bars())
    written = report.write(scene, outcome, found)
    console.print()
    console.print(show.table(outcome))
    show.checks(console, found)
    console.print("The disk is a model of a rotating one; its constants are in the report.")
    if outcome.problem:
        console.print(f"note: {outcome.problem}", highlight=False)
    for path in written:
        console.print(f"wrote {path}", highlight=False)
    return all(check.holds for check in found)


def play(console: Console, plan: Plan) -> bool:
    say = show.Progress(console)
    with Scene(plan, say) as scene:
        run = Run(scene, say)
        try:
            outcome = run.phases()
            if plan.once:
                say("ending the loads")
                outcome = replace(outcome, httperf=run.stop_loads())
            holds = finish(console, scene, outcome)
            if not plan.once:
                wait_for_end(console, scene)
        finally:
            run.stop()
    say("done")
    return holds


def interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    plan = parse()
    console = Console(soft_wrap=True)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        return 0 if play(console, plan) else 1
    except KeyboardInterrupt:
        console.print("\nended; everything is cleaned up")
        return 130 if plan.once else 0
    except KNOWN as problem:
        console.print(f"error: {problem}", style="red", highlight=False, markup=False)
        return 2


if __name__ == "__main__":
    sys.exit(main())
