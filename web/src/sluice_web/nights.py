# SPDX-License-Identifier: GPL-2.0-or-later
"""The sentences of the nightly pages, from the controller's results. Pure."""

from typing import Any

from . import formatting as f

OUTCOME_MARK = {"passed": "✓", "failed": "✗", "refused": "–", "aborted": "■", "error": "!"}
OUTCOME_WORDS = {
    "passed": "passed",
    "failed": "a check failed",
    "refused": "did not start",
    "aborted": "was ended early",
    "error": "could not be run",
}
PHASE_TITLES = {"control": "Alone", "unshaped": "Unshaped", "auto": "Auto-shaped"}


def share(ratio: float | None) -> str:
    """A ratio in per cent; never 100 for less than all."""
    if ratio is None:
        return f.NO_VALUE
    percent = ratio * 100
    if 99 <= percent < 100:
        # Rounded down: 99.97 % delivered is not all of it.
        return f"{int(percent * 10) / 10:.1f} %"
    return f"{percent:.0f} %"


def seconds(value: float | None) -> str:
    """A span in seconds as a person reads it; null is "never" where it stands for that."""
    return f.NO_VALUE if value is None else f"{f.significant(value)} s"


def reason(night: dict[str, Any]) -> str:
    """Why a night was not measured, in one line."""
    return " ".join(r["sentence"].rstrip(".") + "." for r in night.get("reasons") or [])


def headline(nights: list[dict[str, Any]]) -> tuple[str, float | None]:
    """One line for the newest night, and when that was; nights come newest first."""
    if not nights:
        return "No night yet", None
    newest = nights[0]
    at, found = newest["started_at"], newest["figures"]
    if found is None:
        last = next((n for n in nights if n["figures"]), None)
        words = f"The last run {OUTCOME_WORDS[newest['outcome']]}"
        if last is None:
            return f"{words}; no night has been measured yet", at
        nights_ago = nights.index(last)
        since = "the night before" if nights_ago == 1 else f"{nights_ago} nights before"
        return f"{words}; the one of {since} {OUTCOME_WORDS[last['outcome']]}", at
    kept = found["background_ratio"]
    beside = "" if kept is None else f", and everything else kept {share(kept)} of its rate"
    words = f"The last run {OUTCOME_WORDS[newest['outcome']]}"
    return f"{words}: shaped, the stream was {found['auto']['verdict']}{beside}", at


def gaps(nights: list[dict[str, Any]]) -> str:
    """How many of the nights have no figures, in words; empty if all have."""
    without = sum(1 for night in nights if night["figures"] is None)
    if not without:
        return ""
    many = "The only night has" if len(nights) == 1 else f"{without} of {len(nights)} nights have"
    return f"{many} no figures; a cross on the axis is one, and the list says why."
