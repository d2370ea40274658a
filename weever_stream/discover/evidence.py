"""Evidence: what pairs of rows satisfy, as distinct outcomes with the number of pairs that have them.

The evidence of a pair (t, s) is the outcome of every comparison of the space, two bits each, 32 to a word. Few of the
n * (n - 1) pairs differ in it, so a hash table of the distinct ones stays small while the pairs stream through compiled
loops: the outcomes of one row against a block of others are computed column by column, which compiles to vector
instructions, and runs of equal evidence are counted without a look at the table.

Only one of (t, s) and (s, t) is looked at; the other's evidence follows by exchanging outcomes (`Evidence.outcomes`).
The first pair that had an evidence is kept as its witness.
There may be a limit to how many distinct ones are kept: pairs with any further one are then passed over (`full`).
Cost: about a nanosecond for each pair and three comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from weever_stream.discover.predicates import GREATER, LESS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints, Rows

__all__ = ["Evidence", "exchanged_keys", "outcomes_of"]

_HALF = 16
"""Comparisons in 32 bits: the width at which outcomes are computed."""
_BLOCK = 1024
"""Right rows at once: their outcomes stay in the first cache."""
_FIRST_SIZE = 1 << 12
_NO_LIMIT = 1 << 62
_SORTED = 4
"""Words up to which evidences are told in order, so that those alike lie together; beyond it costs too much."""


class Evidence:
    """The distinct evidences seen so far and how many unordered pairs had each."""

    def __init__(self, space: Space, room: int | None = None) -> None:
        self._space = space
        self.room = _NO_LIMIT if room is None else room
        self.full = False
        """Whether an evidence was passed over for want of room."""
        self.words = (len(space.comparisons) + 31) // 32 or 1
        self._keys = np.zeros((_FIRST_SIZE, self.words), np.uint64)
        self._counts = np.zeros(_FIRST_SIZE, np.int64)
        self._firsts = np.zeros((_FIRST_SIZE, 2), np.int32)
        self.distinct = 0
        self.pairs = 0
        """Pairs that were looked at, those seen again included."""

    @property
    def _kept(self) -> tuple[NDArray[np.uint64], Ints, Rows, int, int]:
        return self._keys, self._counts, self._firsts, self.distinct, self.room

    def add_pairs(self, left: Rows | Ints, right: Rows | Ints, codes: NDArray[np.int32] | None = None) -> int:
        """Takes in some pairs of different rows; returns how many distinct evidences were new.

        `codes`, where they are not the space's own, are those of the table as it is now.
        """
        before = self.distinct
        told = self._space.codes if codes is None else codes
        self._took(_take_pairs(told, self._space.programs, left, right, *self._kept))
        self.pairs += len(left)
        return self.distinct - before

    def add_groups(self, codes: NDArray[np.int32], rows: Ints, ends: Ints, first: int, last: int) -> int:
        """Takes in the pairs of places `first` … `last` - 1 of some rows with all later places before `ends[place]`.

        `codes` are the space's with their columns in the order of `rows`, so that rows of a group lie side by side.
        """
        before = self.distinct
        self._took(_take_groups(codes, self._space.programs, rows, ends, first, last, *self._kept))
        self.pairs += int((ends[first:last] - np.arange(first, last) - 1).sum())
        return self.distinct - before

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The distinct evidences as words, a row each: what another machine can take in."""
        return self._keys[self._counts > 0]

    def seen(self) -> tuple[NDArray[np.uint64], Ints, Rows]:
        """The distinct evidences as words, the pairs of each that were looked at, and a pair that has it.

        Evidences that were told by another machine have the pair (-1, -1).
        """
        used = self._counts > 0
        return self._keys[used], self._counts[used], self._firsts[used]

    def add_keys(self, keys: NDArray[np.uint64]) -> int:
        """Takes in evidences of the same space, as `keys` told them elsewhere; returns how many were new."""
        before = self.distinct
        self._took(_take_keys(keys, *self._kept))
        return self.distinct - before

    def _took(self, found: tuple[NDArray[np.uint64], Ints, Rows, int, int]) -> None:
        self._keys, self._counts, self._firsts, self.distinct, missed = found
        self.full |= missed > 0

    def outcomes(self) -> tuple[NDArray[np.uint8], Ints]:
        """The distinct outcomes (a row each, a column for each comparison) of ordered pairs, with the pairs of each."""
        space = self._space
        used = np.flatnonzero(self._counts)
        keys, counts = _both_ways(self._keys, self._counts, used, space.turned, space.flips)
        if self.words <= _SORTED:
            order = np.lexsort(keys.T)
            keys, counts = keys[order], counts[order]
        return _unpacked(keys, len(space.comparisons)), counts


