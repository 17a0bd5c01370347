# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's page: one self-contained HTML file with plots and tables.

A row has a ``part`` and a ``subject``; a figure in it is a spread, ``{median,
min, max}``. Each part becomes a plot and a table.
"""

import html
import io
import math
from typing import Any

import matplotlib

from measure.experiments.bars import FIGURES, bar_of, written

matplotlib.use("svg")
from matplotlib import pyplot

# Of these a row has one.
JUDGED_RATIOS = ("pooled_p99_ratio", "pooled_ratio", "cost_ratio", "optimum_ratio")
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
td, th { padding: .3rem .6rem; border-bottom: 1px solid #8886; text-align: right; }
td:first-child, th:first-child { text-align: left; }
small { opacity: .7; white-space: nowrap; }
svg { width: 100%; height: auto; background: #fff; border-radius: 4px; }
.wide { overflow-x: auto; }
.missed td:last-child, .inconclusive td:last-child { font-weight: bold; }
.missed td:last-child { color: #d33; }
"""


def finite(value: Any) -> Any:
    """Return figures as JSON can have them: null for what never came."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def page(found: dict[str, Any]) -> str:
    """Return the page of an experiment."""
    title = html.escape(f"{found['experiment']}: {found['title']}")
    parts = dict.fromkeys(row["part"] for row in found["rows"])
    sections = "".join(
        _section(found["experiment"], part, [row for row in found["rows"] if row["part"] == part])
        for part in parts
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="generator"'
        f' content="Sluice"><style>{STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>Accelerator {html.escape(found['accelerator'])}, {found['repeats']} runs of each row."
        f" Median, with the least and the greatest. {html.escape(found['note'])}{_only(found)}</p>"
        f"{_verdicts(found)}{sections}</body></html>\n"
    )


def _only(found: dict[str, Any]) -> str:
    only = html.escape(found["only"])
    return f" Only rows with <em>{only}</em> in their name were asked for." if only else ""


def _verdicts(found: dict[str, Any]) -> str:
    """Show each figure beside its bar, and say what is wrong."""
    wrong = "".join(f"<li>{html.escape(problem)}</li>" for problem in found["problems"])
    body = ""
    for one in found["verdicts"]:
        names = ("part", "subject", "figure", "measured", "bar", "outcome")
        cells = "".join(f"<td>{html.escape(one[name])}</td>" for name in names)
        body += f'<tr class="{one["outcome"]}">{cells}</tr>'
    return (
        '<h2>Bars</h2><div class="wide"><table><thead><tr><th>part</th><th>subject</th>'
        f"<th>figure</th><th>measured</th><th>bar</th><th>verdict</th></tr></thead><tbody>{body}</tbody></table>"
        "</div>"
        + (f"<ul>{wrong}</ul>" if wrong else "<p>All bars are met, and nothing is missing.</p>")
    )


def _section(experiment: str, part: str, rows: list[dict[str, Any]]) -> str:
    if "rate_bps" in rows[0]:
        plot = _rates(rows)
    elif "median_us" in rows[0]:
        plot = _times(rows)
    else:
        plot = _ratios(experiment, rows)
    return f'<h2>{html.escape(part)}</h2>{plot}<div class="wide">{_table(rows)}</div>'


def _rates(rows: list[dict[str, Any]]) -> str:
    figure, axes = pyplot.subplots(figsize=(9, 3.6))
    for marker, subject in zip(
        "xosD^v", dict.fromkeys(row["subject"] for row in rows), strict=False
    ):
        mine = [row for row in rows if row["subject"] == subject]
        rates = [row["rate_bps"] / 1e6 for row in mine]
        errors = [100 * row["mean_error_ratio"]["median"] for row in mine]
        axes.plot(rates, errors, marker=marker, linestyle="none", label=subject)
    bar = 100 * bar_of("E2", rows[0], "mean_error_ratio").high
    axes.axhspan(-bar, bar, alpha=0.15, label=f"bar: ±{bar:g} %")
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xscale="log", xlabel="rate that was set, MB/s", ylabel="error over 10 s, %")
    axes.legend()
    return _svg(figure)


def _times(rows: list[dict[str, Any]]) -> str:
    """Draw the median and the 95th percentile of each row, on one logarithmic scale."""
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.5 * len(rows)))
    for marker, key in (("o", "median_us"), ("|", "p95_us")):
        times = [row[key]["median"] for row in rows]
        axes.plot(times, range(len(rows)), marker, label=FIGURES[key][0])
    axes.set_yticks(range(len(rows)), [row["subject"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(xscale="log", xlabel="µs")
    axes.legend()
    return _svg(figure)


def _ratios(experiment: str, rows: list[dict[str, Any]]) -> str:
    """Draw one ratio per row with its spread, and the bar that it is held to."""
    key = next(one for one in JUDGED_RATIOS if one in rows[0])
    held = bar_of(experiment, rows[0], key)
    bar = held.high if math.isinf(held.low) else held.low
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.5 * len(rows)))
    for place, row in enumerate(rows):
        spread = {name: value for name, value in row[key].items() if not math.isinf(value)}
        axes.plot(list(spread.values()), [place] * len(spread), color="0.6")
        axes.plot(spread.get("median", []), [place] * ("median" in spread), "o")
    axes.axvline(bar, linestyle=":", label=f"bar: {bar:g}")
    axes.set_yticks(range(len(rows)), [row["subject"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(xlabel=FIGURES[key][0])
    axes.legend()
    return _svg(figure)


def _svg(figure: pyplot.Figure) -> str:
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return "<svg" + text.getvalue().partition("<svg")[2]


def _table(rows: list[dict[str, Any]]) -> str:
    # A control has no control beside it.
    columns = [key for key in FIGURES if any(key in row for row in rows)]
    names = [FIGURES[key][0] for key in columns]
    rated = "rate_bps" in rows[0]
    head = "".join(f"<th>{name}</th>" for name in (*(("rate, MB/s", "request, B") * rated), *names))
    body = ""
    for row in rows:
        cells = [f"{row['rate_bps'] / 1e6:.3g}", f"{row['request_bytes']}"] if rated else []
        cells += [_cell(key, row[key]) if key in row else "" for key in columns]
        subject = html.escape(row["subject"])
        body += f"<tr><td>{subject}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return f"<table><thead><tr><th>subject</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(figure: str, spread: dict[str, float]) -> str:
    low, high = written(figure, spread["min"]), written(figure, spread["max"])
    return f"{written(figure, spread['median'])} <small>({low} … {high})</small>"
