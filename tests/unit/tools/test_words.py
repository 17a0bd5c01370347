# SPDX-License-Identifier: GPL-2.0-or-later
"""Words that leave the thing open are counted where people read, and nowhere else."""

import importlib.util

import pytest

from testbed import paths

SPEC = importlib.util.spec_from_file_location("words", paths.TOP / "tools/test/words.py")
words = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(words)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.c", '/* What waits. */\nputs("what"); // nobody\n', 2),
        ("a.h", "/*\n * It is so.\n * Such things wait.\n */\nint who;\n", 1),
        (
            "a.py",
            'def who():\n    """Whoever asks."""\n    return "what"  # one that is\n',
            2,
        ),
        ("a.rs", '/// Who is due.\nfn what() { let s = "nobody"; }\n', 1),
        ("a.sh", "# Likewise.\necho what\n", 1),
        ("a.js", "// Whatever comes.\nconst who = 1;\n", 1),
        ("a.yml", "# That which is.\nwho: what\n", 1),
        (
            "a.md",
            "Such a one.\n\n```\nwhat\n```\n\nSee `who`, [it](what.md), one\nthat is.\n",
            2,
        ),
        ("a.md", "It takes the same time. Each such line is read.\n", 0),
        ("a.png", "what", 0),
    ],
)
def test_found_in_words_for_people_alone(name, text, found):
    assert words.count(words.prose(name, text))["found"] == found


def test_sums_are_by_folder(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("Who goes there?\n")
    (tmp_path / "README.md").write_text("A request waits.\n")
    sums = words.by_folder(tmp_path, ["docs/a.md", "README.md", "LICENSE", "docs/gone.md"])
    assert {folder: dict(sum_) for folder, sum_ in sums.items()} == {
        "docs": {"words": 3, "found": 1},
        "README.md": {"words": 3, "found": 0},
    }