def exchanged_keys(space: Space, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The evidences of the same pairs with t and s exchanged, in the same order."""
    found: NDArray[np.uint64] = _exchanged(keys, space.turned, space.flips)
    return found


def outcomes_of(space: Space, keys: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Evidences given as words as outcomes, a row each and a column for each comparison."""
    found: NDArray[np.uint8] = _unpacked(keys, len(space.comparisons))
    return found


@njit(inline="always")
def _outcome(one, other, ordered):
    """NOTHING where either is null (negative), else LESS, EQUAL or GREATER; LESS for any difference without order."""
    if ordered:
        told = np.uint32(2) + np.uint32(one > other) - np.uint32(one < other)
    else:
        told = np.uint32(2) - np.uint32(one != other)
    return told * np.uint32((one >= 0) & (other >= 0))


@njit(inline="always")
def _mixed(key, words):
    """A hash of an evidence."""
    mixed = np.uint64(0)
    for word in range(words):
        mixed = (mixed ^ key[word]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@njit(inline="always")
def _slot(keys, counts, key, words):
    """Where an evidence stands, or would stand."""
    mask = counts.shape[0] - 1
    at = np.int64(_mixed(key, words) & np.uint64(mask))
    while counts[at]:
        same = True
        for word in range(words):
            same &= keys[at, word] == key[word]
        if same:
            break
        at = (at + 1) & mask
    return at


@njit(cache=True, nogil=True)
def _grown(keys, counts, firsts):
    """The table with four times the room."""
    words = keys.shape[1]
    more_keys = np.zeros((4 * keys.shape[0], words), np.uint64)
    more_counts = np.zeros(4 * counts.shape[0], np.int64)
    more_firsts = np.zeros((4 * counts.shape[0], 2), np.int32)
    for at in range(counts.shape[0]):
        if counts[at]:
            slot = _slot(more_keys, more_counts, keys[at], words)
            more_keys[slot] = keys[at]
            more_counts[slot] = counts[at]
            more_firsts[slot] = firsts[at]
    return more_keys, more_counts, more_firsts


@njit(inline="always")
def _exchange(key, turned, flips, out):
    """Adds to `out` the evidence that a pair has when t and s are exchanged."""
    for at in range(turned.shape[0]):
        told = key[at >> 5] >> np.uint64(2 * (at & 31)) & np.uint64(3)
        if flips[at] and told & np.uint64(1):
            told = np.uint64(LESS + GREATER) - told
        out[turned[at] >> 5] |= told << np.uint64(2 * (turned[at] & 31))


@njit(cache=True, nogil=True)
def _exchanged(keys, turned, flips):
    found = np.zeros_like(keys)
    for i in range(keys.shape[0]):
        _exchange(keys[i], turned, flips, found[i])
    return found


@njit(cache=True, nogil=True)
def _both_ways(keys, counts, used, turned, flips):
    """The evidences of used slots and those with t and s exchanged, without order and each once, with their pairs."""
    words, size = keys.shape[1], 1 << 4
    while size < 4 * used.shape[0]:
        size *= 2
    places = np.full(size, -1, np.int64)
    both = np.empty((2 * used.shape[0], words), np.uint64)
    pairs = np.zeros(2 * used.shape[0], np.int64)
    found = 0
    for i in range(used.shape[0]):
        for way in range(2):
            both[found] = 0
            if way == 0:
                both[found] = keys[used[i]]
            else:
                _exchange(keys[used[i]], turned, flips, both[found])
            slot = np.int64(_mixed(both[found], words) & np.uint64(size - 1))
            while places[slot] >= 0:
                same = True
                for word in range(words):
                    same &= both[places[slot], word] == both[found, word]
                if same:
                    break
                slot = (slot + 1) & (size - 1)
            if places[slot] < 0:
                places[slot] = found
                found += 1
            pairs[places[slot]] += counts[used[i]]
    return both[:found].copy(), pairs[:found].copy()


@njit(cache=True, nogil=True)
def _unpacked(keys, comparisons):
    found = np.empty((keys.shape[0], comparisons), np.uint8)
    for i in range(keys.shape[0]):
        for at in range(comparisons):
            found[i, at] = keys[i, at >> 5] >> np.uint64(2 * (at & 31)) & np.uint64(3)
    return found


@njit(cache=True, nogil=True)
def _take_pairs(codes, programs, left, right, keys, counts, firsts, distinct, room):
    """Evidence of pairs given one by one."""
    words, missed = keys.shape[1], 0
    key = np.zeros(words, np.uint64)
    for pair in range(left.shape[0]):
        t, s = left[pair], right[pair]
        key[:] = 0
        for at in range(programs.shape[0]):
            where = programs[at, 2]
            one = codes[programs[at, 0], s if where == 2 else t]
            other = codes[programs[at, 1], t if where == 1 else s]
            told = np.uint64(_outcome(one, other, programs[at, 3]))
            key[at >> 5] |= told << np.uint64(2 * (at & 31))
        slot = _slot(keys, counts, key, words)
        if not counts[slot]:
            if distinct >= room:
                missed += 1
                continue
            keys[slot] = key
            firsts[slot, 0], firsts[slot, 1] = t, s
            distinct += 1
        counts[slot] += 1
        if 2 * distinct > counts.shape[0]:
            keys, counts, firsts = _grown(keys, counts, firsts)
    return keys, counts, firsts, distinct, missed


@njit(cache=True, nogil=True)
def _take_keys(told, keys, counts, firsts, distinct, room):
    """Evidences given as words."""
    words, missed = keys.shape[1], 0
    for at in range(told.shape[0]):
        slot = _slot(keys, counts, told[at], words)
        if not counts[slot]:
            if distinct >= room:
                missed += 1
                continue
            keys[slot] = told[at]
            firsts[slot] = -1
            distinct += 1
        counts[slot] += 1
        if 2 * distinct > counts.shape[0]:
            keys, counts, firsts = _grown(keys, counts, firsts)
    return keys, counts, firsts, distinct, missed


@njit(inline="always")
def _row_with_block(codes, programs, t, start, stop, block):
    """The outcomes of row t with rows start … stop - 1, 16 comparisons to each row of `block`."""
    size = stop - start
    for half in range(block.shape[0]):
        for i in range(size):
            block[half, i] = 0
    for at in range(programs.shape[0]):
        out = block[at >> 4]
        shift = np.uint32(2 * (at & 15))
        ordered, where = programs[at, 3], programs[at, 2]
        ours, theirs = codes[programs[at, 0]], codes[programs[at, 1]]
        if where == 0:
            one = ours[t]
            if one < 0:
                continue
            if ordered:
                for i in range(size):
                    out[i] |= _outcome(one, theirs[start + i], True) << shift
            else:
                for i in range(size):
                    out[i] |= _outcome(one, theirs[start + i], False) << shift
        elif where == 1:
            told = _outcome(ours[t], theirs[t], ordered) << shift
            for i in range(size):
                out[i] |= told
        else:
            for i in range(size):
                out[i] |= _outcome(ours[start + i], theirs[start + i], ordered) << shift


@njit(cache=True, nogil=True)
def _take_groups(codes, programs, rows, ends, first, last, keys, counts, firsts, distinct, room):
    """Evidence of all pairs within runs of neighbouring rows."""
    words, missed = keys.shape[1], 0
    halves = max(1, (programs.shape[0] + _HALF - 1) // _HALF)
    block = np.zeros((max(2, halves + halves % 2), _BLOCK), np.uint32)
    key = np.zeros(words, np.uint64)
    for t in range(first, last):
        for start in range(t + 1, ends[t], _BLOCK):
            stop = min(start + _BLOCK, ends[t])
            _row_with_block(codes, programs, t, start, stop, block)
            # A block brings no more than its size: with that much room no growth is needed on the way.
            while 2 * (distinct + _BLOCK) > counts.shape[0]:
                keys, counts, firsts = _grown(keys, counts, firsts)
            if halves == 1:
                others = rows[start:stop]
                distinct, passed = _count_narrow(block[0], rows[t], others, keys, counts, firsts, distinct, room)
                missed += passed
            else:
                for i in range(stop - start):
                    for word in range(words):
                        key[word] = np.uint64(block[2 * word, i]) | np.uint64(block[2 * word + 1, i]) << np.uint64(32)
                    slot = _slot(keys, counts, key, words)
                    if not counts[slot]:
                        if distinct >= room:
                            missed += 1
                            continue
                        keys[slot] = key
                        firsts[slot, 0], firsts[slot, 1] = rows[t], rows[start + i]
                        distinct += 1
                    counts[slot] += 1
    return keys, counts, firsts, distinct, missed


@njit(inline="always")
def _count_narrow(told, t, others, keys, counts, firsts, distinct, room):
    """Counts evidences of up to 16 comparisons: one number each, so that no array of words is built and compared."""
    mask, missed = counts.shape[0] - 1, 0
    for i in range(others.shape[0]):
        key = np.uint64(told[i])
        mixed = key * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        at = np.int64(mixed & np.uint64(mask))
        while counts[at] and keys[at, 0] != key:
            at = (at + 1) & mask
        if not counts[at]:
            if distinct >= room:
                missed += 1
                continue
            keys[at, 0] = key
            firsts[at, 0], firsts[at, 1] = t, others[i]
            distinct += 1
        counts[at] += 1
    return distinct, missed
