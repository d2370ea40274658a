"""The rows that come or go with a batch, and the pairs they make with what is held and among themselves.

`Finder.pairs` gives the pairs that are listed. Which rows that come are flooded (see `flood`) must be known before the
first pair is told. So where nothing is flooded yet the pairs of a batch are held until all are found: mostly they are
few, no row has too many, and that is all. Where there are more than a few million, or a row has too many, or something
is flooded already, partners are counted first (see `census`), and pairs stream out after that. What was counted and is
not listed is `unlisted`.

Cost: the probes and their pairs; where something is flooded, as many counting probes. Memory: a few million pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.detect.census import Census
from weever_stream.detect.flood import flood_bits, leveled, levels_of
from weever_stream.detect.found import Found, resolve
from weever_stream.detect.run import probe_side
from weever_stream.detect.tail import scan
from weever_stream.index.sorting import sort_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.detect.batch import RowsOfBatch
    from weever_stream.detect.forest import Forest
    from weever_stream.detect.plan import Plan, Probe
    from weever_stream.detect.rows import Encoder, Rows
    from weever_stream.index.arrays import Ints
    from weever_stream.index.tree import Entries, Tree

__all__ = ["Finder", "Moving", "in_key_order"]

_PAIRS_HELD = 1 << 21
"""So many pairs of a batch are held while it is not known whether a row has too many."""
_NOTHING: Ints = np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class Moving:
    """Rows that come or go with a batch."""

    rows: Rows
    known: RowsOfBatch
    sign: int
    trees: tuple[Tree | None, ...] | None = None
    """Of rows that become a run."""
    held: list[Found] | None = None
    """All their listed pairs, where these have been found already."""
    unlisted: list[int] | None = None
    """Per rule the pairs that are not listed; complete when the listed ones have been read. None: there are none."""


class Finder:
    """Finds the pairs of rows that come and go, in one forest."""

    def __init__(self, plan: Plan, forest: Forest, encoder: Encoder) -> None:
        self._plan, self._forest, self._encoder = plan, forest, encoder
        self._listing = plan.probes[: len(plan.counting)]
        """Probes that find the pairs of calm rows, and those that find samples."""
        self._sampling = plan.probes[len(plan.counting) :] if plan.capped else ()
        self._floods = [(side, flood_bits(plan.sides[side])) for side in sorted({one.stored for one in self._sampling})]

    def census(self) -> Census | None:
        """What is held, ready for counting, if any row of it is flooded, or was until it died."""
        flooded = any(
            bool((gates & bits).any()) for side, bits in self._floods for gates in self._forest.open_gates(side)
        )
        return Census(self._forest.shape, self._forest) if flooded else None

    def cap(self, come: Moving, cap: int, census: Census | None) -> Census | None:
        """Gives the rows that come their levels. Returns the census, if there is anything to count."""
        if census is None:
            if self._few(come, cap):
                return None
            census = Census(self._forest.shape, self._forest)
        own = self._own(come)
        levels = {}
        come.unlisted = [0] * len(self._plan.rules)
        for rule in self._rules():
            partners, come.unlisted[rule] = census.partners(self._plan.counting, rule, come.rows, come.known, own)
            mine = levels_of(partners, cap)
            if mine.any():
                levels[rule] = mine
        if levels:
            come.rows = self._encoder.rows(leveled(come.rows.table, levels), come.rows.order)
            come.known.table = come.rows.table
            if come.trees is not None:
                keys = come.trees[-1]
                come.trees = self._forest.shape.trees(come.rows, self._forest.largest, keys=keys)
        return census

    def _few(self, come: Moving, cap: int) -> bool:
        """Whether no row has more partners than the cap: then all pairs are held."""
        held: list[Found] = []
        pairs = 0
        for found in self.pairs(come):
            held.append(found)
            pairs += len(found)
            if pairs > _PAIRS_HELD:
                return False
        if pairs > cap and _most_partners(held, come) > cap:
            return False
        come.held = held
        return True

    def count(self, moving: Moving, census: Census) -> None:
        """Counts all pairs of the rows, if that has not been done. `pairs` takes off those that it lists."""
        if moving.unlisted is None:
            own = self._own(moving)
            moving.unlisted = [0] * len(self._plan.rules)
            for rule in self._rules():
                moving.unlisted[rule] = census.partners(self._plan.counting, rule, moving.rows, moving.known, own).pairs

    def _rules(self) -> list[int]:
        return [rule for family in self._plan.families for rule in family.rules]

    def _own(self, moving: Moving) -> tuple[Tree | None, ...]:
        return moving.trees or self._forest.shape.trees(moving.rows, None, by_key=False)

    def pairs(self, moving: Moving) -> Iterator[Found]:
        """Violations of the rows with everything that lives, and among themselves, as far as they are listed."""
        if moving.held is not None:
            yield from moving.held
            return
        rows, mine, sign, trees = moving.rows, moving.known, moving.sign, moving.trees
        for (rule, _), positions in zip(self._plan.one_row, rows.violating, strict=True):
            if len(positions):
                yield Found(rule, sign, mine, positions)
        if trees is None and not self._forest.fits_tail(len(rows)):
            trees = self._forest.shape.trees(rows, self._forest.largest, by_key=False)
        if not self._plan.capped:
            for probe in self._plan.probes:
                yield from self._probed(probe, rows, mine, sign, trees)
            return
        # Where nothing is flooded nothing was counted, and there are no samples.
        for probe in self._listing if moving.unlisted is None else (*self._listing, *self._sampling):
            for found in self._probed(probe, rows, mine, sign, trees):
                if moving.unlisted is not None:
                    moving.unlisted[found.rule] -= len(found)
                yield found

    def _probed(
        self, probe: Probe, rows: Rows, mine: RowsOfBatch, sign: int, trees: tuple[Tree | None, ...] | None
    ) -> Iterator[Found]:
        queries = rows.sides[probe.queries]
        if trees is not None:
            own = trees[probe.queries]
            queries = own.entries() if own is not None else in_key_order(queries)
        for part in self._forest:
            for pairs in part.probe(probe, queries):
                yield from resolve(pairs, probe, mine, queries.rows, part, sign)
        if probe.within and len(rows) > 1:
            stored = rows.sides[probe.stored]
            for pairs in (
                scan(stored, len(stored), probe, queries, within=True)
                if trees is None
                else probe_side(trees, probe, queries, within=True)
            ):
                yield from resolve(pairs, probe, mine, queries.rows, mine, sign)


def _most_partners(held: list[Found], come: Moving) -> int:
    """The greatest number of partners that a row has under a rule."""
    most, n = 0, len(come.rows)
    for rule in {found.rule for found in held if found.right is not None}:
        partners = np.zeros(n, np.int64)
        for found in held:
            for side, rows in ((found.left, found.left_rows), (found.right, found.right_rows)):
                if found.rule == rule and side is come.known and rows is not None:
                    partners += np.bincount(rows, minlength=n)
        most = max(most, int(partners.max(initial=0)))
    return most


def in_key_order(entries: Entries) -> Entries:
    """Entries sorted by key, so that probes walk through memory in one direction."""
    if len(entries) < 2:
        return entries
    return entries.take(sort_rows(np.ascontiguousarray(entries.keys), _NOTHING))
