# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's page: one self-contained HTML file with plots and tables.

A row has a ``part`` and a ``subject``; a figure in it is a spread, ``{median,
min, max}``. Each part becomes a plot and a table.
"""

import html
import io
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
td, th { padding: .3rem .6rem; border-bottom: 1px solid #8886; text-align: right; }
td:first-child, th:first-child { text-align: left; }
small { opacity: .7; white-space: nowrap; }
svg { width: 100%; height: auto; background: #fff; border-radius: 4px; }
.wide { overflow-x: auto; }
"""
# What a column is called, and how its figures are written.
COLUMNS = {
    "mean_error_ratio": ("error over 10 s", "{:+.2%}"),
    "worst_window_error_ratio": ("worst second", "{:+.2%}"),
    "quantum_ratio": ("one request", "{:.2%}"),
    "longest_wait_ratio": ("longest wait ÷ ideal", "{:.2f}"),
    "throughput_ratio": ("patched ÷ stock", "{:.3f}"),
    "cpu_ratio": ("CPU time, patched ÷ stock", "{:.3f}"),
    "p99_ratio": ("p99, flood ÷ control", "{:.3f}"),
    "flood_p99_ms": ("p99 beside the flood, ms", "{:.2f}"),
    "control_p99_ms": ("p99 of the control, ms", "{:.2f}"),
    "stock": ("stock", "{:,.0f}"),
    "patched": ("patched", "{:,.0f}"),
}
BAR_RATIO = 0.002
THROUGHPUT_BAR = 0.99


def page(found: dict[str, Any]) -> str:
    """Return the page of an experiment."""
    title = html.escape(f"{found['experiment']}: {found['title']}")
    parts = dict.fromkeys(row["part"] for row in found["rows"])
    sections = "".join(
        _section(part, [row for row in found["rows"] if row["part"] == part]) for part in parts
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="generator"'
        f' content="Sluice"><style>{STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>Accelerator {html.escape(found['accelerator'])}, {found['repeats']} runs of each row."
        f" Median, with the least and the greatest. {html.escape(found['note'])}</p>"
        f"{sections}</body></html>\n"
    )


def _section(part: str, rows: list[dict[str, Any]]) -> str:
    plot = _rates(rows) if "rate_bps" in rows[0] else _ratios(rows)
    return f'<h2>{html.escape(part)}</h2>{plot}<div class="wide">{_table(rows)}</div>'


def _rates(rows: list[dict[str, Any]]) -> str:
    figure, axes = pyplot.subplots(figsize=(9, 3.6))
    for marker, subject in zip(
        "osD^v", dict.fromkeys(row["subject"] for row in rows), strict=False
    ):
        mine = [row for row in rows if row["subject"] == subject]
        rates = [row["rate_bps"] / 1e6 for row in mine]
        errors = [100 * row["mean_error_ratio"]["median"] for row in mine]
        axes.plot(rates, errors, marker=marker, linestyle="none", label=subject)
    axes.axhspan(-100 * BAR_RATIO, 100 * BAR_RATIO, alpha=0.15, label=f"bar: ±{BAR_RATIO:.1%}")
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xscale="log", xlabel="rate that was set, MB/s", ylabel="error over 10 s, %")
    axes.legend()
    return _svg(figure)


def _ratios(rows: list[dict[str, Any]]) -> str:
    """Draw one ratio per row with its spread, and the bar that it is held to."""
    key, name, bar = (
        ("p99_ratio", "p99, flood ÷ control", rows[0]["bar_ratio"])
        if "p99_ratio" in rows[0]
        else ("throughput_ratio", "throughput, patched ÷ stock", THROUGHPUT_BAR)
    )
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.5 * len(rows)))
    for place, row in enumerate(rows):
        axes.plot([row[key]["min"], row[key]["max"]], [place, place], color="0.6")
        axes.plot(row[key]["median"], place, "o")
    axes.axvline(bar, linestyle=":", label=f"bar: {bar}")
    axes.set_yticks(range(len(rows)), [row["subject"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(xlabel=name)
    axes.legend()
    return _svg(figure)


def _svg(figure: pyplot.Figure) -> str:
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return "<svg" + text.getvalue().partition("<svg")[2]


def _table(rows: list[dict[str, Any]]) -> str:
    columns = [key for key in COLUMNS if key in rows[0]]
    names = [COLUMNS[key][0] for key in columns]
    rated = "rate_bps" in rows[0]
    head = "".join(f"<th>{name}</th>" for name in (*(("rate, MB/s", "request, B") * rated), *names))
    body = ""
    for row in rows:
        cells = [f"{row['rate_bps'] / 1e6:.3g}", f"{row['request_bytes']}"] if rated else []
        cells += [_cell(row[key], COLUMNS[key][1]) for key in columns]
        subject = html.escape(row["subject"])
        body += f"<tr><td>{subject}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return f"<table><thead><tr><th>subject</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(spread: dict[str, float], form: str) -> str:
    low, high = form.format(spread["min"]), form.format(spread["max"])
    return f"{form.format(spread['median'])} <small>({low} … {high})</small>"
