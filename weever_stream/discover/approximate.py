"""Rules that almost hold: minimal sets of predicates that few pairs of rows, or pairs of few rows, satisfy.

Dirty tables break the rules they are meant to obey. There are two measures of that, of which either or both can be
limited (`Within`): the share of all ordered pairs of rows that violate a rule, and the share of the rows that are in a
violation. Both only fall as predicates are added. So sets are grown level by level: one that is beyond a limit is grown
further, one that is within is a rule and is not.

Pairs are counted from evidence where all were scanned. Rows are counted through the index of `check`, but only where
the pairs leave it open: v pairs involve at most 2v rows, and r rows have no more than r(r - 1) pairs. Of a large table
there is a random sample of pairs. A set that so many of them satisfy that its true share cannot be within the limit is
grown without a look at the table; every other one is counted exactly, and what was counted decides. A set that is
within the limit is mistaken for one beyond it with a chance below 1e-12 (Bernstein).

Cost: for each set that is grown a pass over the distinct evidences. Levels grow steeply, so four predicates are the
most unless more are asked for.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from weever_stream.check.count import count_rule
from weever_stream.discover.hydra import SCANNED, Budget, Outcome, Progress, evidence_within, scan
from weever_stream.discover.inversion import held_bits
from weever_stream.discover.logic import distinct, most_general
from weever_stream.discover.predicates import ACROSS
from weever_stream.discover.sampling import sample_random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.evidence import Evidence
    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["Within", "beyond_chance", "find_approximate"]

_MOST = 4
_SAMPLE = 1 << 21
_WORK = 1 << 27
"""Evidences times predicates that are looked at between two looks at the clock."""
_CHANCE = 1e-12
"""That a set within the limit has more pairs of the sample than `beyond_chance` tells."""
_RULE, _COUNT, _GROW = 0, 1, 2
"""What a set is: within the limits, to be counted, beyond them."""


class Within:
    """The limits of a table: ordered pairs and rows that may be in a violation. None: as many as there are."""

    def __init__(self, space: Space, pairs_share: float | None, rows_share: float | None) -> None:
        self._space = space
        self.total = space.rows * (space.rows - 1)
        # 0.29 of 100 rows are 29, whatever the product of doubles is.
        self.pairs = self.total if pairs_share is None else int(pairs_share * self.total + 1e-6)
        self.rows = space.rows if rows_share is None else int(rows_share * space.rows + 1e-6)

    @property
    def most_pairs(self) -> int:
        """Pairs that a set within both limits has at most: so many rows have no more."""
        if self.rows == self._space.rows:
            return self.pairs
        # A rule on one row is violated by pairs of that row with any other, which does not count as involved.
        on_one_row = any(one.where != ACROSS for one in self._space.comparisons)
        partners = self._space.rows - 1 if on_one_row else self.rows - 1
        return min(self.pairs, self.rows * max(0, partners))

    @property
    def sure_pairs(self) -> int:
        """Pairs up to which a set is within both limits, whichever rows they are of."""
        return self.pairs if self.rows == self._space.rows else min(self.pairs, self.rows // 2)

    def holds(self, numbers: Ints) -> bool:
        """Counts a set exactly."""
        bound = self._space.rule(numbers)
        tally = count_rule(bound, self._space.exact)
        twice = 2 if bound.rule.symmetric else self._space.rows - 1 if bound.rule.one_row else 1
        return tally.violations * twice <= self.pairs and tally.rows_involved <= self.rows


def beyond_chance(share: float, drawn: int) -> float:
    """Of `drawn` random pairs, how many can satisfy a set that a share of all pairs satisfies, but for ill luck."""
    mean, doubt = share * drawn, log(1 / _CHANCE)
    return mean + doubt / 3 + sqrt(doubt * doubt / 9 + 2 * mean * doubt)


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
    """The minimal rules that at most a share `error` of all ordered pairs of rows violates, 0 for no such limit.

    With `error_rows`, whose violations involve at most that share of the rows.
    """
    budget = budget or Budget(None)
    deepest = min(most or _MOST, len(space.comparisons))
    evidence = evidence_within(space, budget)
    if space.rows < 2 or not space.predicates:
        nothing = np.zeros((0, len(space.predicates)), np.bool_)
        return Outcome(nothing, evidence, evidence.outcomes(), True, most, 0, complete=True)
    within = Within(space, error if error or error_rows is None else None, error_rows)
    complete = space.rows * (space.rows - 1) // 2 <= scanned and scan(space, evidence, budget.share(0.3), tell)
    beyond, sure = within.most_pairs, within.sure_pairs
    if not complete:
        tell("sampling", 0, 0)
        evidence, drawn = _sampled(space, sample or _SAMPLE, seed, budget)
        # Each drawn pair counts both ways round.
        beyond, sure = int(2 * beyond_chance(within.most_pairs / within.total, drawn)), -1
    outcomes, pairs = evidence.outcomes()
    growth = _Growth(space, within, outcomes, pairs, beyond, sure, complete)
    reached, left = growth.grow(deepest, budget, tell)
    rules, unseen = most_general(space, distinct(space, growth.rules()), budget.go_on)
    exact = complete and reached == deepest and not left and not unseen
    limited = reached < deepest or bool(unseen)
    return Outcome(rules, evidence, (outcomes, pairs), exact, reached, left, complete, limited=limited)


def _sampled(space: Space, pairs: int, seed: int, budget: Budget) -> tuple[Evidence, int]:
    """Evidence of random pairs, and how many were drawn: fewer where there is no time or room for them."""
    evidence, chance = evidence_within(space, budget), np.random.default_rng(seed)
    drawing, drawn = budget.share(0.2), 0
    step = max(1 << 10, (1 << 24) // max(1, len(space.comparisons)))
    while drawn < pairs and (not drawn or drawing.go_on()):
        # Pairs that find no room would be missing from the shares: never draw more than surely fit.
        size = min(step, pairs - drawn, evidence.room - evidence.distinct)
        if size <= 0:
            break
        sample_random(evidence, space.rows, size, chance)
        drawn += size
    return evidence, drawn


class _Growth:
    """The sets of each level, and the rules among them. Sets are rows of the numbers of their predicates, ascending."""

    def __init__(
        self,
        space: Space,
        within: Within,
        outcomes: NDArray[np.uint8],
        pairs: Ints,
        beyond: int,
        sure: int,
        complete: bool,
    ) -> None:
        self._space, self._within, self._pairs = space, within, pairs
        self._held = held_bits(space, outcomes)
        self._beyond, self._sure, self._complete = beyond, sure, complete
        self._found: list[Ints] = []
        self._known = np.full((64, 1), -1, np.int32)
        self._size = 0
        self._strength = np.array([int(op).bit_count() for op in space.ops], np.int64)
        self._counted: dict[tuple[int, ...], bool] = {}

    def rules(self) -> NDArray[np.bool_]:
        """What was found."""
        marks = np.zeros((len(self._found), len(self._space.predicates)), np.bool_)
        for at, numbers in enumerate(self._found):
            marks[at, numbers] = True
        return marks

    def grow(self, deepest: int, budget: Budget, tell: Progress) -> tuple[int, int]:
        """Grows sets; up to how many predicates there was time and room, and how many sets were not counted."""
        size = len(self._space.predicates)
        open_ = np.zeros((1, 0), np.int32)
        # Sets of the next level are held as numbers; a level that does not fit is the end.
        for level in range(1, deepest + 1):
            room = budget.memory // 8 // (4 * level)
            step = max(1, _WORK // max(1, len(self._held) * size))
            grown: list[NDArray[np.int32]] = []
            kept = 0
            for first in range(0, len(open_), step):
                tell(f"growing sets of {level} predicates", first, len(open_))
                sets, kinds = self._grown(open_[first : first + step], level == deepest)
                more, left = self._decided(sets, kinds, budget, tell)
                grown.append(more)
                kept += len(more)
                if left or (first + step < len(open_) and (not budget.go_on() or kept > room)):
                    return level - 1, left
            open_ = np.concatenate(grown) if grown else open_[:0]
            if not len(open_):
                return deepest, 0
        return deepest, 0

    def _grown(self, open_: NDArray[np.int32], last: bool) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The sets with one predicate more that no known rule implies, and what the evidence says of them."""
        known, limits = self._known[: self._size], (self._beyond, self._sure)
        blocked = _blocked(open_, known, *self._places(), self._space.comparison_of, self._space.ops)
        sets, kinds = _grow(open_, blocked, self._held, self._pairs, *limits, self._complete, last)
        return sets, kinds

    def _places(self) -> tuple[Ints, Ints]:
        """The known rules by each of their first two predicates: where those of a predicate start, and which they are.

        A set that implies all but one predicate of a rule implies one of its first two. Rules of one come last.
        """
        size = len(self._space.predicates)
        firsts = self._known[: self._size, :2].astype(np.int64)
        single = np.flatnonzero((firsts[:, 1:] < 0).all(1))
        rules = np.repeat(np.arange(self._size), firsts.shape[1])
        at = firsts.ravel()
        at[(at < 0) | np.isin(rules, single)] = size + 1
        at, rules = np.concatenate([at, np.full(len(single), size)]), np.concatenate([rules, single])
        order = np.argsort(at, kind="stable")
        return np.searchsorted(at[order], np.arange(size + 2)), rules[order]

    def _decided(
        self, sets: NDArray[np.int32], kinds: NDArray[np.uint8], budget: Budget, tell: Progress
    ) -> tuple[NDArray[np.int32], int]:
        """Keeps the rules; returns the sets that are beyond, and how many there was no time to count."""
        grown = [sets[kinds == _GROW]]
        asked = np.flatnonzero(kinds != _GROW)
        # A weaker operator first: where `<=` is within, `<` need not be counted.
        asked = asked[np.argsort(-self._strength[sets[asked]].sum(1), kind="stable")]
        before = self._size
        for at, one in enumerate(asked):
            numbers = sets[one].astype(np.int64)
            if _implied(numbers, self._known[before : self._size], self._space.comparison_of, self._space.ops):
                continue
            if kinds[one] == _COUNT:
                if not budget.go_on():
                    return np.concatenate(grown), len(asked) - at
                tell("counting candidates", at, len(asked))
                if not self._holds(numbers):
                    grown.append(sets[one][None])
                    continue
            self._found.append(numbers)
            self._know(numbers)
            self._know(np.sort(self._space.exchanged[numbers]))
        return np.concatenate(grown), 0

    def _know(self, numbers: Ints) -> None:
        """Remembers a rule, for what it implies."""
        rows, width = self._known.shape
        if self._size == rows or len(numbers) > width:
            more = np.full((2 * rows, max(width, len(numbers))), -1, np.int32)
            more[: self._size, :width] = self._known[: self._size]
            self._known = more
        self._known[self._size, : len(numbers)] = numbers
        self._size += 1

    def _holds(self, numbers: Ints) -> bool:
        """Counts a set, or remembers what was counted of it or of its exchange."""
        other = np.sort(self._space.exchanged[numbers])
        name = min(tuple(numbers.tolist()), tuple(other.tolist()))
        if name not in self._counted:
            self._counted[name] = self._within.holds(numbers)
        return self._counted[name]


