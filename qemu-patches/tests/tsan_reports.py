#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Print the thread sanitizer's reports that are about Sluice's own code.

QEMU itself gives the sanitizer dozens of findings: its event loops, its RCU and
its guest memory are synchronised in ways that it cannot see. A report is ours
if one of its two accesses was made by a function of ours: if the innermost frame
that has a source file, libraries' inline functions aside, is in one of the
folders named sluice.

usage: tsan_reports.py FILE…       exit status 1 if there is one of ours
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

OURS = re.compile(r"/\.\./(?:include/)?(?:hw/)?sluice/")
FRAME = re.compile(r"^\s+#\d+ (.*)$")
ACCESS = re.compile(r"^\s+(?:Previous )?(?:Atomic |atomic )?(?:[Ww]rite|[Rr]ead) of size ")
SEPARATOR = "=================="


def reports(text: str) -> Iterator[str]:
    """Yield each report of a log."""
    for part in text.split(SEPARATOR):
        if "WARNING: ThreadSanitizer" in part:
            yield part.strip()


def innermost_frames(report: str) -> Iterator[str]:
    """Yield, for each access of a report, the first frame with a source file of QEMU's tree."""
    wanted = False
    for line in report.splitlines():
        if ACCESS.match(line):
            wanted = True
        elif wanted and (frame := FRAME.match(line)) and "/../" in frame[1]:
            wanted = False
            yield frame[1]
        elif not line.strip():
            wanted = False


def is_ours(report: str) -> bool:
    """True if Sluice's code made one of the accesses, or the report is no race (a deadlock, …)."""
    if "data race" not in report:
        return OURS.search(report) is not None
    return any(OURS.search(frame) for frame in innermost_frames(report))


def main(paths: list[str]) -> int:
    found = [report for path in paths for report in reports(Path(path).read_text(errors="replace"))]
    ours = [report for report in found if is_ours(report)]
    for report in ours:
        print(report)
        print(SEPARATOR)
    print(f"{len(found)} reports of the thread sanitizer, {len(ours)} about Sluice")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
