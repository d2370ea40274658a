"""The rows of a shard: runs of geometrically growing sizes, and a tail of the newest (Bentley and Saxe, as in an LSM).

New rows go to the tail or become a run; runs of similar size are merged, so there are O(log n) of them and a row is
copied O(log n) times in its life. Rows die in place; a run that is more than half dead is rewritten. A key has at most
one living row in the whole forest.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from sortedcontainers import SortedKeyList

from weever_stream.detect.run import Run, Shape
from weever_stream.detect.tail import CAPACITY, SMALL, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from weever_stream.detect.rows import Rows
    from weever_stream.index.arrays import Ints
    from weever_stream.index.tree import Tree

__all__ = ["Forest"]

_GATHERED = 1 << 15
"""Single rows are probed against every run, so when they settle they are joined with all runs of so few rows."""
_ALL_GATES: Ints = np.full(1, -1, np.int64)
"""Rows that all pass all gates store none."""
_RATIO = 3
"""A run is merged with the next larger one unless that is at least so many times as large."""


class Forest:
    """Runs by size, and the tail."""

    def __init__(self, shape: Shape, schema: pa.Schema) -> None:
        self.shape = shape
        self.schema = schema
        self.runs: SortedKeyList[Run] = SortedKeyList(key=len)
        self._largest_first: tuple[Run, ...] = ()
        self._serial = 1
        self.tail = Tail(0, shape.plan, schema)

    def __iter__(self) -> Iterator[Run | Tail]:
        """Everything that holds rows, the largest first."""
        return iter((*self._largest_first, self.tail) if self.tail.n else self._largest_first)

    def __len__(self) -> int:
        """Living rows."""
        return sum(len(part) - len(part.dead) for part in self)

    @property
    def largest(self) -> Run | None:
        """The run that gives new ones their arrangement."""
        return self.runs[-1] if self.runs else None

    def serial(self) -> int:
        """A number that no part of the forest has had."""
        self._serial += 1
        return self._serial

    def add(self, serial: int, rows: Rows, trees: tuple[Tree | None, ...] | None) -> None:
        """Takes new rows in: with their trees as a run, without as part of the tail. All, or none if it fails."""
        if not len(rows):
            return
        if trees is not None:
            self._grow([Run(serial, rows.table, rows.order, trees)])
            return
        if len(self.tail) >= CAPACITY:
            self.settle()
        self.tail.append(rows)

    def settle(self) -> None:
        """Makes a run of the tail."""
        tail = self.tail
        if len(tail):
            rows = tail.rows()
            if len(tail.dead):
                rows = rows.keep(tail.dead.mask[: tail.n] == 0)
            fresh = Tail(self.serial(), self.shape.plan, self.schema)
            if len(rows):
                run = Run(self.serial(), rows.table, rows.order, self.shape.trees(rows, self.largest))
                self._grow([run], gathered=_GATHERED)
            self.tail = fresh

    def plant(self, run: Run) -> None:
        """Takes in a run that was made elsewhere."""
        self._grow([run])

    def prune(self) -> None:
        """Rewrites runs that are mostly dead, drops those that are dead altogether."""
        wilted = {run.serial for run in self.runs if 2 * len(run.dead) > len(run)}
        if wilted:
            alive = [run for run in self.runs if run.serial in wilted and len(run.dead) < len(run)]
            self._grow([run.rewritten(self.serial(), self.shape) for run in alive], without=wilted)

    def _grow(self, new: list[Run], without: set[int] | None = None, gathered: int = 0) -> None:
        """Adds runs, and merges until sizes grow geometrically again, and all runs of up to `gathered` rows are one.

        Nothing has changed if it fails.
        """
        runs = SortedKeyList([run for run in self.runs if not without or run.serial not in without], key=len)
        for run in new:
            runs.add(run)
        at = 0
        while at + 1 < len(runs):
            if len(runs[at + 1]) >= max(_RATIO * len(runs[at]), gathered + 1):
                at += 1
                continue
            larger, smaller = runs.pop(at + 1), runs.pop(at)
            runs.add(larger.merged(smaller, self.serial(), self.shape))
            at = 0
        self.runs, self._largest_first = runs, tuple(reversed(runs))

    def open_gates(self, side: int) -> Iterator[Ints]:
        """Of each part with rows the gates of a side that some row passes, as words of bits; the dead are asked too."""
        for part in self:
            if isinstance(part, Tail):
                entries = part.entries(side)
                rows, words = len(entries), np.bitwise_or.reduce(entries.gates)
            else:
                tree = part.trees[side]
                assert tree is not None, "gates are stored with the rows"
                rows, words = tree.n, tree.open_gates()
            if rows:
                yield words if len(words) else _ALL_GATES

    def fits_tail(self, rows: int) -> bool:
        """Whether so many new rows go to the tail."""
        return rows <= SMALL

    def _check(self) -> None:
        """Asserts every invariant of the forest and its parts."""
        sizes = [len(run) for run in self.runs]
        assert all(larger >= _RATIO * smaller for smaller, larger in pairwise(sizes)), "sizes grow geometrically"
        serials = [part.serial for part in self]
        assert len(set(serials)) == len(serials), "serial numbers differ"
        for run in self.runs:
            assert 2 * len(run.dead) <= len(run), "no run is mostly dead"
            run._check(self.shape)
        self.tail._check()
