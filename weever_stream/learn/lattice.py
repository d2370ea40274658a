"""Rules as boxes, and how they follow evidence: refined where a pair breaks them, brought back where none is left.

A rule's box has for each comparison the outcomes that satisfy it, as bits; a comparison that it does not make allows
anything. A pair breaks the rule if each of its outcomes lies in the box. A rule is more general than another whose box
lies in its own. The rules of a set of evidences are the most general boxes in which none of them lies.

`refined` (IncDC; Berge's step for hitting sets): a new evidence breaks the boxes that it lies in. Each is replaced by
the largest boxes in it that the evidence misses, smaller in one comparison, unless a rule that still stands is more
general. No two of the new ones are comparable, so nothing else is looked at. `returned`: when an evidence goes, the
rules that it forbade are those of the rest whose predicates it all satisfies: a small part of the search.

Cost: refining looks at every rule for each evidence, and at those broken in earnest.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from weever_stream.discover.inversion import Inversion

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space

    Boxes = NDArray[np.uint8]

__all__ = ["ANYTHING", "Lattice"]

ANYTHING = 15
"""A comparison that is not made."""
_PATIENCE = 0.05
_BITS = np.array([8, 1, 2, 4], np.uint8)
"""The bit of each outcome."""
_ORDERED, _UNORDERED = (1, 2, 3, 4, 5, 6), (2, 5)


class Lattice:
    """The boxes of one space."""

    def __init__(self, space: Space, most: int | None) -> None:
        self._space = space
        self.most = len(space.comparisons) if most is None else most
        self.patience = _PATIENCE
        """Seconds that it may take to look for rules which come back, before it is quicker to find all anew."""
        self._ordered = np.array([one.ordered for one in space.comparisons], np.int64)
        first = np.searchsorted(space.comparison_of, np.arange(len(space.comparisons)))
        self._number = np.full((len(space.comparisons), 16), -1, np.int64)
        for at, one in enumerate(space.comparisons):
            for place, op in enumerate(one.ops):
                self._number[at, op.value] = first[at] + place

    def boxes(self, rules: NDArray[np.bool_]) -> Boxes:
        """Rules given by their predicates as boxes."""
        found = np.full((len(rules), len(self._space.comparisons)), ANYTHING, np.uint8)
        at, number = np.nonzero(rules)
        found[at, self._space.comparison_of[number]] = self._space.ops[number].astype(np.uint8)
        return found

    def rules(self, boxes: Boxes) -> NDArray[np.bool_]:
        """Boxes as rules by their predicates."""
        found = np.zeros((len(boxes), len(self._space.predicates)), np.bool_)
        at, comparison = np.nonzero(boxes != ANYTHING)
        found[at, self._number[comparison, boxes[at, comparison]]] = True
        return found

    def bits(self, outcomes: NDArray[np.uint8]) -> Boxes:
        """Outcomes as boxes of one outcome each."""
        return _BITS[outcomes]

    def broken(self, boxes: Boxes, outcomes: NDArray[np.uint8]) -> NDArray[np.int64]:
        """For each box the first evidence that lies in it, or -1."""
        found: NDArray[np.int64] = _first_inside(boxes, self.bits(outcomes))
        return found

    def refined(self, boxes: Boxes, outcomes: NDArray[np.uint8]) -> Boxes:
        """The rules of the evidence so far and some more, from those of the evidence so far."""
        found: Boxes = _refined(boxes, self.bits(outcomes), self._ordered, self.most, _FINER)
        return found

    def inverted(self, outcomes: NDArray[np.uint8]) -> Boxes:
        """The rules of some evidences, found anew."""
        began = monotonic()
        search = Inversion(self._space, outcomes)
        search.start(self.most)
        found = self._searched(search)
        self.patience = max(_PATIENCE, 2 * (monotonic() - began))
        return found

    def returned(
        self, lost: NDArray[np.uint8], outcomes: NDArray[np.uint8], go_on: Callable[[], bool] = lambda: True
    ) -> Boxes | None:
        """The rules of some evidences that evidences which are no more would break; None if it is not gone on with."""
        search, among = Inversion(self._space, outcomes), self._space.satisfied(lost)
        found = [np.zeros((0, len(self._space.comparisons)), np.uint8)]
        for held in among:
            if not go_on():
                return None
            search.start(self.most, held)
            found.append(self._searched(search))
        return np.unique(np.concatenate(found), axis=0)

    def _searched(self, search: Inversion) -> Boxes:
        found = [np.zeros((0, len(self._space.predicates)), np.bool_)]
        while not search.done:
            found.append(search.step())
        return self.boxes(np.concatenate(found))

    def without_less_general(self, boxes: Boxes, others: Boxes) -> Boxes:
        """The boxes that lie in none of some others."""
        kept: NDArray[np.bool_] = _outside(boxes, others)
        return boxes[kept]


def _finer() -> NDArray[np.uint8]:
    """For (ordered, outcomes allowed, bit of an outcome) the largest operators within that the outcome misses."""
    finer = np.zeros((2, 16, 9, 3), np.uint8)
    for ordered, ops in enumerate((_UNORDERED, _ORDERED)):
        for allowed in (*ops, ANYTHING):
            for bit in (1, 2, 4, 8):
                inside = [op for op in ops if op & ~allowed == 0 and not op & bit]
                largest = [op for op in inside if not any(op != other and op & ~other == 0 for other in inside)]
                finer[ordered, allowed, bit, : len(largest)] = largest
    return finer


_FINER = _finer()


@njit(cache=True, nogil=True)
def _inside(one, other):
    """Whether a box lies in another."""
    at = 0
    while at < one.shape[0] and not one[at] & ~other[at]:
        at += 1
    return at == one.shape[0]


@njit(cache=True, nogil=True)
def _first_inside(boxes, evidences):
    found = np.full(boxes.shape[0], -1, np.int64)
    for at in range(boxes.shape[0]):
        for evidence in range(evidences.shape[0]):
            if _inside(evidences[evidence], boxes[at]):
                found[at] = evidence
                break
    return found


@njit(cache=True, nogil=True)
def _outside(boxes, others):
    kept = np.ones(boxes.shape[0], np.bool_)
    for at in range(boxes.shape[0]):
        for other in range(others.shape[0]):
            if _inside(boxes[at], others[other]):
                kept[at] = False
                break
    return kept


@njit(cache=True, nogil=True)
def _refined(boxes, evidences, ordered, most, finer):
    comparisons = boxes.shape[1]
    rules = np.empty((max(16, 2 * boxes.shape[0]), comparisons), np.uint8)
    size = boxes.shape[0]
    rules[:size] = boxes
    for evidence in range(evidences.shape[0]):
        bits = evidences[evidence]
        # Those that stand come first, those that are broken behind them.
        standing = 0
        for at in range(size):
            if not _inside(bits, rules[at]):
                if at != standing:
                    for c in range(comparisons):
                        rules[at, c], rules[standing, c] = rules[standing, c], rules[at, c]
                standing += 1
        broken = rules[standing:size].copy()
        size = standing
        for at in range(broken.shape[0]):
            made = 0
            for c in range(comparisons):
                made += broken[at, c] != ANYTHING
            for c in range(comparisons):
                if broken[at, c] == ANYTHING and made == most:
                    continue
                for op in finer[ordered[c], broken[at, c], bits[c]]:
                    if not op:
                        break
                    if size == rules.shape[0]:
                        more = np.empty((2 * size, comparisons), np.uint8)
                        more[:size] = rules
                        rules = more
                    rules[size] = broken[at]
                    rules[size, c] = op
                    implied = False
                    for other in range(standing):
                        # Only a rule that this evidence misses here can be more general.
                        if not rules[other, c] & bits[c] and _inside(rules[size], rules[other]):
                            implied = True
                            break
                    if not implied:
                        size += 1
    return rules[:size].copy()
