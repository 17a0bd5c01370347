# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots as a browser gets them: well-formed, within the picture, escaped."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import charts
from demo.charts import Line, Span


def drawing(figure: str) -> ET.Element:
    return ET.fromstring(re.search(r"<svg.*</svg>", figure, re.DOTALL)[0])


def coordinates(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) ([\d.-]+)", path)]


values = st.one_of(st.none(), st.floats(0, 1e9))
lines = st.lists(
    st.builds(
        Line,
        title=st.text("ab<&\"'", max_size=5),
        colour=st.just("c1"),
        points=st.lists(st.tuples(st.floats(-10, 200), values), max_size=20),
        limit=st.booleans(),
    ),
    max_size=4,
)


@given(lines=lines, from_s=st.floats(0, 50), seconds=st.floats(0, 300))
def test_any_lines_make_a_drawing_within_its_frame(lines, from_s, seconds):
    figure = charts.chart("t", "MB/s", lines, [], [], from_s, from_s + seconds)
    paths = [part.get("d") for part in drawing(figure).iter("path")]
    assert len(paths) == len(lines)
    for line, path in zip(lines, paths, strict=True):
        present = sum(value is not None for _, value in line.points)
        assert len(coordinates(path)) >= present
        for x, y in coordinates(path):
            assert charts.LEFT <= x <= charts.WIDTH - charts.RIGHT
            assert charts.TOP <= y <= charts.HEIGHT - charts.BOTTOM


@pytest.mark.parametrize(("seconds", "step"), [(60, 10), (120, 10), (121, 30), (300, 30)])
def test_seconds_are_labelled_inside_the_time_that_is_shown(seconds, step):
    parts = drawing(charts.chart("t", "ms", [], [], [], 0, seconds))
    labels = [p.text for p in parts.iter("text") if p.get("class") == "second"]
    assert labels == [f"{at} s" for at in range(step, seconds, step)]


@pytest.mark.parametrize(
    ("most", "top"),
    [(0, 1), (-3, 1), (1, 1), (1.5, 2), (2.1, 2.5), (3, 5), (5, 5), (5.1, 10), (101, 200)],
)
def test_the_scale_s_end_is_a_round_number(most, top):
    assert charts.nice_top(most) == pytest.approx(top)


def test_what_people_named_is_escaped():
    hostile = '"><script>&'
    pieces = [(0.0, 1.0, hostile)]
    spans, markers = [Span(hostile, 0, 10)], [(5.0, hostile)]
    line = Line(hostile, "c1", [(0.0, 1.0)])
    for figure in (
        charts.chart(hostile, hostile, [line], spans, markers, 0, 20),
        charts.ribbon(hostile, pieces, spans, 0, 20),
    ):
        assert "<script>" not in figure
        assert drawing(figure).get("aria-label") == hostile


def test_the_ribbon_has_a_piece_for_each_verdict_in_its_place():
    pieces = [(0.0, 5.0, "perfect"), (5.0, 7.0, "good"), (7.0, 10.0, "poor")]
    parts = list(drawing(charts.ribbon("t", pieces, [], 0, 10)).iter("rect"))
    assert [p.get("class") for p in parts] == ["perfect", "good", "poor"]
    whole = charts.WIDTH - charts.LEFT - charts.RIGHT
    for part, (start, end, _) in zip(parts, pieces, strict=True):
        # Pieces overlap by 0.3 so that no seam shows; both are rounded to 0.1.
        assert float(part.get("x")) == pytest.approx(charts.LEFT + whole * start / 10, abs=0.06)
        assert float(part.get("width")) == pytest.approx(whole * (end - start) / 10 + 0.3, abs=0.06)
