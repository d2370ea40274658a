"""Counting a rule whose two sides are the same rows and columns: by value, on one sorted array of keys.

The rows' identities are not needed, neither for the number of pairs nor for how many rows are in one: all rows of one
value fare alike. So a rule costs one sort of packed keys, which numpy does in registers, and a few passes; only two
order predicates need a compiled sweep. Pairs are ordered pairs (t, s) of different rows.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weever_stream.check.keys import Part, fits_together, joined, order_of, packed, ranks, reversed_order, run_starts
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.check.keys import Grouping
    from weever_stream.check.sides import Sides
    from weever_stream.index.arrays import Ints

__all__ = ["Counted", "count_one_side"]


class Counted(NamedTuple):
    """Ordered pairs, rows in any pair, and the places of left and of right rows in any, where they were kept."""

    pairs: int
    rows: int
    left: Ints | None = None
    right: Ints | None = None


def count_one_side(sides: Sides, keep: bool = False) -> Counted | None:
    """Counts; None where the mix of predicates needs the rows one by one.

    With `keep` the rows in pairs are told too, where few rows out of many can be expected to be.
    """
    group, unequal, ordered = sides.group, sides.unequal, sides.ordered
    if len(ordered) > 2 or (ordered and unequal) or len(unequal) > 3:
        return None
    if len(ordered) == 2:
        return _two_orders(group, ordered, keep)
    if ordered:
        return _one_order(group, *ordered[0])
    if len(unequal) > 1:
        return _all_differ(group, unequal)
    return _one_differs(group, unequal, keep) if sides.grouping is None else _in_groups(sides.grouping, sides, keep)


def _sorted(keys: Part, keep: bool) -> tuple[Ints, Ints | None]:
    """Keys in rising order, and the places they come from where those are kept."""
    if not keep:
        return np.sort(keys.left), None
    order = order_of(keys.left, keys.bits)
    return keys.left[order], order


def _one_differs(group: Part, unequal: Sequence[Part], keep: bool) -> Counted:
    """Rows of one group, less those that are equal in the column that must differ, or less the row itself."""
    whole, low = joined(group, unequal[0]) if unequal else (group, Part(group.left, group.left, 0))
    ordered, order = _sorted(whole, keep)
    if not unequal and not (ordered[1:] == ordered[:-1]).any():
        return Counted(0, 0)  # a key that holds, the commonest case, needs no arrays of its groups
    starts = run_starts(ordered)
    alike = np.diff(starts)
    groups = run_starts(ordered[starts[:-1]] >> np.int64(low.bits)) if unequal else starts
    sizes = np.add.reduceat(alike, groups[:-1]) if unequal and len(alike) else alike
    mixed = np.diff(groups) > 1 if unequal else sizes > 1
    pairs = int((sizes * sizes).sum()) - int((alike * alike if unequal else alike).sum())
    rows = None if order is None else np.sort(order[np.repeat(mixed, sizes)])
    return Counted(pairs, int(sizes[mixed].sum()), rows, rows)


def _in_groups(grouping: Grouping, sides: Sides, keep: bool) -> Counted:
    """The same with the family's rows sorted already: only groups that hold two values are looked at further."""
    order, starts = grouping
    sizes = np.diff(starts)
    if not sides.unequal or not len(order):
        rows = np.sort(order) if keep else None
        return Counted(int((sizes * (sizes - 1)).sum()), len(order), rows, rows)
    values = sides.unequal[0].left[order]
    changes = np.zeros(len(order), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    changes[starts[:-1]] = False
    if not changes.any():
        return Counted(0, 0)
    mixed = np.bitwise_or.reduceat(changes, starts[:-1])
    if 2 * int(sizes[mixed].sum()) > len(sides.group.left):
        return _one_differs(sides.group, sides.unequal, keep)
    suspects = order[np.repeat(mixed, sizes)]
    group, value = (part.chosen(suspects, suspects) for part in (sides.group, sides.unequal[0]))
    found = _one_differs(group, [value], keep)
    rows = None if found.left is None else np.sort(suspects[found.left])
    return Counted(found.pairs, found.rows, rows, rows)


def _all_differ(group: Part, unequal: Sequence[Part]) -> Counted:
    """Rows of one group that differ in each of several columns, by inclusion and exclusion of the equal ones."""
    whole = packed([group, *unequal], (0, 0))
    order = order_of(whole.left, whole.bits)
    starts = run_starts(whole.left[order])
    sizes, examples = np.diff(starts), order[starts[:-1]]
    columns = [part.left[examples] for part in unequal]
    partners = np.zeros(len(examples), np.int64)
    for size in range(len(columns) + 1):
        for chosen in combinations(columns, size):
            parts = [Part(column, column) for column in (group.left[examples], *chosen)]
            partners += (-1) ** size * _weight_of_equals(packed(parts, (0, 0)).left, sizes)
    return Counted(int((sizes * partners).sum()), int(sizes[partners > 0].sum()))


def _weight_of_equals(keys: Ints, weights: Ints) -> Ints:
    """For each key the weight of all that equal it."""
    rank = ranks(keys)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, rank, weights)
    return sums[rank]


