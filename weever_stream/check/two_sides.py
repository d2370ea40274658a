"""Counting a rule whose sides differ, in columns or in rows: the partners of each row, without listing them.

`!=` is counted by inclusion and exclusion: all pairs, less those that are equal there. What is left are groups with at
most two order predicates: two binary searches a row in sorted keys answer none or one, a merging sweep over the rows of
both sides answers two. A row's pair with itself is taken off at the end. Cost: a few sorts and searches, doubled by
each `!=`; memory of a few arrays of the table's length, whatever the number of pairs.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from weever_stream.check.keys import Part, joined, order_of, packed, reversed_order, run_starts
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.check.sides import Sides
    from weever_stream.index.arrays import Ints

__all__ = ["partners_of_rows"]

Side: TypeAlias = Literal["left", "right"]
"""Where numpy's search stops among equal values."""


def partners_of_rows(sides: Sides) -> tuple[Ints, Ints] | None:
    """How many partners each left and each right row has; None where the predicates are too many to count so."""
    unequal, ordered = sides.unequal, sides.ordered
    if len(unequal) > 3 or len(ordered) > 2:
        return None
    left, right = (np.zeros(size, np.int64) for size in sides.sizes)
    for size in range(len(unequal) + 1):
        for chosen in combinations(unequal, size):
            group = packed([sides.group, *chosen], sides.sizes)
            ours, theirs = _swept(group, ordered) if len(ordered) == 2 else _searched(group, ordered)
            left += (-1) ** size * ours
            right += (-1) ** size * theirs
    own_left, own_right = sides.with_themselves()
    left[own_left] -= 1
    right[own_right] -= 1
    return left, right


def _searched(group: Part, ordered: Sequence[tuple[Op, Part]]) -> tuple[Ints, Ints]:
    """Partners by binary search: those of the group, or of the group below (above) the row's value."""
    if not ordered:
        ours = _between(group.left, group.right, group.bits, 0, "right")
        return ours, _between(group.right, group.left, group.bits, 0, "right")
    op, part = ordered[0]
    if op in (Op.LT, Op.LE):  # turned so that partners of a left row lie below it
        part = reversed_order(part)
    keys, low = joined(group, part)
    side: Side = "left" if op in (Op.LT, Op.GT) else "right"
    ours = _between(keys.left, keys.right, keys.bits, low.bits, side)
    # Mirrored, so that the partners of a right row lie below it too.
    top = np.int64((1 << keys.bits) - 1)
    theirs = _between(top - keys.right, top - keys.left, keys.bits, low.bits, side)
    return ours, theirs


def _between(rows: Ints, others: Ints, whole: int, bits: int, side: Side) -> Ints:
    """For each row how many of the others share its group (all but the lowest bits) and lie below it, or at it."""
    order = order_of(rows, whole)
    ordered, pool = rows[order], np.sort(others)
    start = np.searchsorted(pool, (ordered >> np.int64(bits)) << np.int64(bits), "left")
    stop = np.searchsorted(pool, ordered, side)
    counts = np.empty(len(rows), np.int64)
    counts[order] = stop - start
    return counts


def _swept(group: Part, ordered: Sequence[tuple[Op, Part]]) -> tuple[Ints, Ints]:
    """Partners by one sweep over the rows of both sides, sorted by group and first column."""
    from weever_stream.check.sweep import count_partners

    (x_op, x), (y_op, y) = ordered
    # Turned so that a left row's partners lie below it in both columns: right rows give, left rows take.
    x, y = (reversed_order(part) if op in (Op.LT, Op.LE) else part for op, part in ordered)
    keys, _ = joined(group, x)
    y = packed([y], (0, 0))
    lefts = len(group.left)
    # At equal values the kind decides: what is not allowed to be equal must come too late to be counted.
    taker_first = np.int64(x_op in (Op.LT, Op.GT))
    marks = (1 - taker_first, taker_first)
    sequence = np.concatenate([keys.left << np.int64(1) | marks[0], keys.right << np.int64(1) | marks[1]])
    order = order_of(sequence, keys.bits + 1)
    giver = int(y_op in (Op.LT, Op.GT))
    values = np.concatenate([y.left << np.int64(1) | (1 - giver), y.right << np.int64(1) | giver])[order]
    starts = np.array([0, len(order)])
    if group.bits:
        starts = run_starts(np.concatenate([group.left, group.right])[order])
    partners = np.empty(len(order), np.int64)
    partners[order] = count_partners(values, starts, giver)
    return partners[:lefts], partners[lefts:]
