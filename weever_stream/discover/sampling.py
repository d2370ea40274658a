"""Pairs worth looking at first: random ones, and ones chosen by a column, for as long as they bring something new.

Random pairs show what is common. Rare evidence sits where values are equal or close, so the rows are also paired column
by column (Hydra, Bleifuss et al. 2017): with a row of the same value (*within*), of another (*other*), of the next
smaller (*back*) and of the next greater (*forth*). The way with the best yield, new evidences a pair, goes first and is
asked again until none brings enough. Cost: linear in the pairs; a call takes a bounded number of them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Literal

import numpy as np

from weever_stream.check.keys import run_starts
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.predicates import ACROSS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["Clusters", "sample_focused", "sample_random"]

Way = Literal["within", "other", "back", "forth"]
_WAYS: tuple[Way, ...] = ("within", "other", "back", "forth")
_AT_ONCE = 1 << 16
"""Pairs of one focused step."""
_LEAST_YIELD = 3e-5
"""New evidences a pair, below which a way is given up."""


def sample_random(evidence: Evidence, rows: int, pairs: int, chance: np.random.Generator) -> None:
    """Takes in pairs of different rows, each as likely as any other."""
    left = chance.integers(0, rows, pairs)
    right = chance.integers(0, rows - 1, pairs)
    right += right >= left
    evidence.add_pairs(left, right)


def sample_focused(
    space: Space,
    evidence: Evidence,
    chance: np.random.Generator,
    go_on: Callable[[], bool] = lambda: True,
    memory: int = 1 << 30,
) -> int:
    """Takes in pairs column by column, the best way first, until none yields enough; returns the pairs looked at.

    Columns stay sorted for another turn while they take no more than `memory`, the last asked longest.
    """
    before = evidence.pairs
    waiting: list[tuple[float, int, int, Way]] = []
    clusters: dict[int, Clusters] = {}
    kept = max(1, memory // (24 * max(1, space.rows)))
    for at, one in enumerate(space.comparisons):
        if one.where == ACROSS and one.left.name == one.right.name:
            for turn, way in enumerate(_WAYS if one.ordered else _WAYS[:2]):
                waiting.append((-1.0, at, turn, way))
    heapify(waiting)
    while waiting and go_on():
        _, at, turn, way = heappop(waiting)
        mine = clusters.pop(at, None) or Clusters(space.codes[space.programs[at, 0]])
        clusters[at] = mine
        if len(clusters) > kept:
            del clusters[next(iter(clusters))]
        left, right = mine.pairs(way, _AT_ONCE, chance)
        if not len(left):
            continue
        gain = evidence.add_pairs(left, right) / len(left)
        if gain >= _LEAST_YIELD:
            heappush(waiting, (-gain, at, turn, way))
    return evidence.pairs - before


class Clusters:
    """The rows of a column by value: runs of equal ones, in order. Rows without a value are in none."""

    def __init__(self, codes: NDArray[np.int32]) -> None:
        order = np.argsort(codes, kind="stable")
        self._order: Ints = order[int((codes < 0).sum()) :]
        self._starts = run_starts(codes[self._order].astype(np.int64))
        self._cluster = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))

    def pairs(self, way: Way, most: int, chance: np.random.Generator) -> tuple[Ints, Ints]:
        """Some rows and a partner for each, at most so many."""
        places = self._places(most, chance)
        low, high = self._partners(way, places)
        if way == "other":  # any place outside its own run
            size = len(self._order) - (high - low)
            kept = size > 0
            places, low, high, size = places[kept], low[kept], high[kept], size[kept]
            partner = (high + (chance.random(len(places)) * size).astype(np.int64)) % max(1, len(self._order))
        else:
            kept = high - low > (way == "within")
            places, low, high = places[kept], low[kept], high[kept]
            span = high - low - (way == "within")
            partner = low + (chance.random(len(places)) * span).astype(np.int64)
            if way == "within":
                partner += partner >= places
        return self._order[places], self._order[partner]

    def _places(self, most: int, chance: np.random.Generator) -> Ints:
        size = len(self._order)
        return np.arange(size) if size <= most else chance.integers(0, size, most)

    def _partners(self, way: Way, places: Ints) -> tuple[Ints, Ints]:
        """Where the run of partners starts and ends; for `other` the run to avoid."""
        last = len(self._starts) - 1
        run = self._cluster[places]
        run = run + {"within": 0, "other": 0, "back": -1, "forth": 1}[way]
        inside = (run >= 0) & (run < last)
        run = np.where(inside, run, 0)
        low, high = self._starts[run], self._starts[np.minimum(run + 1, last)]
        return low, np.where(inside, high, low)

    def __iter__(self) -> Iterator[Ints]:
        for start, stop in zip(self._starts[:-1], self._starts[1:], strict=True):
            yield self._order[start:stop]
