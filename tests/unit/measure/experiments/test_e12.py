# SPDX-License-Identifier: GPL-2.0-or-later
"""E12: what is counted in a trace, and its rows and their bars."""

import pytest

from measure.experiments import bars, e12, report

CALL, DRIVER, VERSION = 0xFEBD0010, 0xFEBD0008, 0xFEBD0004
INTERRUPT, EVENTS = 0xFEBD0014, 0xFEBD0018


def test_the_rows_are_those_that_are_expected() -> None:
    subjects = e12.FAST, e12.DEFERRED, e12.UPCALL, e12.SERIAL
    assert bars.EXPECTED["E12"] == tuple((e12.PART, subject) for subject in subjects)


def trace(*accesses: tuple[str, int, str]) -> str:
    lines = [
        f"{event} cpu 1 mr 0x55d0c0 addr {address:#x} value 0x1 size 4 name '{name}'\n"
        for event, address, name in accesses
    ]
    return "".join(lines) + "sluice_blk_pause device 0x1 paused 0\n"


def write(address: int, name: str = e12.REGISTERS) -> tuple[str, int, str]:
    return "memory_region_ops_write", address, name


def read(address: int, name: str = e12.REGISTERS) -> tuple[str, int, str]:
    return "memory_region_ops_read", address, name


def test_calls_are_counted_by_their_register() -> None:
    begin = [read(VERSION), write(DRIVER), read(DRIVER)]
    end = [write(DRIVER), read(DRIVER)]
    apic = write(0xFEE000B0, "apic-msi")
    quiet = e12.accesses_of(trace(*begin, write(CALL), apic, write(CALL), apic, *end))
    assert e12.of_calls(quiet) == (2, 0)
    loud = e12.accesses_of(trace(*begin, write(CALL), read(VERSION), *end))
    assert e12.of_calls(loud) == (1, 1)


def test_a_trace_without_a_call_is_an_error() -> None:
    accesses = e12.accesses_of(trace(read(VERSION)))
    with pytest.raises(ValueError, match="no call"):
        e12.of_calls(accesses)
    with pytest.raises(ValueError, match="no upcall"):
        e12.of_upcall(accesses)


def test_an_upcall_is_counted_from_its_call_until_its_interrupt_is_cleared() -> None:
    port = read(0xCFC, "pci-conf-data")
    apic = write(0xFEE000B0, "apic-msi")
    upcall = [write(CALL), apic, port, port, write(INTERRUPT)]
    # Other calls, the way there, and what comes after an upcall.
    calls = [write(CALL), write(CALL), write(EVENTS), write(INTERRUPT)]
    text = trace(*calls, *upcall, port, port, write(INTERRUPT), port, *upcall, port)
    assert e12.of_upcall(e12.accesses_of(text)) == 4


def a_run(scale: int = 1) -> dict[str, object]:
    def times(median_us: float) -> dict[str, float]:
        return {"median_ns": median_us * 1000 * scale, "p95_ns": 2 * median_us * 1000 * scale}

    return {
        "fast": {"call": times(2)},
        "deferred": {"put": times(0.05)},
        "upcall": {"woken": times(5)},
        "port": {"round_trip": times(20)},
    }


def found(deferred_exits: float, runs: int = bars.RUNS_MIN) -> dict[str, object]:
    exits = {e12.FAST: 1.0, e12.DEFERRED: deferred_exits, e12.UPCALL: 6.0, e12.SERIAL: 2.0}
    measured = [a_run() for _ in range(runs)]
    rows = [e12._row(subject, measured, count) for subject, count in exits.items()]
    return {
        "experiment": "E12",
        "title": e12.TITLE,
        "accelerator": "tcg",
        "repeats": runs,
        "note": e12._note("tcg"),
        "rows": rows,
        "only": "",
        "verdicts": [],
        "problems": [],
    }


def test_rows_are_held_to_the_bars_of_the_table() -> None:
    assert bars.problems(found(0.0)) == []
    (problem,) = bars.problems(found(0.01))
    assert "deferred call: exits of each is 0.01" in problem
    few = bars.problems(found(0.0, runs=1))
    assert len(few) == 4 and all("too few" in one for one in few)


def test_the_page_says_what_was_emulated_and_has_a_plot() -> None:
    page = report.page(found(0.0))
    assert "<svg" in page and "virtio-serial round trip" in page
    assert "emulated" in page and "vsock" in page
