# SPDX-License-Identifier: GPL-2.0-or-later
"""SYN: the cost of a refused connection, out of four windows."""

import pytest

from measure.experiments import bars, report, syn
from measure.experiments.spread import spreads
from measure.experiments.syn import Window, costs

IDLE = Window(0, 0.15, 15.0)
SERVED = Window(600, 3.15, 15.0)
FEW = Window(15, 0.3, 15.0)


def test_the_row_is_the_expected_one() -> None:
    assert bars.EXPECTED["SYN"] == ((syn.PART, syn.SUBJECT),)


def test_the_idle_guest_and_the_admitted_connections_are_taken_off() -> None:
    refused = Window(20, 0.2 + 0.2 + 0.058, 20.0)
    found = costs(IDLE, SERVED, FEW, refused, 600)
    assert found["idle_ms"] == pytest.approx(10)
    assert found["served_ms"] == pytest.approx(5)
    assert found["refused_ms"] == pytest.approx(0.1)
    assert found["refused_share"] == pytest.approx(580 / 600)
    assert found["cost_ratio"] == pytest.approx(0.02)


@pytest.mark.parametrize(("served", "few", "refused"), [(0, 15, 20), (600, 0, 20), (600, 15, 600)])
def test_without_served_or_refused_connections_nothing_is_told(served, few, refused) -> None:
    windows = (Window(served, 3, 15), Window(few, 0.3, 15), Window(refused, 0.3, 15))
    with pytest.raises(ValueError, match="nothing is to be told"):
        costs(IDLE, *windows, 600)


def test_its_bar_is_judged_and_its_page_drawn() -> None:
    figures = spreads([costs(IDLE, SERVED, FEW, Window(20, 0.458, 20.0), 600)])
    row = {"part": syn.PART, "subject": syn.SUBJECT, "runs": 3, **figures}
    found = {"experiment": "SYN", "title": syn.TITLE, "accelerator": "tcg", "repeats": 3}
    found |= {"note": "", "rows": [row], "missing": []}
    (verdict,) = bars.judge(found)
    assert verdict.outcome == bars.Outcome.MET
    page = report.page(found | {"verdicts": bars.as_json([verdict]), "problems": [], "only": ""})
    assert "refused ÷ served" in page and "<svg" in page