def _one_order(group: Part, op: Op, part: Part) -> Counted:
    """Any two rows of a group are in order one way or the other, and both ways, or neither, where they are equal."""
    whole, low = joined(group, part)
    ordered = np.sort(whole.left)
    starts = run_starts(ordered)
    alike = np.diff(starts)
    groups = run_starts(ordered[starts[:-1]] >> np.int64(low.bits))
    sizes = np.add.reduceat(alike, groups[:-1]) if len(alike) else alike
    both_ways, tied = int((sizes * (sizes - 1)).sum()), int((alike * (alike - 1)).sum())
    if op in (Op.LE, Op.GE):
        return Counted((both_ways + tied) // 2, int(sizes[sizes > 1].sum()))
    return Counted((both_ways - tied) // 2, int(sizes[np.diff(groups) > 1].sum()))


def _two_orders(group: Part, ordered: Sequence[tuple[Op, Part]], keep: bool) -> Counted:
    """A sort by the first column and a counting sweep over the second, turned so that pairs ascend in both."""
    from weever_stream.check.sweep import ABOVE, BELOW, count_ascents, mark_ascents

    (x_op, x), (y_op, y) = ordered
    x, y = (part if op in (Op.LT, Op.LE) else reversed_order(part) for op, part in ordered)
    x_equal, y_equal = x_op in (Op.LE, Op.GE), y_op in (Op.LE, Op.GE)
    # Among equal x, y ascends if those rows are pairs and descends if they are not: then only rows that are equal in
    # both columns are miscounted, and only by `<=`, where each two of them are seen once.
    plain = fits_together(group, x, y)
    prefix, x = joined(group, x)
    whole, y = joined(prefix, y if x_equal else reversed_order(y))
    rows, order = _sorted(whole, keep)
    x_sorted = rows >> np.int64(y.bits)
    y_sorted = rows & np.int64((1 << y.bits) - 1)
    if not x_equal:
        y_sorted = np.int64((1 << y.bits) - 1) - y_sorted
    starts = run_starts(x_sorted >> np.int64(x.bits) if plain else np.sort(group.left))
    marks = mark_ascents(x_sorted, y_sorted, starts, x_equal, y_equal)
    pairs = int(count_ascents(y_sorted, starts, y_equal))
    if y_equal:
        alike = np.diff(run_starts(rows))
        seen_once = int((alike * (alike - 1)).sum()) // 2
        pairs += seen_once if x_equal else -seen_once
    left, right = (None if order is None else np.sort(order[marks & side > 0]) for side in (BELOW, ABOVE))
    return Counted(pairs, int(np.count_nonzero(marks)), left, right)
