"""From evidence to rules: all minimal sets of predicates that no evidence satisfies together.

A rule holds on the pairs seen if each of their evidences lacks one of its predicates: the rule *hits* what each of them
lacks. So the minimal rules are minimal hitting sets, and they are searched depth first by adding predicates that hit an
evidence not hit yet (MMCS, Murakami and Uno 2014). Each predicate of a set must be the only one that hits some
evidence, its *critical* ones; where none is left, no larger set is minimal and the search turns back. The same test
serves weaker operators: where the critical evidences of `t.A < s.A` all lack `t.A <= s.A` too, the rule with `<=` also
holds and says more, so that the one with `<` is implied. A set never has two predicates of one comparison.

Sets of evidences are bits, 64 to a word, so that a step costs (predicates chosen) * (evidences / 64) operations. The
search keeps its whole state in arrays and stops after so many steps, for a clock to be looked at and to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["Inversion", "bits_of", "held_bits", "invert", "members"]

_AT_ONCE = 1 << 13
"""Rules that one call of the kernel can bring."""
_LOOKED_AT = 48
"""Evidences among which the one with the fewest ways to hit it is chosen."""


def invert(space: Space, outcomes: NDArray[np.uint8], most: int | None = None) -> NDArray[np.bool_]:
    """The minimal rules of some evidences, a row of predicates each. A rule and its exchange are both found.

    `most` is the largest number of predicates in a rule.
    """
    search = Inversion(space, outcomes)
    search.start(most)
    found = [np.zeros((0, len(space.predicates)), np.bool_)]
    while not search.done:
        found.append(search.step())
    return np.concatenate(found)


class Inversion:
    """The search, and where it stands. Every rule that it finds is minimal, also if it is not gone on with."""

    def __init__(self, space: Space, outcomes: NDArray[np.uint8], deepest: int | None = None) -> None:
        """With `deepest` no search goes on beyond so many predicates: there is no memory for it."""
        self._predicates = len(space.predicates)
        self._deepest = min(len(space.comparisons), deepest or len(space.comparisons))
        self._evidences = len(outcomes)
        words, evidence_words = (max(1, (size + 63) // 64) for size in (self._predicates, self._evidences))
        self._hit = np.zeros((self._predicates, evidence_words), np.uint64)
        self._lacks = np.zeros((self._evidences, words), np.uint64)
        _fill(outcomes, space.comparison_of, space.ops, self._hit, self._lacks)
        self._group = space.comparison_of
        self._weaker_at, self._weaker = _weaker(space)
        self.start(None)

    def start(self, most: int | None, among: NDArray[np.bool_] | None = None) -> None:
        """Begins anew, for rules of at most so many predicates, all of them among those that are marked."""
        depth = self._deepest if most is None else min(most, self._deepest)
        self.most = depth
        """The most predicates that are looked for."""
        self._cut = np.zeros(1, np.bool_)
        evidence_words, words = self._hit.shape[1], self._lacks.shape[1]
        self._chosen = np.zeros(depth + 1, np.int64)
        self._candidates = np.zeros((depth + 1, words), np.uint64)
        self._candidates[0] = bits_of((np.ones(self._predicates, np.bool_) if among is None else among)[None])[0]
        self._todo = np.zeros((depth + 1, words), np.uint64)
        self._open = np.zeros((depth + 1, evidence_words), np.uint64)
        self._open[0] = bits_of(np.ones((1, self._evidences), np.bool_))[0]
        # Zeros cost no memory until they are written: only depths that are reached count.
        self._critical = np.zeros((depth + 1, depth + 1, evidence_words), np.uint64)
        self._entered = np.zeros(depth + 1, np.bool_)
        self._depth = 0
        # Steps between two looks at a clock: a tenth of a second or so.
        self._steps = max(100, int(1e8 / ((1 + min(depth, 8)) * max(8, evidence_words))))

    @property
    def cut(self) -> bool:
        """Whether there may be rules of more predicates than were looked for."""
        return bool(self._cut[0])

    @property
    def done(self) -> bool:
        """Whether every rule has been found."""
        return self._depth < 0

    def step(self) -> NDArray[np.bool_]:
        """Goes on for a while; the rules found on the way."""
        rules = np.zeros((_AT_ONCE, self._lacks.shape[1]), np.uint64)
        self._depth, found = _search(
            self._hit, self._lacks, self._group, self._weaker_at, self._weaker, self._chosen, self._candidates,
            self._todo, self._open, self._critical, self._entered, self._depth, self.most, self._steps, rules,
            self._cut,
        )  # fmt: skip
        return members(rules[:found], self._predicates)


def bits_of(members: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Each row of marks as words of 64 bits, the first mark lowest."""
    rows, size = members.shape
    words = max(1, (size + 63) // 64)
    padded = np.zeros((rows, words * 64), np.bool_)
    padded[:, :size] = members
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64).reshape(rows, words)


