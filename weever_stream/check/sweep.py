"""Compiled sweeps for rules with two order predicates: merge sorts that count while they merge.

Rows come sorted by group and by the first order column; the second one, `y`, is then merge-sorted bottom-up within each
group. When two neighbouring runs are merged, every earlier row with a smaller y is seen to be so at once, hence pairs
are counted by the run and never listed. Memory is read and written in sequence. Cost: O(n log n) for n rows, whatever
the number of pairs; totals are exact to 2**63.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from weever_stream.index.arrays import Bytes, Ints

__all__ = ["ABOVE", "BELOW", "count_ascents", "count_partners", "load", "mark_ascents"]

BELOW, ABOVE = 1, 2
"""Marks of a row that is the lower, or the upper, of some pair."""
_BLOCK = 16
"""Rows sorted by insertion before merging starts."""


@njit(cache=True, nogil=True)
def count_ascents(y: Ints, starts: Ints, equal: bool) -> int:
    """Pairs (i, j) within a group, i before j, with y[i] < y[j], or `<=` where `equal`. Sorts y as it goes.

    `starts` are the groups' first places and the length at the end.
    """
    spare = np.empty_like(y)
    pairs = 0
    for group in range(starts.shape[0] - 1):
        low, high = starts[group], starts[group + 1]
        for start in range(low, high, _BLOCK):
            pairs += _insertion(y, start, min(start + _BLOCK, high), equal)
        source, target, width = y, spare, _BLOCK
        while width < high - low:
            for start in range(low, high, 2 * width):
                middle = min(start + width, high)
                pairs += _merge(source, target, start, middle, min(middle + width, high), equal)
            source, target = target, source
            width *= 2
    return pairs


@njit(inline="always")
def _insertion(y, start, stop, equal):
    """Sorts a block and counts its pairs: what an element does not pass on its way down is smaller, or equal."""
    pairs = 0
    for i in range(start + 1, stop):
        value, j = y[i], i - 1
        while j >= start and y[j] > value:
            y[j + 1] = y[j]
            j -= 1
        y[j + 1] = value
        if not equal:
            while j >= start and y[j] == value:
                j -= 1
        pairs += j + 1 - start
    return pairs


@njit(inline="always")
def _merge(source, target, start, middle, stop, equal):
    """Merges two runs; each element of the second counts those of the first that went before it."""
    i, j, pairs = start, middle, 0
    for k in range(start, stop):
        if j == stop or (i < middle and (source[i] < source[j] or (equal and source[i] == source[j]))):
            target[k] = source[i]
            i += 1
        else:
            target[k] = source[j]
            j += 1
            pairs += i - start
    return pairs


@njit(cache=True, nogil=True)
def mark_ascents(x: Ints, y: Ints, starts: Ints, x_equal: bool, y_equal: bool) -> Bytes:
    """Which rows are BELOW (as i) or ABOVE (as j) in any pair (i, j) of a group with x[i] < x[j] and y[i] < y[j].

    `<=` counts in x or y where `x_equal` or `y_equal` says so. Rows are sorted by x; among equal x by y, ascending
    where `x_equal`, else descending. Two scans, no pair looked at.
    """
    marks = np.zeros(x.shape[0], np.uint8)
    for group in range(starts.shape[0] - 1):
        low, high = starts[group], starts[group + 1]
        i = low
        least = np.int64(0)  # the smallest y before the current run of equal x
        while i < high:  # forwards: is there a partner below?
            stop = i + 1
            while stop < high and x[stop] == x[i]:
                stop += 1
            for j in range(i, stop):
                below = i > low and (least < y[j] or (y_equal and least == y[j]))
                alike = y_equal and (j > i or (j + 1 < stop and y[j + 1] == y[j]))
                if below or (x_equal and (y[i] < y[j] or alike)):
                    marks[j] = ABOVE
            smallest = y[i] if x_equal else y[stop - 1]
            if i == low or smallest < least:
                least = smallest
            i = stop
        i = high
        most = np.int64(0)  # the greatest y after the current run of equal x
        while i > low:  # backwards: is there a partner above?
            start = i - 1
            while start > low and x[start - 1] == x[i - 1]:
                start -= 1
            for j in range(start, i):
                above = i < high and (most > y[j] or (y_equal and most == y[j]))
                alike = y_equal and (j < i - 1 or (j > start and y[j - 1] == y[j]))
                if above or (x_equal and (y[i - 1] > y[j] or alike)):
                    marks[j] |= BELOW
            greatest = y[i - 1] if x_equal else y[start]
            if i == high or greatest > most:
                most = greatest
            i = start
    return marks


@njit(cache=True, nogil=True)
def count_partners(y: Ints, starts: Ints, giver: int) -> Ints:
    """For sweeps over two kinds of items: how many partners each item has in its group. Sorts y as it goes.

    An item's lowest bit says its kind; a *giver* is a partner of every *taker* that stands after it and has a greater
    y. The bit also breaks ties of y, so that one comparison serves `<` and `<=`.
    """
    places, spare, spare_places = (
        np.arange(y.shape[0], dtype=np.int32),
        np.empty_like(y),
        np.empty(y.shape[0], np.int32),
    )
    partners = np.zeros(y.shape[0], np.int64)
    for group in range(starts.shape[0] - 1):
        low, high = starts[group], starts[group + 1]
        source, target, at, at_target, width = y, spare, places, spare_places, 1
        while width < high - low:
            for start in range(low, high, 2 * width):
                middle = min(start + width, high)
                _merge_kinds(source, target, at, at_target, start, middle, min(middle + width, high), giver, partners)
            source, target = target, source
            at, at_target = at_target, at
            width *= 2
    return partners


@njit(inline="always")
def _merge_kinds(source, target, at, at_target, start, middle, stop, giver, partners):
    """Merges two runs; givers of the first and takers of the second count each other."""
    takers = 0
    for k in range(middle, stop):
        takers += (source[k] & 1) != giver
    i, j, givers = start, middle, 0
    for k in range(start, stop):
        if j == stop or (i < middle and source[i] < source[j]):
            target[k], at_target[k] = source[i], at[i]
            if (source[i] & 1) == giver:
                givers += 1
                partners[at[i]] += takers
            i += 1
        else:
            target[k], at_target[k] = source[j], at[j]
            if (source[j] & 1) != giver:
                takers -= 1
                partners[at[j]] += givers
            j += 1


def load() -> None:
    """Loads the kernels (or, on the first run, compiles them), so that this is not counted as any rule's time."""
    none, one = np.zeros(0, np.int64), np.zeros(1, np.int64)
    count_ascents(none.copy(), one, False)
    mark_ascents(none, none, one, False, False)
    count_partners(none.copy(), one, 0)
