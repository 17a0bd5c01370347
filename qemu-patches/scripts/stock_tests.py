#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run QEMU's own tests on a build without the series and on one with it, and compare.

All qtests of x86_64 that the stock tree has, and the iotests in which a virtio device occurs, in
raw and in qcow2. That takes hours. --short takes the qtests that QEMU gives two minutes at most,
and of the iotests, in the formats that QEMU lists them for, those in which a device comes, goes,
is saved or reset, or has an I/O thread. The name, the command and the needs of each come from
the build's own list. The two builds run side by side, each a test at a time.

A case has gone well with the series if it ends as it does without: a case that passes must pass,
one that is skipped or fails without may do as it likes, and is shown. A test in which a case is
worse is run once more on both, by itself: the second result counts, and the report says so. The
last line is: N passed, N failed. Exit status 1 if one is worse, or none was compared.

Guests run under TCG: /dev/kvm is covered for the tests, since a device that does not work, as
in many virtual machines, would fail them on both sides. --kvm leaves it as it is.

example:
  stock_tests.py build/qemu-stock-full build/qemu-full
  stock_tests.py build/qemu-stock-full build/qemu-full --short
  stock_tests.py build/qemu-stock-full build/qemu-full --only 'qos-test|io-raw-.*'
  stock_tests.py build/qemu-stock-full build/qemu-full --only migration-test --kvm
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSED, SKIPPED, FAILED, ABSENT = "passed", "skipped", "failed", "absent"
# The case that stands for a program's end.
END = "(ended well)"
NO_CASES = re.compile(r"^1\.\.0\b", re.MULTILINE)
LINE = re.compile(r"^\s*(not )?ok\b *\d*(?: - | )?(.*?)\s*$")
SKIP = re.compile(r"\s*#\s*skip", re.IGNORECASE)
QTEST_SUITE = "qemu:qtest-x86_64"
IOTEST = re.compile(r"io-(?:raw|qcow2)-(.+)")
# An iotest's drives are virtio's where it does not say otherwise.
VIRTIO = re.compile(r"virtio|add_drive\(")
# Touched by the series: a device that comes, goes, is saved or reset, or has an I/O thread.
TOUCHED = re.compile(r"iothread|device_add|device_del|savevm|system_reset")
SHORT_LIMIT_SECONDS = 120
# Times its own limit, which is meant for an idle machine.
PATIENCE = 6
Cases = dict[str, str]


@dataclass(frozen=True)
class Test:
    """One test as the build's list has it."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    needs: tuple[str, ...]
    limit_seconds: float


@dataclass(frozen=True)
class Difference:
    """A case that did not end with the series as it did without."""

    test: str
    case: str
    stock: str
    patched: str

    @property
    def is_worse(self) -> bool:
        return self.stock == PASSED


# --- decisions


def tests_in(listed: Iterable[dict[str, Any]], wanted: re.Pattern[str]) -> list[Test]:
    """Return the tests of a build with names that match, in the order of the list."""
    return [
        Test(
            one["name"],
            tuple(one["cmd"]),
            one["env"],
            tuple(one["depends"]),
            one["timeout"] * PATIENCE,
        )
        for one in listed
        if wanted.fullmatch(one["name"].removeprefix("qtest-x86_64/"))
    ]


def is_relevant(one: dict[str, Any], virtio_iotests: set[str]) -> bool:
    """True for a qtest of x86_64, and for an iotest with a virtio device."""
    iotest = IOTEST.fullmatch(one["name"])
    return QTEST_SUITE in one["suite"] or bool(iotest and iotest[1] in virtio_iotests)


def is_short(one: dict[str, Any], touched_iotests: set[str]) -> bool:
    """True for a qtest with a short limit of its own, and for an iotest of a touched device."""
    iotest = IOTEST.fullmatch(one["name"])
    if iotest:
        return iotest[1] in touched_iotests
    return one["timeout"] <= SHORT_LIMIT_SECONDS


def with_qcow2(listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add each iotest of raw for qcow2, of which the build lists its quick ones only."""
    known = {one["name"] for one in listed}
    more = []
    for one in listed:
        name = one["name"].replace("io-raw-", "io-qcow2-", 1)
        if name not in known:
            command = ["-qcow2" if word == "-raw" else word for word in one["cmd"]]
            more.append({**one, "name": name, "cmd": command})
    return [*listed, *more]


