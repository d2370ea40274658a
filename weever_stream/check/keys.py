"""Several code columns folded into one int64 key a row.

For all rows: two packed keys are equal if and only if all their parts are, and they order as their parts do, first part
first. Left and right rows are packed together, so that a left key can be compared with a right key. Cost: a shift and
an or per part; a part whose values span too many bits is replaced by its ranks first, which costs one sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.index.arrays import Ints, Mask

__all__ = [
    "Grouping",
    "Part",
    "fits_together",
    "grouping_of",
    "joined",
    "narrowed",
    "order_of",
    "packed",
    "ranks",
    "reversed_order",
    "run_starts",
]

_BITS = 62
"""Room in a key: sign bit unused, one bit left for a kernel's mark."""


@dataclass(frozen=True)
class Part:
    """One compared column as the left rows and as the right rows have it, and the bits its values span from zero.

    `right is left` where both sides are the same column of the same rows; every step keeps that and works once.
    """

    left: Ints
    right: Ints
    bits: int = 64

    @property
    def same(self) -> bool:
        """Whether both sides are one array."""
        return self.right is self.left

    def chosen(self, left: Ints | None, right: Ints | None) -> Part:
        """The part of some left and right rows; None chooses all."""
        if left is None and right is None:
            return self
        ours = self.left if left is None else self.left[left]
        shared = self.same and left is right
        return Part(ours, ours if shared else self.right if right is None else self.right[right], self.bits)

    def each(self, left: Ints, right: Ints | None, bits: int) -> Part:
        """A part of the same shape: one array for both sides where this one has one."""
        return Part(left, left if right is None else right, bits)


class Grouping(NamedTuple):
    """Rows that share their group with others, by group, and where each group starts (their number at the end)."""

    order: Ints
    starts: Ints

    def among(self, kept: Mask) -> Grouping:
        """The same for some of the rows, known by their places among those."""
        if not len(self.order):
            return self
        sizes, mine = np.diff(self.starts), kept[self.order]
        counts = np.add.reduceat(mine.astype(np.int64), self.starts[:-1])
        shared = counts > 1
        order = self.order[mine & np.repeat(shared, sizes)]
        places = np.cumsum(kept) - 1
        return Grouping(places[order], np.concatenate([[0], np.cumsum(counts[shared])]))


def grouping_of(group: Part) -> Grouping:
    """The left rows sorted by group."""
    order = order_of(group.left, group.bits)
    starts = run_starts(group.left[order])
    sizes = np.diff(starts)
    shared = sizes > 1
    if not shared.all():  # rows of their own group can be in no pair
        order = order[np.repeat(shared, sizes)]
        starts = np.concatenate([[0], np.cumsum(sizes[shared])])
    return Grouping(order, starts)


def packed(parts: Sequence[Part], rows: tuple[int, int]) -> Part:
    """One part that stands for all, first part first. Without parts all `rows` (left, right) get key 0."""
    if not parts:
        left = np.zeros(rows[0], np.int64)
        return Part(left, left if rows[0] == rows[1] else np.zeros(rows[1], np.int64), 0)
    whole = narrowed(parts[0])
    for part in parts[1:]:
        whole, _ = joined(whole, part)
    return whole


def joined(high: Part, low: Part) -> tuple[Part, Part]:
    """Two parts in one, and the second as it went in: the whole's lowest `bits` are exactly its values."""
    high, low = narrowed(high), narrowed(low)
    if high.bits + low.bits > _BITS:
        high = _ranked(high)
    if high.bits + low.bits > _BITS:
        low = _ranked(low)
    shift = np.int64(low.bits)
    left = (high.left << shift) | low.left
    right = None if high.same and low.same else (high.right << shift) | low.right
    return high.each(left, right, high.bits + low.bits), low


def fits_together(*parts: Part) -> bool:
    """Whether the parts can be joined one after the other without any of them being ranked on the way."""
    return sum(narrowed(part).bits for part in parts) <= _BITS


def reversed_order(part: Part) -> Part:
    """The same values in the opposite order."""
    part = narrowed(part)
    top = np.int64((1 << part.bits) - 1)
    return part.each(top - part.left, None if part.same else top - part.right, part.bits)


def narrowed(part: Part) -> Part:
    """Values moved down to start at zero, or their ranks where they span too much."""
    if part.bits <= _BITS:
        return part
    sides = [side for side in ((part.left,) if part.same else (part.left, part.right)) if len(side)]
    if not sides:
        return part.each(part.left, None if part.same else part.right, 0)
    low, high = min(int(side.min()) for side in sides), max(int(side.max()) for side in sides)
    bits = (high - low).bit_length()
    if bits > _BITS:
        return _ranked(part)
    if low >= 0 and high.bit_length() <= bits + 1:
        return part.each(part.left, None if part.same else part.right, high.bit_length())
    base = np.int64(low)
    return part.each(part.left - base, None if part.same else part.right - base, bits)


def _ranked(part: Part) -> Part:
    if part.same:
        rank = ranks(part.left, part.bits)
        return part.each(rank, None, _width(rank))
    rank = ranks(np.concatenate([part.left, part.right]), part.bits)
    return part.each(rank[: len(part.left)], rank[len(part.left) :], _width(rank))


def _width(rank: Ints) -> int:
    return int(rank.max()).bit_length() if len(rank) else 0


def order_of(values: Ints, bits: int = 64) -> Ints:
    """The places of the values in rising order; fast where they lie in [0, 2**bits) and leave room for a place."""
    room = len(values).bit_length()
    if bits + room > 63:
        return np.argsort(values)
    both = values << np.int64(room)
    both |= np.arange(len(values))
    both.sort()  # numpy sorts whole numbers in registers, and that several times faster than it sorts their places
    both &= np.int64((1 << room) - 1)
    return both


def ranks(values: Ints, bits: int = 64) -> Ints:
    """The rank of each value among the distinct ones: 0, 1, 2, …"""
    order = order_of(values, bits)
    ordered = values[order]
    rank = np.zeros(len(values), np.int64)
    if len(values):
        rank[order[1:]] = np.cumsum(ordered[1:] != ordered[:-1])
    return rank


def run_starts(ordered: Ints) -> Ints:
    """Where runs of equal values start in a sorted array, and its length at the end."""
    if not len(ordered):
        return np.zeros(1, np.int64)
    changes = np.flatnonzero(ordered[1:] != ordered[:-1])
    starts = np.empty(len(changes) + 2, np.int64)
    starts[0], starts[1:-1], starts[-1] = 0, changes + 1, len(ordered)
    return starts
