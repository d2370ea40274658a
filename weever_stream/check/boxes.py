"""A rule's right rows in the packed LT-tree, probed by its left rows: counting and listing for any mix of predicates.

Codes are exact here, so what the tree finds needs no second look, and a node whose bounds satisfy every predicate is
counted, or taken, whole. Cost: build O(n log n); a probe visits about log n + sqrt n nodes for two order predicates,
more for each further one, plus the pairs it lists.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.index.arrangement import arrange
from weever_stream.index.hashing import mix_keys
from weever_stream.index.probing import HALF, OTHERS
from weever_stream.index.tree import Entries, Programs, Tree
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.check.sides import Sides
    from weever_stream.index.arrays import Ints, Rows

__all__ = ["Boxes"]


class Boxes:
    """The tree of one rule. `partners` counts, `pairs` lists; neither reports a row with itself."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._keyed = any(op is Op.EQ for op, _ in sides.parts)
        others = [(op, part) for op, part in sides.parts if op is not Op.EQ]
        self._ops: list[Op] = [op for op, _ in others]
        self._left = self._entries(sides.group.left, [part.left for _, part in others], sides.left)
        self._right = self._left
        if not sides.same:
            self._right = self._entries(sides.group.right, [part.right for _, part in others], sides.right)

    def partners(self) -> tuple[Ints, Ints]:
        """How many partners each left and each right row has."""
        left, _ = self._tree.count(self._left, self._program(forward=True))
        if self._sides.symmetric and self._sides.same:
            right = left
        else:
            backward = self._program(forward=False)
            tree = Tree.build(self._left, arrange(self._left, [backward]), keyed=self._keyed)
            right, _ = tree.count(self._right, backward)
        own_left, own_right = self._sides.with_themselves()
        left[own_left] -= 1
        if right is not left:
            right[own_right] -= 1
        return left, right

    def pairs(self, at_once: int, which: Ints | None = None) -> Iterator[tuple[Rows, Rows]]:
        """Pairs as row positions (left, right), about so many at once; of all left rows, or of some of them."""
        queries = self._left if which is None else self._left.take(which)
        for found in self._tree.probe(queries, self._program(forward=True), within=True, limit=at_once):
            yield queries.rows[found.query], found.row

    @cached_property
    def _tree(self) -> Tree:
        return Tree.build(self._right, arrange(self._right, [self._program(forward=True)]), keyed=self._keyed)

    def _program(self, *, forward: bool) -> Programs:
        """The rule as left rows ask it (the stored code is the right operand), or as right rows do."""
        ops = [op.flipped() if forward else op for op in self._ops]
        predicates = np.array([(i, op.value, i) for i, op in enumerate(ops)], np.int64).reshape(-1, 3)
        meets = HALF if self._sides.symmetric else OTHERS
        return Programs(np.array([(0, len(ops), -1, -1, meets)], np.int64), predicates)

    def _entries(self, key: Ints, codes: list[Ints], rows: Ints | None) -> Entries:
        size = len(key)
        return Entries.of(
            mix_keys(np.ascontiguousarray(key).reshape(-1, 1)) if self._keyed else np.empty(0, np.int64),
            np.empty((size, 0), np.int64),
            np.stack(codes, 1) if codes else np.empty((size, 0), np.int64),
            np.empty((size, 0), np.int64),
            np.arange(size, dtype=np.int32) if rows is None else rows.astype(np.int32),
        )
