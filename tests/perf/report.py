# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's page: one self-contained HTML file with a plot and a table."""

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
svg { width: 100%; height: auto; background: #fff; border-radius: 4px; }
"""


def page(found: dict[str, Any]) -> str:
    """Return the page of an experiment whose rows have a subject and a rate."""
    title = html.escape(f"{found['experiment']}: {found['title']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="generator"'
        f' content="Sluice"><style>{STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>Accelerator {html.escape(found['accelerator'])}, {found['repeats']} runs of each row,"
        f" {found['depth']} requests outstanding. Median, with the least and the greatest.</p>"
        f"{_plot(found['rows'])}{_table(found['rows'])}</body></html>\n"
    )


def _plot(rows: list[dict[str, Any]]) -> str:
    figure, axes = pyplot.subplots(figsize=(9, 3.6))
    for marker, subject in zip("osD^", dict.fromkeys(row["subject"] for row in rows), strict=False):
        mine = [row for row in rows if row["subject"] == subject]
        rates = [row["rate_bps"] / 1e6 for row in mine]
        errors = [100 * row["mean_error_ratio"]["median"] for row in mine]
        axes.plot(rates, errors, marker=marker, linestyle="none", label=subject)
    axes.axhspan(-0.2, 0.2, alpha=0.15, label="bar: ±0.2 %")
    axes.set(xscale="log", xlabel="rate that was set, MB/s", ylabel="error over 10 s, %")
    axes.legend()
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def _table(rows: list[dict[str, Any]]) -> str:
    columns = {
        "mean_error_ratio": "error over 10 s",
        "worst_window_error_ratio": "worst second",
        "quantum_ratio": "one request",
        "longest_wait_ratio": "longest wait ÷ ideal",
    }
    head = "".join(f"<th>{name}</th>" for name in ("rate, MB/s", "request, B", *columns.values()))
    body = ""
    for row in rows:
        cells = [f"{row['rate_bps'] / 1e6:.3g}", f"{row['request_bytes']}"]
        for key in columns:
            form = "{:.2f}" if key == "longest_wait_ratio" else "{:+.2%}"
            spread = row[key]
            cells.append(
                f"{form.format(spread['median'])} <small>({form.format(spread['min'])} …"
                f" {form.format(spread['max'])})</small>"
            )
        subject = html.escape(row["subject"])
        body += f"<tr><td>{subject}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return f"<table><thead><tr><th>subject</th>{head}</tr></thead><tbody>{body}</tbody></table>"
