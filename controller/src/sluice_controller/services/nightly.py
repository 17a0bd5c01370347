# SPDX-License-Identifier: GPL-2.0-or-later
"""Nightly results: taken from the run on this host, kept, listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..domain.errors import Conflict, NotFound
from ..domain.models import as_json, parse
from ..domain.nightly import NightlyBody, summary
from .catalogue import audited
from .ports import USUAL_ROWS, Clock, Store


@dataclass(eq=False)
class Nightly:
    store: Store
    clock: Clock

    def add(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a result; the same one again (a retry) is kept once.

        Raises BadValue for a result that is not whole, Conflict for another
        result under the same run_id.
        """
        given = parse(NightlyBody, body)
        result, run_id = as_json(given.result), given.result.run_id
        with self.store.transaction() as unit:
            known = unit.nightly_of_run(run_id)
            if known is not None:
                if known["result"] != result:
                    raise Conflict(
                        "run_id",
                        run_id,
                        "belongs to a result that is kept already and differs",
                        "give each run an id of its own",
                    )
                return known["summary"]
            shown = as_json(summary(given.result))
            row_id = unit.add_nightly(shown, result, given.page)
            unit.prune_nightly(given.keep, row_id)
            audited(
                unit, self.clock, "nightly result", run_id, None, {"outcome": result["outcome"]}
            )
        return {"id": row_id, **shown}

    def list(self, limit: int = USUAL_ROWS) -> list[dict[str, Any]]:
        """Summaries, newest night first."""
        with self.store.transaction() as unit:
            return unit.nightlies(limit)

    def show(self, row_id: int) -> dict[str, Any]:
        """One result whole, with its summary's id and figures."""
        found = self._find(row_id)
        return {
            **found["summary"],
            "has_page": found["page"] is not None,
            "result": found["result"],
        }

    def page(self, row_id: int) -> dict[str, Any]:
        """The run's own page as HTML text."""
        found = self._find(row_id)
        if found["page"] is None:
            raise NotFound(
                "page of nightly result", row_id, "does not exist", "a run without figures has none"
            )
        return {"html": found["page"]}

    def _find(self, row_id: int) -> dict[str, Any]:
        with self.store.transaction() as unit:
            found = unit.nightly(row_id)
        if found is None:
            raise NotFound("nightly result", row_id, "does not exist", "see 'sluice nightly list'")
        return found
