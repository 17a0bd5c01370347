# SPDX-License-Identifier: GPL-2.0-or-later
"""build/demo/report.json and report.html."""

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from demo import charts, judge
from demo import plan as names
from demo.charts import Line, Span
from demo.judge import Check, Phase
from demo.run import Outcome
from demo.sampler import Sample
from demo.scale import Scale
from demo.scene import Scene
from testbed import paths
from testbed.rotdisk import constants
from testbed.stream.verdict import verdict_of

FOLDER = paths.BUILD / "demo"
TEMPLATE = Path(__file__).with_name("report.template.html")
MB = 1e6
READERS_KEY = f"{names.MEDIA}/{names.READERS_CLASS}/blk-read"
WEB_DISK_KEY = f"{names.WEB}/default/blk-read"
WEB_NET_KEY = f"{names.WEB}/default/net-tx"
LINK_NOTE = "limited by tc, so that the link is the limit and the processors are not"
DISK_NOTE = "a model of a rotating disk behind a real NBD server (docs/explanation/demo.md)"


def monotonic_of(epoch_s: float) -> float:
    """Turn a time of day into a time of the monotonic clock."""
    return epoch_s - (time.time() - time.monotonic())


def series(samples: list[Sample], origin_s: float) -> list[dict]:
    """Return one row per second: bytes since the row before, limits in force."""
    rows = []
    for before, now in zip(samples, samples[1:], strict=False):
        seconds = now.at_s - before.at_s
        stream = now.stream_bytes - before.stream_bytes
        http = max(0, now.client_bytes - before.client_bytes - stream)
        rows.append(
            {
                "at_s": round(now.at_s - origin_s, 2),
                "http_bytes_per_s": round(http / seconds),
                "stream_bytes_per_s": round(stream / seconds),
                "disk_bytes_per_s": {
                    name: round((total - before.disk_bytes[name]) / seconds)
                    for name, total in now.disk_bytes.items()
                },
                "disk_seeks_per_s": round((now.disk_seeks - before.disk_seeks) / seconds, 1),
                "disk_busy_ratio": round(
                    (now.disk_busy_ns - before.disk_busy_ns) / 1e9 / seconds, 3
                ),
                "cpu_ratio": round(
                    (now.cpu_busy_s - before.cpu_busy_s)
                    / max(1e-9, now.cpu_total_s - before.cpu_total_s),
                    3,
                ),
                "link_backlog_bytes": now.link_backlog_bytes,
                "classes": now.classes,
            }
        )
    return rows


