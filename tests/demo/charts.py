# SPDX-License-Identifier: GPL-2.0-or-later
"""The report's plots as SVG text. Colours are the page's CSS variables, so that
light and dark follow the reader's setting. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 960, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 28
Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Line:
    """A series. ``colour`` is a CSS variable's name; a limit is dashed and in steps."""

    title: str
    colour: str
    points: Points
    limit: bool = False


@dataclass(frozen=True)
class Span:
    """A stretch of time with a name, drawn behind the lines."""

    title: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Axes:
    """Maps seconds and values to the picture."""

    from_s: float
    to_s: float
    top: float

    def x(self, at_s: float) -> float:
        share = (at_s - self.from_s) / max(1e-9, self.to_s - self.from_s)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, value / self.top))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def nice_top(most: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that holds ``most``."""
    if most <= 0:
        return 1.0
    power = 1.0
    while power < most:
        power *= 10
    for step in (0.1, 0.2, 0.25, 0.5):
        if most <= step * power:
            return step * power
    return power


def path_of(line: Line, axes: Axes) -> str:
    """Return the line's path; a missing value interrupts it."""
    pieces, pen_down, last_y = [], False, 0.0
    for at_s, value in line.points:
        if value is None:
            pen_down = False
            continue
        x, y = axes.x(at_s), axes.y(value)
        if pen_down and line.limit:
            pieces.append(f"L{x:.1f} {last_y:.1f}")
        pieces.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down, last_y = True, y
    return "".join(pieces)


def _grid(axes: Axes, unit: str) -> list[str]:
    parts = []
    for part in range(5):
        value = axes.top * part / 4
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4}">{value:g}</text>')
    parts.append(f'<text class="unit" x="{LEFT}" y="{TOP - 3}">{escape(unit)}</text>')
    step = 10 if axes.to_s - axes.from_s <= 120 else 30
    second = int(axes.from_s // step + 1) * step
    while second < axes.to_s:
        x = axes.x(second)
        parts.append(f'<text class="second" x="{x:.1f}" y="{HEIGHT - 8}">{second} s</text>')
        second += step
    return parts


def _spans(spans: Sequence[Span], axes: Axes) -> list[str]:
    parts = []
    for span in spans:
        x, width = axes.x(span.start_s), axes.x(span.end_s) - axes.x(span.start_s)
        height = HEIGHT - TOP - BOTTOM
        parts.append(
            f'<rect class="span" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{height}"/>'
            f'<text class="span-title" x="{x + 4:.1f}" y="{TOP + 12}">{escape(span.title)}</text>'
        )
    return parts


def _markers(markers: Sequence[tuple[float, str]], axes: Axes) -> list[str]:
    return [
        f'<line class="marker" x1="{axes.x(at_s):.1f}" x2="{axes.x(at_s):.1f}" '
        f'y1="{TOP}" y2="{HEIGHT - BOTTOM}"><title>{escape(words)}</title></line>'
        for at_s, words in markers
    ]


def chart(
    title: str,
    unit: str,
    lines: Sequence[Line],
    spans: Sequence[Span],
    markers: Sequence[tuple[float, str]],
    from_s: float,
    to_s: float,
) -> str:
    """Return one plot with its legend as an HTML figure."""
    values = [value for line in lines for _, value in line.points if value is not None]
    axes = Axes(from_s, to_s, nice_top(max(values, default=1.0)))
    body = [*_spans(spans, axes), *_grid(axes, unit), *_markers(markers, axes)]
    legend = []
    for line in lines:
        kind = "limit" if line.limit else "rate"
        style = f"--c:var(--{line.colour})"
        body.append(f'<path class="{kind}" style="{style}" d="{path_of(line, axes)}"/>')
        legend.append(f'<span class="{kind}" style="{style}"><i></i>{escape(line.title)}</span>')
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg><div class=legend>{''.join(legend)}</div></figure>"
    )


def ribbon(
    title: str,
    verdicts: Sequence[tuple[float, float, str]],
    spans: Sequence[Span],
    from_s: float,
    to_s: float,
) -> str:
    """Return the stream's verdicts over time: (start, end, verdict) as coloured pieces."""
    axes = Axes(from_s, to_s, 1.0)
    height, top = 34, 16
    body = []
    for span in spans:
        x = axes.x(span.start_s)
        body.append(f'<text class="span-title" x="{x:.1f}" y="11">{escape(span.title)}</text>')
    for start_s, end_s, verdict in verdicts:
        x, width = axes.x(start_s), axes.x(end_s) - axes.x(start_s)
        body.append(
            f'<rect class="{escape(verdict)}" x="{x:.1f}" y="{top}" '
            f'width="{width + 0.3:.1f}" height="{height}"/>'
        )
    legend = "".join(
        f'<span class="verdict {name}"><i></i>{name}</span>' for name in ("perfect", "good", "poor")
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {top + height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg><div class=legend>{legend}</div></figure>"
    )
