"""The pairs of rows that violate a rule, in bounded pieces of row positions.

Listing without a limit hands out every pair, about a million at a time, in time that follows the output. With a limit
it gives the first pairs in the order of the table (by left row, then right) and stops there: nobody enumerates a
billion pairs to show twenty. Pairs of a symmetric rule come once, with the smaller key on the left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.check.keys import order_of, packed
from weever_stream.check.sides import mask_of, sides_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyroaring import BitMap

    from weever_stream.check.count import Tally
    from weever_stream.check.exact import ExactCodes
    from weever_stream.check.rownames import RowNames
    from weever_stream.check.sides import Sides
    from weever_stream.index.arrays import Ints, Rows
    from weever_stream.rules import BoundRule

__all__ = ["Pairs", "list_rule", "rows_of"]

_AT_ONCE = 1 << 20
_FEW = 1 << 12
_FIRST_ROWS = 1 << 10


@dataclass(frozen=True)
class Pairs:
    """Positions of left and right rows, aligned; no right rows for a rule on one row."""

    left: Rows
    right: Rows | None

    def __len__(self) -> int:
        return len(self.left)

    def cut(self, rows: int) -> Iterator[Pairs]:
        """The same in pieces of at most so many."""
        for start in range(0, len(self), rows):
            stop = start + rows
            yield Pairs(self.left[start:stop], None if self.right is None else self.right[start:stop])


def list_rule(
    rule: BoundRule, codes: ExactCodes, names: RowNames, tally: Tally, limit: int | None = None
) -> Iterator[Pairs]:
    """The violations that were counted: all of them, or the first `limit` in table order."""
    if not tally.violations or (limit is not None and limit <= 0):
        return
    if rule.rule.one_row:
        mask = mask_of(codes.table, rule.left_filter)
        rows = np.arange(codes.table.num_rows) if mask is None else np.flatnonzero(mask)
        for start in range(0, len(rows) if limit is None else min(limit, len(rows)), _AT_ONCE):
            yield Pairs(rows[:limit][start : start + _AT_ONCE].astype(np.int32), None)
        return
    sides = sides_of(rule, codes)
    if tally.left is not None and tally.right is not None:
        kept = rows_of(tally.left)
        sides = sides.narrowed(kept, kept if tally.right is tally.left else rows_of(tally.right))
    pieces = _all_pairs(sides) if limit is None else _first_pairs(sides, limit)
    for left, right in pieces:
        yield Pairs(*names.ordered(left, right)) if sides.symmetric else Pairs(left, right)


def rows_of(bitmap: BitMap) -> Ints:
    """The positions in a set of rows, ascending."""
    return np.asarray(bitmap.to_array()).astype(np.int64)


def _all_pairs(sides: Sides) -> Iterator[tuple[Rows, Rows]]:
    from weever_stream.check.boxes import Boxes

    # Left rows that ask in the order of their group and values find the nodes they walk still in the cache.
    keys = packed([sides.group, *(part for _, part in sides.ordered[:1])], sides.sizes)
    yield from Boxes(sides).pairs(_AT_ONCE, order_of(keys.left, keys.bits))


def _first_pairs(sides: Sides, limit: int) -> Iterator[tuple[Rows, Rows]]:
    """Asks for a few left rows, then for more, until enough is found."""
    from weever_stream.check.boxes import Boxes

    boxes = Boxes(sides)
    found: list[tuple[Rows, Rows]] = []
    start, rows, pairs = 0, _FIRST_ROWS, 0
    while start < sides.sizes[0] and pairs < limit:
        some = np.arange(start, min(start + rows, sides.sizes[0]))
        for left, right in boxes.pairs(max(_FEW, limit), some):
            found.append((left, right))
            pairs += len(left)
            if pairs >= limit:
                break
        start, rows = start + rows, rows * 4
    if found:
        left, right = (np.concatenate(side) for side in zip(*found, strict=True))
        order = np.lexsort((right, left))[:limit]
        yield left[order], right[order]
