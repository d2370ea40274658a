"""Rules that almost hold: minimal sets of predicates that at most a given share of all pairs satisfies.

Dirty tables break the rules they are meant to obey. Sets of predicates are grown level by level; a set that too many
pairs satisfy is grown further, one that few enough satisfy is a rule and is not. Where all pairs were scanned, shares
are exact. Else they are those of a random sample, and each candidate is counted through the index of `check`: what is
returned is within the error for certain, what the sample missed by little may be missing.

Cost: for each set that is grown a pass over the distinct evidences. Levels grow steeply, so four predicates are the
most unless more are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from weever_stream.check.count import count_rule
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import SCANNED, Budget, Outcome, Progress, scan
from weever_stream.discover.inversion import bits_of, members
from weever_stream.discover.logic import distinct, most_general
from weever_stream.discover.sampling import sample_random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["find_approximate"]

_MOST = 4
_SAMPLE = 1 << 21
_AT_ONCE = 1 << 11
"""Sets that are grown between two looks at the clock."""


def find_approximate(
    space: Space,
    error: float,
    error_rows: float | None = None,
    *,
    most: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    tell: Progress = lambda phase, done, total: None,
    scanned: int = SCANNED,
) -> Outcome:
    """The minimal rules that at most a share `error` of all ordered pairs of rows violates.

    With `error_rows` only those of them whose violations involve at most that share of the rows.
    """
    budget, evidence = budget or Budget(None), Evidence(space)
    deepest = min(most or _MOST, len(space.comparisons))
    if space.rows < 2 or not space.predicates:
        nothing = np.zeros((0, len(space.predicates)), np.bool_)
        return Outcome(nothing, evidence, evidence.outcomes(), True, most, 0, complete=True)
    complete = space.rows * (space.rows - 1) // 2 <= scanned and scan(space, evidence, budget, tell)
    if not complete:
        evidence = Evidence(space)
        tell("sampling", 0, 0)
        sample_random(evidence, space.rows, sample or _SAMPLE, np.random.default_rng(seed))
    outcomes, pairs = evidence.outcomes()
    rules, reached = _levels(space, outcomes, pairs, error, deepest, budget, tell)
    rules = most_general(space, distinct(space, rules))
    undecided = 0
    if not complete or error_rows is not None:
        rules, undecided = _within(space, rules, error, error_rows, budget, tell)
    exact = complete and reached == deepest
    limited = reached < deepest
    return Outcome(rules, evidence, (outcomes, pairs), exact, reached, undecided, complete, limited=limited)


def _levels(
    space: Space,
    outcomes: NDArray[np.uint8],
    pairs: Ints,
    error: float,
    deepest: int,
    budget: Budget,
    tell: Progress,
) -> tuple[NDArray[np.bool_], int]:
    """The rules of up to so many predicates, and how many predicates there was time for."""
    size = len(space.predicates)
    held = bits_of(space.satisfied(outcomes))
    allowed = int(error * pairs.sum())
    open_ = bits_of(np.zeros((1, size), np.bool_))
    found: list[NDArray[np.uint64]] = []
    for level in range(1, deepest + 1):
        grown: list[NDArray[np.uint64]] = []
        for first in range(0, len(open_), _AT_ONCE):
            tell(f"growing sets of {level} predicates", first, len(open_))
            kept = np.concatenate(found) if found else open_[:0]
            rules, larger = _grow(open_[first : first + _AT_ONCE], held, pairs, allowed, space.comparison_of, kept)
            found.append(rules)
            grown.append(larger)
            if not budget.go_on():
                return members(np.concatenate(found), size), level - 1
        open_ = np.concatenate(grown) if grown else open_[:0]
    return members(np.concatenate(found), size), deepest


def _within(
    space: Space, rules: NDArray[np.bool_], error: float, error_rows: float | None, budget: Budget, tell: Progress
) -> tuple[NDArray[np.bool_], int]:
    """The candidates whose exact count is within the error, and how many there was no time to count."""
    total = space.rows * (space.rows - 1)
    kept = np.zeros(len(rules), np.bool_)
    for at, rule in enumerate(rules):
        tell("counting candidates", at, len(rules))
        if not budget.go_on():
            return rules[kept], len(rules) - at
        bound = space.rule(np.flatnonzero(rule))
        twice = 2 if bound.rule.symmetric else space.rows - 1 if bound.rule.one_row else 1
        tally = count_rule(bound, space.exact)
        kept[at] = tally.violations * twice <= error * total
        if error_rows is not None:
            kept[at] &= tally.rows_involved <= error_rows * space.rows
    return rules[kept], 0


@njit(cache=True, nogil=True)
def _grow(open_, held, pairs, allowed, comparison_of, known):
    """Adds a predicate to each set: the rules that come out, but none that holds a known one; and the other sets."""
    words, size = open_.shape[1], comparison_of.shape[0]
    rules = np.zeros((open_.shape[0] * size, words), np.uint64)
    larger = np.zeros((open_.shape[0] * size, words), np.uint64)
    found, grown = 0, 0
    weight = np.zeros(size, np.int64)
    taken = np.zeros(size, np.bool_)
    for at in range(open_.shape[0]):
        weight[:] = 0
        for evidence in range(held.shape[0]):
            inside = True
            for w in range(words):
                inside &= open_[at, w] & ~held[evidence, w] == 0
            if inside:
                for p in range(size):
                    if held[evidence, p >> 6] >> np.uint64(p & 63) & np.uint64(1):
                        weight[p] += pairs[evidence]
        last = -1
        taken[:] = False
        for p in range(size):
            if open_[at, p >> 6] >> np.uint64(p & 63) & np.uint64(1):
                last = p
                taken[comparison_of[p]] = True
        for p in range(last + 1, size):
            if taken[comparison_of[p]]:
                continue
            if weight[p] > allowed:
                larger[grown] = open_[at]
                larger[grown, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
                grown += 1
                continue
            rules[found] = open_[at]
            rules[found, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
            minimal = True
            for other in range(known.shape[0]):
                holds = True
                for w in range(words):
                    holds &= known[other, w] & ~rules[found, w] == 0
                if holds:
                    minimal = False
                    break
            if minimal:
                found += 1
            else:
                rules[found] = 0
    return rules[:found].copy(), larger[:grown].copy()