def cases_of(tap: str, status: int | None) -> Cases:
    """Read a program's cases. A program that ended badly, or told of none, has failed at its end.

    A program that says it has none, for want of a tool or a device, is skipped.
    """
    found: Cases = {}
    for line in tap.splitlines():
        if not (match := LINE.match(line)):
            continue
        skip = SKIP.search(match[2])
        name = match[2][: skip.start()] if skip else match[2]
        state = FAILED if match[1] else SKIPPED if skip else PASSED
        # Of several with one name the worst counts.
        found[name] = FAILED if FAILED in (state, found.get(name)) else state
    none = not found and NO_CASES.search(tap)
    found[END] = FAILED if status != 0 or not (found or none) else SKIPPED if none else PASSED
    return found


def differences(test: str, stock: Cases, patched: Cases) -> list[Difference]:
    """Return the cases of a test that ended otherwise, or are not there, with the series."""
    return [
        Difference(test, case, state, patched.get(case, ABSENT))
        for case, state in stock.items()
        if patched.get(case, ABSENT) != state
    ]


def counts(stock: dict[str, Cases], worse: Sequence[Difference]) -> tuple[int, int]:
    """Return how many cases passed without the series, and how many of those did not with it."""
    passing = sum(state == PASSED for cases in stock.values() for state in cases.values())
    return passing - len(worse), len(worse)


# --- a build