def held_bits(space: Space, outcomes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The predicates that hold for some outcomes, a row of words each."""
    lacks = np.zeros((len(outcomes), max(1, (len(space.predicates) + 63) // 64)), np.uint64)
    _fill(outcomes, space.comparison_of, space.ops, np.zeros((0, 0), np.uint64), lacks)
    return ~lacks & bits_of(np.ones((1, len(space.predicates)), np.bool_))


def members(bits: NDArray[np.uint64], size: int) -> NDArray[np.bool_]:
    """The marks that some words of bits stand for."""
    flat = np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=1, bitorder="little")
    return flat[:, :size].view(np.bool_)


def _weaker(space: Space) -> tuple[Ints, Ints]:
    """For each predicate those of its comparison that it implies: where they start, and their numbers."""
    starts: list[int] = [0]
    weaker: list[int] = []
    first = 0
    for one in space.comparisons:
        ops = [op.value for op in one.ops]
        for p, op in enumerate(ops):
            weaker += [first + q for q, other in enumerate(ops) if q != p and op & other == op]
            starts.append(len(weaker))
        first += len(ops)
    return np.array(starts, np.int64), np.array(weaker, np.int64)


@njit(cache=True, nogil=True)
def _fill(outcomes, comparison_of, ops, hit, lacks):
    """Marks which predicates each evidence lacks, and, if there is room for it, which evidences each predicate hits."""
    for evidence in range(outcomes.shape[0]):
        mine = np.uint64(1) << np.uint64(evidence & 63)
        for p in range(comparison_of.shape[0]):
            told = outcomes[evidence, comparison_of[p]]
            if not told or not ops[p] >> (told - 1) & 1:
                lacks[evidence, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
                if hit.shape[0]:
                    hit[p, evidence >> 6] |= mine


@njit(inline="always")
def _lowest(word):
    """The place of the lowest bit of a word that has one."""
    low = word & (~word + np.uint64(1))
    place = 0
    for width in (32, 16, 8, 4, 2, 1):
        if low >> np.uint64(width):
            low >>= np.uint64(width)
            place += width
    return place


@njit(inline="always")
def _ones(word):
    """How many bits are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(inline="always")
def _choose(lacks, open_, candidates):
    """An evidence that is not hit yet and that few candidates can hit; -1 if all are hit."""
    best, fewest, looked = -1, 1 << 30, 0
    for word in range(open_.shape[0]):
        bits = open_[word]
        while bits:
            place = _lowest(bits)
            bits &= bits - np.uint64(1)
            evidence = 64 * word + place
            ways = 0
            for w in range(candidates.shape[0]):
                ways += _ones(lacks[evidence, w] & candidates[w])
            if ways < fewest:
                best, fewest = evidence, ways
            looked += 1
            if fewest == 0 or looked >= _LOOKED_AT:
                return best
    return best


@njit(inline="always")
def _needed(critical, hit, weaker_at, weaker, p):
    """Whether a predicate has critical evidences, and none of the weaker ones hits them all."""
    any_ = False
    for word in range(critical.shape[0]):
        if critical[word]:
            any_ = True
            break
    if not any_:
        return False
    for at in range(weaker_at[p], weaker_at[p + 1]):
        q = weaker[at]
        left = False
        for word in range(critical.shape[0]):
            if critical[word] & ~hit[q, word]:
                left = True
                break
        if not left:
            return False
    return True


@njit(inline="always")
def _fits(v, depth, hit, group, weaker_at, weaker, chosen, open_, critical):
    """Whether a predicate can join those chosen and leave each of them needed; notes the critical evidences."""
    for k in range(depth):
        if group[chosen[k]] == group[v]:
            return False
    words = open_.shape[1]
    for word in range(words):
        critical[depth + 1, depth, word] = open_[depth, word] & hit[v, word]
    if not _needed(critical[depth + 1, depth], hit, weaker_at, weaker, v):
        return False
    for k in range(depth):
        for word in range(words):
            critical[depth + 1, k, word] = critical[depth, k, word] & ~hit[v, word]
        if not _needed(critical[depth + 1, k], hit, weaker_at, weaker, chosen[k]):
            return False
    return True


@njit(cache=True, nogil=True)
def _search(
    hit, lacks, group, weaker_at, weaker, chosen, candidates, todo, open_, critical, entered, depth, most, steps, rules,
    cut,
):  # fmt: skip
    """Goes on from `depth` for so many steps; returns the depth (-1 at the end) and the number of rules found."""
    found, words = 0, candidates.shape[1]
    while depth >= 0 and steps > 0 and found < rules.shape[0]:
        steps -= 1
        if not entered[depth]:
            evidence = _choose(lacks, open_[depth], candidates[depth])
            if evidence < 0:
                for k in range(depth):
                    rules[found, chosen[k] >> 6] |= np.uint64(1) << np.uint64(chosen[k] & 63)
                found += 1
                depth -= 1
                continue
            if depth == most:
                cut[0] = True
                depth -= 1
                continue
            for w in range(words):
                todo[depth, w] = candidates[depth, w] & lacks[evidence, w]
                candidates[depth, w] &= ~todo[depth, w]
            entered[depth] = True
        v = -1
        for w in range(words):
            if todo[depth, w]:
                v = 64 * w + _lowest(todo[depth, w])
                todo[depth, w] &= todo[depth, w] - np.uint64(1)
                break
        if v < 0:
            entered[depth] = False
            depth -= 1
            continue
        if _fits(v, depth, hit, group, weaker_at, weaker, chosen, open_, critical):
            chosen[depth] = v
            for word in range(open_.shape[1]):
                open_[depth + 1, word] = open_[depth, word] & ~hit[v, word]
            for w in range(words):
                candidates[depth + 1, w] = candidates[depth, w]
            candidates[depth, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
            depth += 1
            entered[depth] = False
    return depth, found
