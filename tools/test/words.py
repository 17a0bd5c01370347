# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts, by folder, words of comments and documents that leave open which thing is meant.

Counted are question words (what, who, nobody, whatever …), phrases without a noun (one that,
such as are) and sentences that begin with "The same", "Such" or "Likewise". Nothing fails: the
count is for a writer who has time to rewrite a sentence.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, String
from pygments.util import ClassNotFound

FOLDERS = (
    "README.md",
    "docs",
    "qemu-patches",
    "controller",
    "web",
    "guest-agent",
    "ansible",
    "tests",
    "tools",
)
OPEN = re.compile(
    r"\b(?:what|who|whom|whoever|whatever|nobody|one\s+that|those\s+that|that\s+which|such\s+as\s+are)\b"
    r"|(?:\A|[.!?:]\s+|\n\s*\n\s*)(?:the\s+same|likewise|such)\b",
    re.I,
)
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
CODE_OF_A_PAGE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.M | re.S)
# Marks of a comment, not words of it.
MARKS = re.compile(r"^[ \t]*(?:/?\*+/?|//[/!]*|#+|\"\"\")[ \t]?|\*/|SPDX.*$", re.M)


def comments(text: str, lexer: Lexer) -> Iterator[str]:
    for kind, value in lexer.get_tokens(text):
        if kind in String.Doc or (kind in Comment and kind not in Comment.Preproc):
            yield value


def prose(name: str, text: str) -> str:
    """The words of a page, or of a program's comments."""
    if name.endswith((".md", ".scd")):
        return CODE_OF_A_PAGE.sub(" ", text)
    try:
        lexer = get_lexer_for_filename(name)
    except ClassNotFound:
        return ""
    return MARKS.sub("", "\n".join(comments(text, lexer)))


def count(text: str) -> Counter[str]:
    return Counter(words=len(WORD.findall(text)), found=len(OPEN.findall(text)))


def by_folder(top: Path, names: Iterable[str]) -> dict[str, Counter[str]]:
    """Of each folder: its words, and how many of them were found."""
    sums: dict[str, Counter[str]] = {}
    for name in names:
        if (folder := name.split("/")[0]) in FOLDERS and (top / name).is_file():
            text = (top / name).read_text(errors="replace")
            sums.setdefault(folder, Counter()).update(count(prose(name, text)))
    return sums


def main(top: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=top, capture_output=True, text=True, check=True
    )
    sums = by_folder(top, listed.stdout.split("\0"))
    print("words that leave the thing open, of 1,000 in comments and documents (aim: 3)")
    for folder in FOLDERS:
        words, found = sums[folder]["words"], sums[folder]["found"]
        print(f"  {folder:<13} {1000 * found / words:5.1f}   {found} of {words}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