class Build:
    """A build tree: its list of tests, their needs, and how one is run."""

    def __init__(self, folder: Path, output: Path, before: Sequence[str]):
        self.folder = folder.resolve()
        self.output = output
        self._before = tuple(before)
        output.mkdir(parents=True, exist_ok=True)

    def _introduced(self, what: str) -> Any:
        return json.loads((self.folder / "meson-info" / f"intro-{what}.json").read_text())

    def tests(self, wanted: re.Pattern[str], short: bool) -> list[Test]:
        sources = self.folder.parent / "tests" / "qemu-iotests"
        files = (*sources.glob("[0-9][0-9][0-9]"), *(sources / "tests").iterdir())
        texts = {
            file.name: file.read_text(errors="replace") for file in files if file.suffix != ".out"
        }
        virtio = {name for name, text in texts.items() if VIRTIO.search(text)}
        touched = {name for name in virtio if TOUCHED.search(texts[name])}
        listed = with_qcow2([t for t in self._introduced("tests") if is_relevant(t, virtio)])
        return tests_in([t for t in listed if not short or is_short(t, touched)], wanted)

    def make(self, tests: Iterable[Test]) -> None:
        """Build the programs that tests need. Raises CalledProcessError."""
        files = {target["id"]: target["filename"] for target in self._introduced("targets")}
        needed = {file for test in tests for need in test.needs for file in files[need]}
        relative = sorted(os.path.relpath(file, self.folder) for file in needed)
        if relative:  # without a name ninja makes all there is
            command = ["ninja", "-C", self.folder, *relative]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def run(self, test: Test) -> Cases:
        """Run one test to its end, or its limit; keep its output."""
        log = self.output / f"{test.name.replace('/', '-')}.log"
        # Sockets have short names only below a short folder.
        with tempfile.TemporaryDirectory(prefix="stock-") as work, log.open("w") as file:
            folders = {"TMPDIR": work, "TEST_DIR": f"{work}/disks", "SOCK_DIR": f"{work}/sockets"}
            try:
                status = subprocess.run(
                    (*self._before, *test.command),
                    cwd=self.folder,
                    env={**os.environ, **test.environment, **folders},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=test.limit_seconds,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                status = None
        return cases_of(log.read_text(errors="replace"), status)


def contained(kvm: bool) -> tuple[str, ...]:
    """Return the words before a test: nothing outlives it, and KVM is covered if it is there."""
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    # Not exec: signals mean something else to the first process.
    cover = '"$0" "$@"; exit $?'
    if not kvm and Path("/dev/kvm").exists():
        cover = f"mount --bind /dev/null /dev/kvm && {cover}"
    own = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ("unshare", *user, *own, "sh", "-c", cover)


# --- both


def run_all(build: Build, tests: Sequence[Test], name: str, start: float) -> dict[str, Cases]:
    """Run tests one by one, and say how each ended."""
    found = {}
    for number, test in enumerate(tests, 1):
        found[test.name] = build.run(test)
        states = list(found[test.name].values())
        told = ", ".join(f"{states.count(s)} {s}" for s in (PASSED, SKIPPED, FAILED) if s in states)
        print(
            f"[{time.monotonic() - start:5.0f} s] {name:<7} {number:3}/{len(tests)}"
            f" {test.name}: {told}",
            flush=True,
        )
    return found


def compare(
    builds: Sequence[Build], wanted: re.Pattern[str], short: bool = False
) -> tuple[int, int]:
    """Run the tests on both builds; return how many cases passed and how many are worse."""
    start = time.monotonic()
    tests = [build.tests(wanted, short) for build in builds]
    # Ours are not QEMU's.
    names = {test.name for test in tests[0]}
    tests[1] = [test for test in tests[1] if test.name in names]
    if gone := names - {test.name for test in tests[1]}:
        print(f"not in the patched build: {', '.join(sorted(gone))}")
    for build, its in zip(builds, tests, strict=True):
        print(f"building what {len(its)} tests need in {build.folder}", flush=True)
        build.make(its)
    with ThreadPoolExecutor(len(builds)) as pool:
        jobs = [
            pool.submit(run_all, build, its, name, start)
            for build, its, name in zip(builds, tests, ("stock", "patched"), strict=True)
        ]
        stock, patched = (job.result() for job in jobs)
    for one in sorted({d.test for d in _all_differences(stock, patched) if d.is_worse}):
        print(f"{one} is worse with the series; both once more", flush=True)
        for build, its, found in zip(builds, tests, (stock, patched), strict=True):
            found.update({t.name: build.run(t) for t in its if t.name == one})
    found = _all_differences(stock, patched)
    for one in found:
        word = "WORSE" if one.is_worse else "other"
        print(f"{word}: {one.test}: {one.case}: {one.stock} without, {one.patched} with the series")
    for name, cases in stock.items():
        for case, state in cases.items():
            if state == FAILED:
                print(f"fails without the series: {name}: {case}")
    return counts(stock, [one for one in found if one.is_worse])


def _all_differences(stock: dict[str, Cases], patched: dict[str, Cases]) -> list[Difference]:
    return [d for name in stock for d in differences(name, stock[name], patched.get(name, {}))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stock", type=Path, help="build tree without the series")
    parser.add_argument("patched", type=Path, help="build tree with it")
    parser.add_argument("--only", default=".*", help="tests whose whole name matches this")
    parser.add_argument("--short", action="store_true", help="a piece of them, see above")
    parser.add_argument("--kvm", action="store_true", help="let the tests use /dev/kvm")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/stock-tests"),
        help="where output of tests goes (%(default)s)",
    )
    given = parser.parse_args(arguments)
    for folder in (given.stock, given.patched):
        if not (folder / "meson-info").is_dir():
            parser.error(f"{folder} is no build tree of QEMU; make stock-tests makes two")
    try:
        wanted = re.compile(given.only)
    except re.error as wrong:
        parser.error(f"--only: {given.only!r} is no pattern: {wrong}")
    builds = [
        Build(folder, given.output / name, contained(given.kvm))
        for folder, name in ((given.stock, "stock"), (given.patched, "patched"))
    ]
    passed, failed = compare(builds, wanted, given.short)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