@njit(cache=True, nogil=True)
def _implied(numbers, known, comparison_of, ops):
    """Whether a known rule makes the comparisons of a set and no others, with the same operators or weaker ones."""
    found = False
    for rule in range(known.shape[0]):
        found |= _missing(numbers, known[rule], comparison_of, ops) == -1
    return found


@njit(inline="always")
def _missing(numbers, rule, comparison_of, ops):
    """The one predicate of a rule that a set does not imply: -1 if it implies them all, -2 if there are more."""
    missing = -1
    for k in range(rule.shape[0]):
        if rule[k] < 0:
            break
        implied = False
        for q in numbers:
            implied |= comparison_of[q] == comparison_of[rule[k]] and ops[q] & ~ops[rule[k]] == 0
        if not implied:
            if missing >= 0:
                return -2
            missing = rule[k]
    return missing


@njit(cache=True, nogil=True)
def _blocked(open_, known, starts, rules, comparison_of, ops):
    """Marks for each set the predicates that it need not be grown by: with them it says only what a known rule says."""
    size = comparison_of.shape[0]
    blocked = np.zeros((open_.shape[0], size), np.bool_)
    for at in range(open_.shape[0]):
        for member in range(open_.shape[1] + 1):
            for p in range(size + 1):
                if member == open_.shape[1]:
                    if p < size:
                        continue
                elif p == size or comparison_of[p] != comparison_of[open_[at, member]]:
                    continue
                else:
                    blocked[at, p] = True
                    if ops[open_[at, member]] & ~ops[p]:
                        continue
                for place in range(starts[p], starts[p + 1]):
                    missing = _missing(open_[at], known[rules[place]], comparison_of, ops)
                    if missing >= 0:
                        for q in range(size):
                            blocked[at, q] |= comparison_of[q] == comparison_of[missing] and ops[q] & ~ops[missing] == 0
    return blocked


