# SPDX-License-Identifier: GPL-2.0-or-later
"""The command sluice-nightly."""

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.show import Progress
from sluice_nightly import images, shelf
from sluice_nightly.config import DEFAULT_FILE, BadConfig, Config, load
from sluice_nightly.decide import HostFacts, may_start
from sluice_nightly.facts import Host
from sluice_nightly.night import missing_programs, night
from sluice_nightly.shelf import Busy, Shelf
from testbed import paths, patience

EXIT = {"passed": 0, "failed": 1, "error": 2, "refused": 3, "aborted": 4}
BUSY = 5
EXAMPLES = """\
examples:
  sluice-nightly check              would it run now, and why not
  sluice-nightly run                what the timer starts
  sluice-nightly run --force        run although guests are busy
  sluice-nightly show               the last nights
  sluice-nightly prepare            make the images now instead of in the first night
  sluice-nightly prepare --from /srv/images
  sluice-nightly clean              remove what a killed run left

exit codes of run: 0 passed, 1 a check failed, 2 it could not be run,
3 refused, 4 ended early, 5 another run is on
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="sluice-nightly",
        description="Proves that this host shapes: boots a VLC guest and a web guest in "
        "namespaces of their own, plays a stream alone, unshaped and auto-shaped beside an "
        "overload, and hands the result to sluiced.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", type=Path, metavar="FILE", help=f"default: {DEFAULT_FILE}")
    made.add_argument(
        "--check-config",
        action="store_true",
        help="say whether the file can be used, and end",
    )
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser("run", help="run one night and hand its result to sluiced")
    run.add_argument("--force", action="store_true", help="whatever the host's guests do")
    check = commands.add_parser("check", help="say whether it would run now, and why not")
    check.add_argument("--json", action="store_true", help="for programs")
    show = commands.add_parser("show", help="show the last nights of this host")
    show.add_argument("--limit", type=int, default=14, metavar="N", help="how many (default 14)")
    show.add_argument("--json", action="store_true", help="the newest result, whole")
    prepare = commands.add_parser("prepare", help="make the guest's and the disks' images")
    words = "copy ready-made images instead, as far as they are there"
    prepare.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help=words)
    commands.add_parser("clean", help="remove what an aborted run left")
    return made


def run(config: Config, console: Console, arguments: argparse.Namespace) -> int:
    found = night(config, Progress(console), force=arguments.force)
    outcome = found.result["outcome"]
    measured = found.result["measured"]
    for check in measured["checks"] if measured else ():
        mark = "holds" if check["holds"] else "FAILS"
        console.print(f"{mark}  {check['name']}: {check['figures']}", highlight=False, markup=False)
    for reason in found.result["reasons"]:
        console.print(f"{reason['sentence']} ({reason['code']})", highlight=False, markup=False)
    for problem in found.problems:
        console.print(f"note: {problem}", highlight=False, markup=False)
    console.print(f"the night {outcome if outcome != 'error' else 'could not be run'}")
    return EXIT[outcome]


def _facts(facts: HostFacts) -> dict[str, Any]:
    guests = None
    if facts.guests is not None:
        guests = [vars(guest) for guest in facts.guests]
    return {**vars(facts), "guests": guests}


def check(config: Config, console: Console, arguments: argparse.Namespace) -> int:
    host = Host(config)
    Shelf(config).see_own()
    if not arguments.json:
        console.print(f"looking at the host for {config.start.watch_s:g} s")
    facts = host.first()
    reasons = [*missing_programs(config), *may_start(facts, config)]
    if arguments.json:
        answer = {"may_start": not reasons, "reasons": [vars(r) for r in reasons]}
        print(json.dumps({**answer, "facts": _facts(facts)}, indent=2))
        return EXIT["refused"] if reasons else 0
    guests = "not known" if facts.guests is None else f"{len(facts.guests)} running"
    pressure = ", ".join(f"{kind} {value:.1f} %" for kind, value in facts.pressure.items())
    console.print(
        f"guests: {guests}; load {facts.load:.1f} on {facts.processors} processors; "
        f"pressure: {pressure or 'not told by the kernel'}; "
        f"{facts.memory_available_mib:.0f} MiB of memory, {facts.disk_free_mib:.0f} MiB of disk",
        highlight=False,
    )
    for note in host.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    if not images.ready(config):
        console.print("the first run makes the images before it begins")
    for reason in reasons:
        console.print(f"no: {reason.sentence} ({reason.code})", highlight=False, markup=False)
    if not reasons:
        console.print("it would run now")
    return EXIT["refused"] if reasons else 0


def show(config: Config, console: Console, arguments: argparse.Namespace) -> int:
    entries = Shelf(config).results()[: max(1, arguments.limit)]
    if arguments.json:
        print(json.dumps(entries[0]["result"] if entries else None, indent=1))
        return 0
    if not entries:
        console.print("no night yet")
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("night", "outcome", "unshaped", "shaped", "why"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        found = entry["result"]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found["started_at"]))
        verdicts = ["", ""]
        if found["measured"]:
            phases = found["measured"]["phases"]
            verdicts = [phases[name]["stream"]["verdict"] for name in ("unshaped", "auto")]
        why = "; ".join(reason["sentence"] for reason in found["reasons"])
        if not entry["posted"]:
            why = f"{why} (sluiced does not have it: {entry['refused'] or 'not posted yet'})"
        table.add_row(when, found["outcome"], *verdicts, why.strip())
    console.print(table, highlight=False)
    return 0


def prepare(config: Config, console: Console, arguments: argparse.Namespace) -> int:
    say = Progress(console)
    source = arguments.source
    if source and not source.is_dir():
        raise BadConfig(f"--from {source} is not a folder; give one with {_image_names()}")
    with Shelf(config).lock():
        shelf.clean(config)
        images.prepare(config, say, source)
    where = config.layout().images
    say(f"images are ready in {where}")
    return 0


def _image_names() -> str:
    return ", ".join(name for part in images.PARTS for name in part.files)


def clean(config: Config, console: Console, _arguments: argparse.Namespace) -> int:
    with Shelf(config).lock():
        done = shelf.clean(config)
    for line in done or ["nothing is left of any run"]:
        console.print(line, highlight=False, markup=False)
    return 0


COMMANDS = {"run": run, "check": check, "show": show, "prepare": prepare, "clean": clean}


def main() -> int:
    asked = parser()
    arguments = asked.parse_args()
    if not arguments.command and not arguments.check_config:
        asked.error("the following arguments are required: COMMAND")
    # Work under way is undone on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(soft_wrap=True)
    try:
        config = load(arguments.config)
        if arguments.check_config:
            Shelf(config).see_own()
            console.print("sluice-nightly: the configuration can work")
            return 0
        paths.use(config.layout())
        patience.use(config.run.patience)
        return COMMANDS[arguments.command](config, console, arguments)
    except Busy as problem:
        print(f"sluice-nightly: {problem}", file=sys.stderr)
        return BUSY
    except KeyboardInterrupt:
        print("sluice-nightly: ended", file=sys.stderr)
        return EXIT["aborted"]
    except (BadConfig, images.ImageError, paths.Missing, OSError) as problem:
        print(f"sluice-nightly: {problem}", file=sys.stderr)
        return EXIT["error"]


if __name__ == "__main__":
    sys.exit(main())
