"""What follows from a set of predicates by the laws of order alone: which sets say the same, more, or nothing.

If a pair satisfies every predicate of a rule, none of the values is null, so they stand in a total order, and what that
order forces is also satisfied: the rule's *closure*. A rule X is implied by a rule Y if Y, or Y with t and s exchanged,
lies in the closure of X: every pair that X denies is denied by Y. A closure that contradicts itself makes the rule
trivial: it can never be violated, on any table.

The closure is exact (van Beek 1992): chains of `<=`, and a strict step wherever two values that must differ lie between
two ends. Where every comparison is of a column with itself, `inversion` has left nothing implied and only the exchange
matters. Cost: the cube of a rule's operands for its closure; the square of the number of rules to compare them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from weever_stream.discover.inversion import bits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space

__all__ = ["closures", "distinct", "exchange", "most_general", "without_implied", "without_implied_in_time"]


_COMPARED = 1 << 25
"""Words of rules that are compared between two looks at the clock."""


def exchange(space: Space, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rules with t and s exchanged."""
    other = np.empty_like(rules)
    other[:, space.exchanged] = rules
    return other


def distinct(space: Space, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """One of each rule and its exchange, the one whose predicates come first; in the order of their size."""
    if not len(rules):
        return rules
    mine, theirs = (np.packbits(some, axis=1) for some in (rules, exchange(space, rules)))
    differs = mine != theirs
    first = differs.argmax(1)
    at = np.arange(len(rules))
    earlier = mine[at, first] >= theirs[at, first]
    kept = np.where(earlier[:, None], mine, theirs)
    names = sorted({row.tobytes() for row in kept}, reverse=True)
    once = np.frombuffer(b"".join(names), np.uint8).reshape(len(names), -1)
    found = np.unpackbits(once, axis=1)[:, : rules.shape[1]].astype(np.bool_)
    return found[np.argsort(found.sum(1), kind="stable")]


def without_implied(space: Space, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rules that are neither trivial nor implied by another one; of rules that say the same the first is kept."""
    return without_implied_in_time(space, rules)[0]


def without_implied_in_time(
    space: Space, rules: NDArray[np.bool_], go_on: Callable[[], bool] = lambda: True
) -> tuple[NDArray[np.bool_], int]:
    """The same for as long as there is time, short rules first; and how many there was no time to look at."""
    rules = distinct(space, rules)
    if all(one.left.name == one.right.name for one in space.comparisons) or not len(rules):
        return rules, 0
    return most_general(space, rules, go_on)


def most_general(
    space: Space, rules: NDArray[np.bool_], go_on: Callable[[], bool] = lambda: True
) -> tuple[NDArray[np.bool_], int]:
    """Of rules that are distinct those that no other implies, by whatever law, and how many were not looked at."""
    asked, step = len(rules), max(1, _COMPARED // max(1, rules.shape[1]))
    closed, sound = np.zeros_like(rules), np.zeros(len(rules), np.bool_)
    for first in range(0, asked, step):
        part = slice(first, first + step)
        closed[part], sound[part] = closures(space, rules[part])
        if first + step < asked and not go_on():
            rules = rules[: first + step]
            break
    left = asked - len(rules)
    closed, sound = closed[: len(rules)], sound[: len(rules)]
    rules, closed = rules[sound], closed[sound]
    mine, theirs, outside = bits_of(rules), bits_of(exchange(space, rules)), ~bits_of(closed)
    kept = np.zeros(len(rules), np.bool_)
    step = max(1, _COMPARED // max(1, mine.size))
    for first in range(0, len(rules), step):
        last = min(len(rules), first + step)
        _not_implied(mine, theirs, outside, first, last, kept)
        if last < len(rules) and not go_on():
            return rules[kept], left + len(rules) - last
    return rules[kept], left


def closures(space: Space, rules: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The predicates of the space that follow from those of each rule; and which rules do not contradict themselves."""
    operands = {operand: 0 for one in space.comparisons for operand in (one.left, one.right)}
    names = {operand: at for at, operand in enumerate(operands)}
    left, right = (
        np.array([names[getattr(one, side)] for one in space.comparisons], np.int64) for side in ("left", "right")
    )
    closed = rules.copy()
    sound = np.ones(len(rules), np.bool_)
    _close(closed, sound, left, right, space.comparison_of, space.ops, len(names))
    return closed, sound


@njit(cache=True, nogil=True)
def _not_implied(mine, theirs, outside, first, last, kept):
    """Marks the rules from first to last that no other rule implies; where two imply each other, the first."""
    rules, words = mine.shape
    for at in range(first, last):
        kept[at] = True
        for other in range(rules):
            if other == at or not _within(mine, theirs, outside, other, at, words):
                continue
            if other < at or not _within(mine, theirs, outside, at, other, words):
                kept[at] = False
                break


@njit(inline="always")
def _within(mine, theirs, outside, one, other, words):
    """Whether a rule, or its exchange, lies in the closure of another."""
    plain, turned = True, True
    for word in range(words):
        plain &= not (mine[one, word] & outside[other, word])
        turned &= not (theirs[one, word] & outside[other, word])
    return plain or turned


@njit(cache=True, nogil=True)
def _close(closed, sound, left, right, comparison_of, ops, operands):
    """Adds to each rule what follows from it, and marks those that contradict themselves.

    `below`, `strictly` and `unlike` say which operands must be at most, below, or different from which others.
    """
    below = np.zeros((operands, operands), np.bool_)
    strictly, unlike = np.zeros_like(below), np.zeros_like(below)
    used = np.zeros(operands, np.int64)
    known = np.zeros(operands, np.bool_)
    for rule in range(closed.shape[0]):
        chosen = np.flatnonzero(closed[rule])
        size = 0
        for number in chosen:
            for operand in (left[comparison_of[number]], right[comparison_of[number]]):
                if not known[operand]:
                    known[operand] = True
                    used[size] = operand
                    size += 1
        mine = used[:size]
        for a in mine:
            for b in mine:
                below[a, b] = a == b
                strictly[a, b] = unlike[a, b] = False
        for number in chosen:
            a, b, op = left[comparison_of[number]], right[comparison_of[number]], ops[number]
            if op != 5:
                below[a, b] |= not op & 4
                below[b, a] |= not op & 1
        for through in mine:
            for a in mine:
                if below[a, through]:
                    for b in mine:
                        below[a, b] |= below[through, b]
        for number in chosen:
            one, other, op = left[comparison_of[number]], right[comparison_of[number]], ops[number]
            if op == 4:
                one, other = other, one
            if op == 1 or op == 4:
                for a in mine:
                    for b in mine:
                        strictly[a, b] |= below[a, one] and below[other, b]
            elif op == 5:
                for a in mine:
                    for b in mine:
                        # what is at most both of two values that differ is below what is at least both of them
                        strictly[a, b] |= below[a, one] and below[a, other] and below[one, b] and below[other, b]
                        alike = below[a, one] and below[one, a] and below[b, other] and below[other, b]
                        unlike[a, b] |= alike
                        unlike[b, a] |= alike
        for a in mine:
            sound[rule] &= not strictly[a, a]
        for number in np.arange(closed.shape[1]):
            one, other = left[comparison_of[number]], right[comparison_of[number]]
            if known[one] and known[other]:
                told = _possible(below, strictly, unlike, one, other)
                closed[rule, number] |= ops[number] & told == told
        for a in mine:
            known[a] = False


@njit(inline="always")
def _possible(below, strictly, unlike, a, b):
    """The outcomes of a comparison that remain possible, as bits of an operator."""
    if strictly[a, b]:
        return 1
    if strictly[b, a]:
        return 4
    outcomes = 7
    if below[a, b]:
        outcomes &= 3
    if below[b, a]:
        outcomes &= 6
    if unlike[a, b]:
        outcomes &= 5
    return outcomes
