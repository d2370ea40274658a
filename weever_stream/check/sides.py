"""A rule over a table as bare arrays: which rows can stand left and right, and the codes its predicates compare.

A row with a null in a column that its side compares satisfies nothing there and leaves that side; what remains needs no
thought of nulls. `same` says that both sides hold the same rows and read the same columns, which lets counting work on
one sorted array instead of two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.check.exact import operands
from weever_stream.check.keys import Part, packed
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from weever_stream.check.exact import ExactCodes
    from weever_stream.check.keys import Grouping
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.rules import BoundRule, TypedPredicate

__all__ = ["Sides", "compare", "mask_of", "sides_of"]

_COMPARE: dict[Op, Callable[[Ints, Ints], Mask]] = {
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.GE: np.greater_equal,
    Op.GT: np.greater,
}


@dataclass(frozen=True)
class Sides:
    """What a two-row rule compares. `left` and `right` are row positions, ascending; None means every row."""

    rows: int
    left: Ints | None
    right: Ints | None
    group: Part
    """One key for all equalities."""
    parts: tuple[tuple[Op, Part], ...]
    same: bool
    symmetric: bool
    grouping: Grouping | None = None
    """The rows sorted by group, where that was made for several rules."""

    @property
    def sizes(self) -> tuple[int, int]:
        """How many rows each side has."""
        return (
            self.rows if self.left is None else len(self.left),
            self.rows if self.right is None else len(self.right),
        )

    @property
    def unequal(self) -> list[Part]:
        """What must differ."""
        return [part for op, part in self.parts if op is Op.NE]

    @property
    def ordered(self) -> list[tuple[Op, Part]]:
        """What must be in order."""
        return [(op, part) for op, part in self.parts if op.is_order]

    def with_themselves(self) -> tuple[Ints, Ints]:
        """Rows that satisfy the rule together with themselves: their places among the left and the right rows."""
        if self.same and any(not op.value & Op.EQ.value for op, _ in self.parts):
            none = np.empty(0, np.int64)
            return none, none
        if self.left is None and self.right is None:
            own = np.ones(self.rows, np.bool_)
            for op, part in self.parts:
                own &= compare(op, part.left, part.right)
            left = np.flatnonzero(own)
            return left, left
        left, right = self._common()
        for op, part in self.parts:
            kept = compare(op, part.left[left], part.right[right])
            left, right = left[kept], right[kept]
        return left, right

    def narrowed(self, left: Ints, right: Ints) -> Sides:
        """The same rule over fewer rows: positions, ascending, among those of each side."""
        same = self.same and right is left
        ours = left if self.left is None else np.searchsorted(self.left, left)
        theirs = ours if same else right if self.right is None else np.searchsorted(self.right, right)
        parts = tuple((op, part.chosen(ours, theirs)) for op, part in self.parts)
        return replace(
            self, left=left, right=right, group=self.group.chosen(ours, theirs), parts=parts, same=same, grouping=None
        )

    def _common(self) -> tuple[Ints, Ints]:
        """Places of the rows that stand on both sides."""
        left = np.arange(self.rows) if self.left is None else self.left
        right = np.arange(self.rows) if self.right is None else self.right
        _, in_left, in_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        return in_left, in_right


def compare(op: Op, left: Ints, right: Ints) -> Mask:
    """`left op right`, code by code."""
    return _COMPARE[op](left, right)


def mask_of(table: pa.Table, predicates: Sequence[TypedPredicate]) -> Mask | None:
    """The rows that pass predicates on one row; None where there are none to pass."""
    if not predicates:
        return None
    from weever_stream.detect.filters import passes  # compiled code that rules without filters need not load

    return passes(table, predicates)


def sides_of(rule: BoundRule, codes: ExactCodes) -> Sides:
    """The arrays of a two-row rule. Rules that leave out no row share the arrays of the columns they have in common."""
    left, right = mask_of(codes.table, rule.left_filter), mask_of(codes.table, rule.right_filter)
    same = True
    for predicate in rule.pairs:
        ours, theirs = operands(predicate)
        left = _both(left, codes.of(ours, predicate.domain).valid)
        right = _both(right, codes.of(theirs, predicate.domain).valid)
        same &= ours == theirs
    same &= _equal(left, right)
    grouping = codes.grouping(rule.pairs) if same else None
    if grouping is not None and left is not None:
        grouping = grouping.among(left)
    left_rows = codes.candidates(rule.pairs) if same and left is None and grouping is None else None
    left_rows = left_rows if left is None else np.flatnonzero(left)
    right_rows = left_rows if same else None if right is None else np.flatnonzero(right)
    parts = tuple((p.op, codes.part(p).chosen(left_rows, right_rows)) for p in rule.pairs)
    if left_rows is None and right_rows is None:
        group = codes.group(rule.pairs)
    else:
        sizes = tuple(codes.table.num_rows if rows is None else len(rows) for rows in (left_rows, right_rows))
        group = packed([part for op, part in parts if op is Op.EQ], (sizes[0], sizes[1]))
    return Sides(codes.table.num_rows, left_rows, right_rows, group, parts, same, rule.rule.symmetric, grouping)


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _equal(one: Mask | None, other: Mask | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.array_equal(one, other))
