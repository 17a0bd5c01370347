# SPDX-License-Identifier: GPL-2.0-or-later
"""Style sheets: one for every page, and one for each page that needs more."""

import re
from itertools import combinations
from pathlib import Path

import pytest

import sluice_web

TOP = Path(sluice_web.__file__).parent
SHEETS = {path.stem: path.read_text() for path in (TOP / "static/css").glob("*.css")}
EVERY_PAGE = "sluice"
# The text before a brace: a selector, or the condition of an at-rule.
PRELUDE = re.compile(r"([^{}]+)\{")
CLASS = re.compile(r"\.([a-zA-Z][\w-]*)")


def styled(sheet: str) -> set[str]:
    """The class names that a sheet has rules for: the first of each selector.

    Those after it say where a rule holds, and may be anybody's: `.lane .small`.
    """
    found = set()
    for prelude in PRELUDE.findall(re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)):
        if prelude.strip().startswith("@"):
            continue
        # A comma inside of brackets, as of :is(), parts no selectors.
        for selector in re.sub(r"\([^()]*\)", "", prelude).split(","):
            found |= set(CLASS.findall(selector)[:1])
    return found


def test_the_names_are_found_as_a_browser_would_find_them():
    sheet = """
    .a, li.b > .c, h1 { color: red } /* .d { } */
    :is(.e, .f) .g { } td:not(.h) { }
    @media (max-width: 560px) { .i { } .a .j { } }
    """
    assert styled(sheet) == {"a", "b", "g", "i"}


@pytest.mark.parametrize(("one", "other"), list(combinations(sorted(SHEETS), 2)))
def test_no_class_name_is_styled_by_two_sheets(one, other):
    assert styled(SHEETS[one]) & styled(SHEETS[other]) == set()


def test_a_page_loads_its_own_sheet_and_no_other_pages():
    loaded: dict[str, set[str]] = {}
    for path in (TOP / "templates").rglob("*.html"):
        for name in re.findall(r"css/([\w-]+)\.css", path.read_text()):
            loaded.setdefault(name, set()).add(path.stem)
    # A night's own page goes with the list of nights.
    assert loaded.pop("nightly") == {"nightly", "night"}
    assert loaded.pop(EVERY_PAGE) == {"base"}
    assert loaded == {name: {name} for name in SHEETS.keys() - {"nightly", EVERY_PAGE}}