@njit(cache=True, nogil=True)
def _grow(open_, blocked, held, pairs, beyond, sure, complete, last):
    """Adds each later predicate to each set: the sets that come out, and what they are. The `last` are not to grow."""
    level, size, words = open_.shape[1], blocked.shape[1], held.shape[1]
    room, found = 1 << 10, 0
    sets = np.empty((room, level + 1), np.int32)
    kinds = np.empty(room, np.uint8)
    weight = np.zeros(size, np.int64)
    mine = np.zeros(words, np.uint64)
    for at in range(open_.shape[0]):
        weight[:] = 0
        mine[:] = 0
        whole, first = 0, 0
        for k in range(level):
            p = open_[at, k]
            mine[p >> 6] |= np.uint64(1) << np.uint64(p & 63)
            first = p + 1
        for evidence in range(held.shape[0]):
            inside = True
            for w in range(words):
                if mine[w] & ~held[evidence, w]:
                    inside = False
                    break
            if inside:
                whole += pairs[evidence]
                for p in range(first, size):
                    if held[evidence, p >> 6] >> np.uint64(p & 63) & np.uint64(1):
                        weight[p] += pairs[evidence]
        for p in range(first, size):
            if blocked[at, p]:
                continue
            kind = _RULE if weight[p] <= sure else _COUNT if weight[p] <= beyond else _GROW
            # A predicate that all pairs of a set satisfy adds nothing to it, now or later.
            if kind == _GROW and (last or (complete and level and weight[p] == whole)):
                continue
            if found == room:
                room *= 2
                more, also = np.empty((room, level + 1), np.int32), np.empty(room, np.uint8)
                more[:found], also[:found] = sets, kinds
                sets, kinds = more, also
            sets[found, :level] = open_[at]
            sets[found, level] = p
            kinds[found] = kind
            found += 1
    return sets[:found].copy(), kinds[:found].copy()
