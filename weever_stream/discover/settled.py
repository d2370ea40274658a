"""Sets of predicates all of whose pairs have been seen, and what follows from them for other sets.

A set of predicates is a box: for each comparison the outcomes that satisfy it. A rule whose box lies in the *union* of
settled boxes is decided, since every pair that breaks it was seen. Where no single one holds the whole box, it is split
by the outcomes of a comparison and each half is asked again. So `t.zip <= s.zip and t.state >= s.state and …` needs no
look at the table where `t.zip <= s.zip and t.state > s.state` has been settled and `t.state = s.state and …` too.
A comparison that the rule does not make can be split as well, if no null keeps it from having an outcome.

Cost: a pass over the settled sets for each part of a split box, and a bounded number of parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from weever_stream.discover.predicates import ACROSS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space

__all__ = ["Settled"]

_SOME_OUTCOME, _ANYTHING = 7, 15
"""Outcomes of a comparison that always has one, and of one that may have none."""
_PARTS = 400
"""Parts of a box that are looked at before it is given up as undecided."""


class Settled:
    """The settled sets of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._whole = np.full(len(space.comparisons), _ANYTHING, np.uint8)
        for at, (one, program) in enumerate(zip(space.comparisons, space.programs, strict=True)):
            if one.where == ACROSS and not (space.codes[program[:2]] < 0).any():
                self._whole[at] = _SOME_OUTCOME
        self._boxes = np.zeros((0, len(space.comparisons)), np.uint8)
        self._decided: set[bytes] = set()

    def add(self, marks: NDArray[np.bool_]) -> None:
        """A set of predicates is settled, and with it the same with t and s exchanged."""
        other = np.zeros_like(marks)
        other[self._space.exchanged] = marks
        self._boxes = np.concatenate([self._boxes, self.boxes(np.stack([marks, other]))])

    def boxes(self, rules: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """The rules as boxes, a row each."""
        found = np.tile(self._whole, (len(rules), 1))
        for number in range(rules.shape[1]):
            mine = rules[:, number]
            found[mine, self._space.comparison_of[number]] &= np.uint8(self._space.ops[number])
        return found

    def missed_by_last(self, boxes: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Marks the boxes that do not lie in the set that was added last."""
        one, other = self._boxes[-2:]
        missed: NDArray[np.bool_] = (boxes & ~one).any(1) & (boxes & ~other).any(1)
        return missed

    def undecided(self, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Marks the rules that are not decided."""
        boxes = self.boxes(rules)
        names = [box.tobytes() for box in boxes]
        waiting = np.array([name not in self._decided for name in names], np.bool_)
        decided: NDArray[np.bool_] = _decided(boxes, waiting, self._boxes)
        self._decided.update(names[at] for at in np.flatnonzero(decided))
        return waiting & ~decided


@njit(cache=True, nogil=True)
def _decided(boxes, asked, settled):
    """Marks the boxes, of those asked for, that lie in the union of settled ones."""
    width = boxes.shape[1]
    parts = np.zeros((_PARTS + 2, width), np.uint8)
    found = np.zeros(boxes.shape[0], np.bool_)
    for at in range(boxes.shape[0]):
        if not asked[at]:
            continue
        parts[0] = boxes[at]
        depth, looked, held = 1, 0, True
        while depth and held:
            depth -= 1
            looked += 1
            box = parts[depth].copy()
            best, where = _nearest(box, settled)
            if best < 0 or looked > _PARTS:
                held = False
            elif where >= 0:
                # the part inside the nearest one, which is closer to it, and the part outside
                parts[depth] = box
                parts[depth, where] = box[where] & ~settled[best, where]
                parts[depth + 1] = box
                parts[depth + 1, where] = box[where] & settled[best, where]
                depth += 2
        found[at] = held
    return found


@njit(inline="always")
def _nearest(box, settled):
    """The settled box that overlaps a box and misses it in the fewest comparisons; one of those, or -1 for none.

    A part of a box that holds a null lies in no settled set that makes the comparison: such a set cannot help.
    """
    best, fewest, where = -1, box.shape[0] + 1, -1
    for other in range(settled.shape[0]):
        misses, first = 0, -1
        for at in range(box.shape[0]):
            if not box[at] & settled[other, at]:
                misses = box.shape[0] + 1
                break
            if box[at] & ~settled[other, at]:
                misses += 1
                if first < 0:
                    first = at
                if box[at] & 8:
                    misses = box.shape[0] + 1
                    break
                if misses >= fewest:
                    break
        if misses < fewest:
            best, fewest, where = other, misses, first
            if not misses:
                break
    return best, where
