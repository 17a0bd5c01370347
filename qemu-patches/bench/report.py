# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the benchmarks of engine and group, runs them, and holds the figures against their bars.

The rows are described in engine-bench.c, group-bench.c and path.py; the bars are in bars.py.
Instructions are counted by callgrind: two runs of different length, the difference divided by the
difference in requests, so that start and set-up cancel out. They repeat exactly, however busy the
machine is; --instructions measures nothing else. Exit status 1: a bar is missed, or a row missing.

Times are measured RUNS times, and those of one run are shown: of the run in which the baseline,
QEMU's throttle core, was fastest. A neighbour on the same core makes everything dearer for
minutes, and takes a part of its caches; the baseline tells the quiet run, not the rows that are
judged.
"""

import argparse
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import bars
import path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"
COUNT_SHORT, COUNT_LONG = 20_000, 60_000
RUNS = 3


def throttle_flags(qemu_build: Path) -> list[str]:
    """The flags QEMU compiled util/throttle.c with, without its own input and output."""
    commands = json.loads((qemu_build / "compile_commands.json").read_text())
    command = next(c for c in commands if c["file"].endswith("util/throttle.c"))
    words = shlex.split(command["command"])
    # The compiler, with or without ccache before it, is not a flag.
    words = list(itertools.dropwhile(lambda word: not word.startswith("-"), words))
    flags = []
    takes_value = {"-MQ", "-MF", "-o", "-c"}
    skip = False
    for word in words:
        if skip or word == "-MD" or word in takes_value:
            skip = not skip and word in takes_value
        else:
            flags.append(word)
    return flags


def build(qemu_build: Path, throttle: Path, output: Path) -> list[Path]:
    """The programs, each of which prints its rows."""
    # Before the build tree's own copy of the engine, which may be older.
    flags = ["-iquote", str(SOURCES / "include"), *throttle_flags(qemu_build)]

    def compiled(source: Path) -> Path:
        target = output / f"{source.stem}.o"
        # The flags name folders relative to the build tree.
        subprocess.run(["cc", *flags, "-c", source, "-o", target], cwd=qemu_build, check=True)
        return target

    library = [compiled(source) for source in sorted((SOURCES / "sluice").glob("*.c"))]
    glib = subprocess.run(
        ["pkg-config", "--libs", "glib-2.0"], capture_output=True, text=True, check=True
    )
    programs = []
    for name, more in (("engine-bench", [throttle]), ("group-bench", [])):
        objects = [compiled(HERE / f"{name}.c"), *library, *more]
        link = ["cc", "-pie", *objects, *glib.stdout.split(), "-o", output / name]
        subprocess.run(link, check=True)
        programs.append(output / name)
    return programs


def measure(program: Path) -> bars.Times:
    """One run of a program."""
    lines = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = (line.split() for line in lines.splitlines())
    return {name: tuple(float(f) for f in figures) for name, *figures in rows}


def measure_quietly(program: Path) -> bars.Times:
    """The quietest of RUNS runs, if the program has the baseline that tells; else a single one."""
    runs: list[bars.Times] = []
    for number in range(1, RUNS + 1):
        runs.append(measure(program))
        if bars.BASELINE not in runs[0]:
            break
        base_ns = runs[-1][bars.BASELINE][0]
        print(f"run {number} of {RUNS}: {bars.BASELINE} {base_ns:.1f} ns", file=sys.stderr)
    return bars.quietest(runs)


def instructions_of(program: Path, name: str, requests: int, output: Path) -> int:
    trace = output / "callgrind.out"
    subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={trace}"]
        + [str(program), "--count", name, str(requests)],
        capture_output=True,
        check=True,
    )
    found = re.search(r"^(?:summary|totals): (\d+)", trace.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"error: {trace} has no total: is callgrind of another version?")
    return int(found.group(1))


def count_instructions(program: Path, names: list[str], output: Path) -> dict[str, float]:
    if not shutil.which("valgrind"):
        print("no instructions are counted: install valgrind", file=sys.stderr)
        return {}
    counts = {}
    for name in names:
        short, long = (instructions_of(program, name, n, output) for n in (COUNT_SHORT, COUNT_LONG))
        counts[name] = (long - short) / (COUNT_LONG - COUNT_SHORT)
    return counts


def names_of(program: Path) -> list[str]:
    """The rows of which a program can count the instructions."""
    of_group = program.name == "group-bench"
    return [name for name in bars.COUNTED if name.endswith("group") == of_group]


def show(rows: list[bars.Row], quartiles: dict[str, tuple[float, float]], base_ns: float) -> None:
    print(f"{'':30}{'figure':>20}{'quartiles':>20}{'/ baseline':>12}{'bar':>8}")
    for row in rows:
        figure = "-" if row.value is None else f"{row.value:.{0 if row.value > 999 else 2}f}"
        spread = part = ""
        if row.name in quartiles:
            spread = "{:.1f} to {:.1f}".format(*quartiles[row.name])
            part = f"{row.value / base_ns:.2f}" if base_ns else ""
        bar = "" if row.bar is None else f"{row.bar:g}"
        line = f"{row.name:30}{figure + ' ' + row.unit:>20}{spread:>20}{part:>12}{bar:>8}"
        print(f"{line}  {row.verdict}".rstrip())
    print(f"times are medians of the quietest of {RUNS} runs; clock reads excluded")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qemu-build", type=Path, required=True)
    parser.add_argument("--throttle", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--instructions", action="store_true", help="count, and measure no times")
    arguments = parser.parse_args()

    times: bars.Times = {}
    counts: dict[str, float] = {}
    for program in build(arguments.qemu_build, arguments.throttle, arguments.output):
        if not arguments.instructions:
            times.update(measure_quietly(program))
        counts.update(count_instructions(program, names_of(program), arguments.output))
    if not arguments.instructions:
        times.update(path.measure(arguments.qemu_build / "qemu-system-x86_64"))
    medians = {name: figures[0] for name, figures in times.items()}
    rows = [] if arguments.instructions else bars.time_rows(medians)
    rows += bars.instruction_rows(counts)
    said = bars.problems(rows)
    results = [
        {"name": r.name, "value": r.value, "unit": r.unit, "bar": r.bar, "verdict": r.verdict}
        for r in rows
    ]
    (arguments.output / "engine.json").write_text(json.dumps(results, indent=2) + "\n")
    show(rows, {name: t[1:] for name, t in times.items()}, medians.get(bars.BASELINE, 0))
    for problem in said:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
