# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the benchmarks of engine and group, runs them, shows the figures beside the baseline.

What is compared, and how, is said in engine-bench.c and group-bench.c. Instructions are counted
by callgrind where it is installed: two runs of different length, the difference
divided by the difference in requests, so that start and set-up cancel out.
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

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"
BASELINE = "qemu-throttle-core"
COUNT_SHORT, COUNT_LONG = 20_000, 60_000


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


def measure(program: Path) -> dict[str, tuple[float, float, float]]:
    """Name -> median, lower and upper quartile in nanoseconds."""
    lines = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = (line.split() for line in lines.splitlines())
    return {name: tuple(float(f) for f in figures) for name, *figures in rows}


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
        return {}
    counts = {}
    for name in names:
        short, long = (instructions_of(program, name, n, output) for n in (COUNT_SHORT, COUNT_LONG))
        counts[name] = (long - short) / (COUNT_LONG - COUNT_SHORT)
    return counts


def is_alone(name: str) -> bool:
    """Whether one process makes the row: only then do its instructions repeat."""
    return not name.endswith("-processes")


def show(times: dict[str, tuple[float, float, float]], counts: dict[str, float]) -> None:
    base_ns = times[BASELINE][0]
    print(f"{'':24}{'median':>10}{'quartiles':>18}{'/ baseline':>12}{'instructions':>14}")
    for name, (median, lower, upper) in times.items():
        count = f"{counts[name]:.0f}" if name in counts else "-"
        quartiles = f"{lower:.1f} to {upper:.1f}"
        ratio = f"{median / base_ns:.2f}"
        print(f"{name:24}{median:>7.1f} ns{quartiles:>18}{ratio:>12}{count:>14}")
    for name in ("hold-release", "contended"):
        growth = times[f"{name}-10k"][0] / times[name][0]
        print(f"{name}, from 10 to 10,000 classes: {growth:.2f} times")
    print("clock reads excluded")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qemu-build", type=Path, required=True)
    parser.add_argument("--throttle", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    times: dict[str, tuple[float, float, float]] = {}
    counts: dict[str, float] = {}
    for program in build(arguments.qemu_build, arguments.throttle, arguments.output):
        rows_of = measure(program)
        times.update(rows_of)
        alone = [name for name in rows_of if is_alone(name)]
        counts.update(count_instructions(program, alone, arguments.output))
    rows = [{"name": n, "value": t[0], "unit": "ns"} for n, t in times.items()]
    rows += [
        {"name": f"{n}-instructions", "value": round(c, 1), "unit": "instructions"}
        for n, c in counts.items()
    ]
    (arguments.output / "engine.json").write_text(json.dumps(rows, indent=2) + "\n")
    show(times, counts)
    if times["pass"][0] >= times[BASELINE][0]:
        print(f"error: pass is not cheaper than {BASELINE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