def document(scene: Scene, outcome: Outcome, found: list[Check]) -> dict:
    """Return report.json's content."""
    origin_s = outcome.samples[0].at_s
    attempt = outcome.attempt
    phases = {name: _phase(phase, origin_s) for name, phase in outcome.phases.items()}
    settled = _rounded(attempt.settled_after_s, 2)
    if "auto" in phases:
        phases["auto"]["settled_after_s"] = settled
    enabled_s = attempt.auto_from_s
    return {
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "accelerator": scene.testbed.accelerator.name,
        "qemu_version": scene.qemu_version(),
        "phases": phases,
        "table": [[t, *cells] for t, cells in judge.rows(outcome.phases)],
        "auto": {
            "settled_after_s": settled,
            "enabled_at_s": None if enabled_s is None else round(enabled_s - origin_s, 2),
        },
        "scale": _scale(attempt.scale),
        "costs": asdict(outcome.costs) if outcome.costs else None,
        "given_up": _given_up(outcome, origin_s),
        "shortage": outcome.shortage,
        "checks": [asdict(check) for check in found],
        "succeeded": all(check.holds for check in found),
        "plan": asdict(scene.plan),
        "link": {"bytes_per_s": attempt.scale.link_bytes_per_s, "note": LINK_NOTE},
        "disk": {"note": DISK_NOTE, "constants": [asdict(row) for row in constants()]},
        "httperf": {
            "offered_connections_per_s": round(attempt.offered_connections_per_s, 1),
            "result": asdict(outcome.httperf) if outcome.httperf else None,
        },
        "auto_log": [
            {"at_s": round(monotonic_of(row["at"]) - origin_s, 2), "sentence": row["sentence"]}
            for row in outcome.auto_log
        ],
        "windows": [
            {**asdict(w), "start_s": round(w.start_s - origin_s, 3), "verdict": verdict_of(w)}
            for w in outcome.windows
        ],
        "seconds": series(outcome.samples, origin_s),
        "note": outcome.problem,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _phase(phase: Phase, origin_s: float) -> dict:
    return {
        "stream": phase.stream.as_dict(),
        "background": asdict(phase.background),
        "start_s": round(phase.start_s - origin_s, 2),
        "end_s": round(phase.end_s - origin_s, 2),
        "cpu_ratio": round(phase.cpu_ratio, 3),
        "cpu_ours_ratio": _rounded(phase.cpu_ours_ratio, 3),
        "waited_ratio": round(phase.waited_ratio, 3),
        "disk_busy_ratio": round(phase.disk_busy_ratio, 3),
        "disk_seeks_per_s": round(phase.disk_seeks_per_s, 1),
    }


def _scale(scale: Scale) -> dict:
    return {**asdict(scale), "expected_share": round(scale.expected_share, 3)}


def _given_up(outcome: Outcome, origin_s: float) -> dict | None:
    """The larger attempt before this one, which proved nothing for want of processors."""
    before = outcome.given_up
    if before is None:
        return None
    return {
        "scale": _scale(before.scale),
        "shortage": judge.shortage(before.phases),
        "phases": {name: _phase(phase, origin_s) for name, phase in before.phases.items()},
    }


def _class_line(rows: list[dict], key: str, what: str) -> list[tuple[float, float | None]]:
    points = []
    for row in rows:
        value = (row["classes"].get(key) or {}).get(what)
        points.append((row["at_s"], value / MB if value else None))
    return points


def _plots(facts: dict) -> str:
    rows, windows = facts["seconds"], facts["windows"]
    to_s = max([row["at_s"] for row in rows] + [1.0])
    spans = [
        Span(name, facts["phases"][name]["start_s"], facts["phases"][name]["end_s"])
        for name in facts["phases"]
    ]
    markers = [(row["at_s"], row["sentence"]) for row in facts["auto_log"]]
    pieces = [(w["start_s"], w["start_s"] + w["window_ms"] / 1000, w["verdict"]) for w in windows]
    disk = [
        Line(
            "readers (cats)", "c1", [(r["at_s"], r["disk_bytes_per_s"]["media"] / MB) for r in rows]
        ),
        Line("readers' limit", "c1", _class_line(rows, READERS_KEY, "limit"), limit=True),
        Line("web server", "c2", [(r["at_s"], r["disk_bytes_per_s"]["web"] / MB) for r in rows]),
        Line("web server's limit", "c2", _class_line(rows, WEB_DISK_KEY, "limit"), limit=True),
        Line("movie", "c3", [(r["at_s"], r["disk_bytes_per_s"]["movie"] / MB) for r in rows]),
    ]
    network = [
        Line("http", "c2", [(r["at_s"], r["http_bytes_per_s"] / MB) for r in rows]),
        Line("web guest's limit", "c2", _class_line(rows, WEB_NET_KEY, "limit"), limit=True),
        Line("stream", "c3", [(r["at_s"], r["stream_bytes_per_s"] / MB) for r in rows]),
        Line(
            "link",
            "muted",
            [(0.0, facts["link"]["bytes_per_s"] / MB), (to_s, facts["link"]["bytes_per_s"] / MB)],
            limit=True,
        ),
    ]
    received = [
        Line(
            "received",
            "c3",
            [
                (w["start_s"], w["received_bytes"] / max(1.0, w["window_ms"]) / 1000)
                for w in windows
            ],
        )
    ]
    gaps = [Line("largest gap", "c4", [(w["start_s"], w["max_gap_ms"]) for w in windows])]
    return "".join(
        [
            charts.ribbon("The stream, half a second at a time", pieces, spans, 0.0, to_s),
            charts.chart("Stream received", "MB/s", received, spans, markers, 0.0, to_s),
            charts.chart("Largest gap between datagrams", "ms", gaps, spans, markers, 0.0, to_s),
            charts.chart("Disk", "MB/s", disk, spans, markers, 0.0, to_s),
            charts.chart("Network", "MB/s", network, spans, markers, 0.0, to_s),
        ]
    )


def _table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _about(facts: dict) -> str:
    scale, before = facts["scale"], facts["given_up"]
    words = (
        f"{facts['generated_at']}, QEMU {facts['qemu_version']}, accelerator "
        f"{facts['accelerator']}; film {scale['film_mbit']:g} Mbit/s, link "
        f"{scale['link_mbit']} Mbit/s, {facts['link']['note']}; disk "
        f"{scale['disk_bytes_per_s'] / MB:g} MB/s, {facts['disk']['note']}. "
        f"Why these sizes: {scale['why']}."
    )
    if before:
        words += f" A larger demo was given up before: {before['shortage']}."
    return words


def page(facts: dict) -> str:
    """Return report.html: one file, nothing loaded from anywhere."""
    bars = "".join(
        f'<li class="{"holds" if check["holds"] else "fails"}">{escape(check["name"])}: '
        f"{escape(check['figures'])}</li>"
        for check in (() if facts["shortage"] else facts["checks"])
    )
    log = _table(
        ["at", "auto-shaping"],
        [[f"{row['at_s']:.1f} s", row["sentence"]] for row in facts["auto_log"]],
    )
    disk = _table(
        ["constant", "value", "why"],
        [[r["name"], f"{r['value']:,}", r["why"]] for r in facts["disk"]["constants"]],
    )
    headline = "All bars hold" if facts["succeeded"] else "A bar does not hold"
    if facts["shortage"]:
        headline = f"Processors were short: {facts['shortage']}; nothing is said of disk and link"
    parts = {
        "heading": escape(judge.heading(facts["scale"]["readers"])),
        "headline": escape(headline),
        "about": escape(_about(facts)),
        "bars": bars,
        "phases": _table(["", *facts["phases"]], facts["table"]),
        "plots": _plots(facts),
        "log": log,
        "disk": disk,
    }
    text = TEMPLATE.read_text()
    for name, value in parts.items():
        text = text.replace(f"<!--{name}-->", value)
    return text


def write(scene: Scene, outcome: Outcome, found: list[Check]) -> list[Path]:
    """Write both files; return their paths."""
    facts = document(scene, outcome, found)
    FOLDER.mkdir(parents=True, exist_ok=True)
    written = {
        FOLDER / "report.json": json.dumps(facts, indent=1),
        FOLDER / "report.html": page(facts),
    }
    for path, text in written.items():
        path.write_text(text)
    return list(written)
