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
        waiting = np.ones(len(rules), np.bool_)
        if not len(self._boxes):
            return waiting
        for at, box in enumerate(self.boxes(rules)):
            name = box.tobytes()
            if name in self._decided or self._split(box):
                self._decided.add(name)
                waiting[at] = False
        return waiting

    def _split(self, box: NDArray[np.uint8]) -> bool:
        """Whether settled sets hold all parts of a box."""
        parts, looked = [(box, self._boxes)], 0
        while parts:
            box, near = parts.pop()
            looked += 1
            near = near[((near & box) != 0).all(1)]
            missing = (box & ~near) != 0
            misses = missing.sum(1)
            if not len(near) or looked > _PARTS:
                return False
            best = int(misses.argmin())
            if not misses[best]:
                continue
            at = int(missing[best].argmax())
            if box[at] & 8:  # a null there is in no settled set that makes the comparison
                able = np.flatnonzero(~(missing & (box & 8 != 0)[None, :]).any(1))
                if not len(able):
                    return False
                best = int(able[misses[able].argmin()])
                at = int(missing[best].argmax())
            inside, outside = box.copy(), box.copy()
            inside[at] &= near[best, at]
            outside[at] &= ~near[best, at]
            parts += [(inside, near), (outside, near)]
        return True
