"""How many violations a rule has, and how many rows are in one, without listing any.

Three ways, the first that fits: by value where both sides are the same rows and columns (`one_side`), row by row with
searches and sweeps (`two_sides`), and by boxes of the LT-tree for three or more order predicates (`boxes`). All are
exact, and none costs more when there are more pairs to count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyroaring import BitMap

from weever_stream.check.one_side import Counted, count_one_side
from weever_stream.check.sides import mask_of, sides_of
from weever_stream.check.two_sides import partners_of_rows

if TYPE_CHECKING:
    from weever_stream.check.exact import ExactCodes
    from weever_stream.check.sides import Sides
    from weever_stream.index.arrays import Ints
    from weever_stream.rules import BoundRule

__all__ = ["Tally", "count_pairs", "count_rule"]


class Tally(NamedTuple):
    """Violations (a symmetric rule's pairs once), the rows that are in any, and which those are where it was asked."""

    violations: int
    rows_involved: int
    left: BitMap | None = None
    right: BitMap | None = None

    @property
    def involved(self) -> BitMap | None:
        """The rows of both sides together, where they were kept."""
        return None if self.left is None or self.right is None else self.left | self.right


def count_rule(rule: BoundRule, codes: ExactCodes, keep: bool = False) -> Tally:
    """Counts the violations of a rule, of one row or of two. With `keep` rows are kept for listing where that helps."""
    if rule.rule.one_row:
        mask = mask_of(codes.table, rule.left_filter)
        rows = codes.table.num_rows if mask is None else int(np.count_nonzero(mask))
        return Tally(rows, rows)
    return count_pairs(sides_of(rule, codes), keep)


def count_pairs(sides: Sides, keep: bool = False) -> Tally:
    """Counts the pairs of a two-row rule."""
    if 0 in sides.sizes:
        return Tally(0, 0)
    found = count_one_side(sides, keep) if sides.same else None
    if found is None:
        found = _by_row(sides)
    violations = found.pairs // 2 if sides.symmetric else found.pairs
    if not keep or found.left is None or found.right is None:
        return Tally(violations, found.rows)
    left = _bitmap(sides.left, found.left)
    return Tally(violations, found.rows, left, left if found.right is found.left else _bitmap(sides.right, found.right))


def _by_row(sides: Sides) -> Counted:
    """Counts the partners of every row."""
    partners = partners_of_rows(sides)
    if partners is None:
        from weever_stream.check.boxes import Boxes

        partners = Boxes(sides).partners()
    left, right = (np.flatnonzero(side) for side in partners)
    rows = len(_bitmap(sides.left, left) | _bitmap(sides.right, right))
    return Counted(int(partners[0].sum()), rows, left, right)


def _bitmap(rows: Ints | None, places: Ints) -> BitMap:
    positions = places if rows is None else rows[places]
    return BitMap(positions.astype(np.uint32).data)
