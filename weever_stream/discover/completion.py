"""From rules that hold on a sample to rules that hold: every pair that could break a candidate is looked at.

A set of predicates is *settled* when the evidence of all pairs that satisfy it has been taken in. A candidate that
contains a settled set is decided for good: a pair that breaks it satisfies the set as well, and was seen. (`settled`
sees more: what several sets decide together.) So the sets to settle are chosen by what they cost and how many
candidates they decide, down to the candidate itself, which no pair satisfies if it holds. What sets cost is estimated
from the random sample; how many pairs satisfy them is counted or listed exactly through the index of `check`: rows that
agree on columns are scanned group by group, anything else is listed from the LT-tree.

A candidate that is broken by more pairs than can be listed is not settled: some of its pairs are taken in, it falls,
and its successors are candidates of the next round. Where all candidates of a round are settled, the rules are exact.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.check.boxes import Boxes
from weever_stream.check.count import count_pairs
from weever_stream.check.keys import order_of, run_starts
from weever_stream.check.sides import mask_of, sides_of
from weever_stream.discover.settled import Settled
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weever_stream.check.sides import Sides
    from weever_stream.discover.evidence import Evidence
    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["Completion"]

_SCAN, _LIST = 8.0, 60.0
"""Nanoseconds for a pair that is scanned in a group, and for one that is listed from the tree."""
_SORT, _SWEEP, _TREE = 80.0, 400.0, 4000.0
"""Nanoseconds for a row to sort it into groups, to count it in a sweep, and to probe the tree with it."""
_INVERSION = 5e8
"""Nanoseconds above which a set is not settled before new evidence has been inverted."""
_THOUGHT = 100_000.0
"""Nanoseconds to see whether settled sets decide a rule together."""
_SOME = 1 << 17
"""Pairs taken in of a candidate that is broken by too many."""
_STEP = 1 << 24
"""Pairs scanned between two looks at the clock."""
_SUBSETS, _MANY = 3, 5000
"""Sets of up to so many predicates are tried, and the whole candidate; of very many candidates only single ones."""


class Completion:
    """The settled sets of one table, and the work that settles more."""

    def __init__(
        self,
        space: Space,
        evidence: Evidence,
        sampled: tuple[NDArray[np.uint8], Ints],
        most_pairs: int,
        chance: np.random.Generator,
        go_on: Callable[[], bool] = lambda: True,
        left: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        """`left` tells the seconds that are left: what takes longer is not begun."""
        self._space, self._evidence, self._chance, self._go_on = space, evidence, chance, go_on
        self._left = left
        self._outcomes, self._weights = np.asfortranarray(sampled[0]), sampled[1]
        self._most_pairs = most_pairs
        self._settled = Settled(space)
        self._costs: dict[tuple[int, ...], float] = {}
        self._taken: list[tuple[int, ...]] = []

    def open(self, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The rules that the settled sets do not decide yet."""
        return rules[self._settled.undecided(rules)]

    def settle(self, rules: NDArray[np.bool_]) -> None:
        """Settles sets until every rule is decided or was seen to be broken, until it is better to invert what was
        seen on the way, or until there is no more time.
        """
        alive, boxes = np.ones(len(rules), np.bool_), self._settled.boxes(rules)
        ways = _ways(rules)
        waiting: list[tuple[float, int, tuple[int, ...]]] = []
        for some, decides in ways.items():
            waiting.append((self._cost(some) / len(decides), len(some), some))
            if not len(waiting) % 256 and not self._go_on():
                return
        heapify(waiting)
        fresh, known = True, self._evidence.distinct
        while waiting and alive.any() and self._go_on() and not self._evidence.full:
            score, size, some = heappop(waiting)
            worth = int(alive[ways[some]].sum())
            if not worth:
                continue
            cost = self._cost(some)
            if cost / worth > score:  # it has lost rules to others since it was put here
                heappush(waiting, (cost / worth, size, some))
                continue
            if cost > 1e9 * self._left():
                continue
            if fresh and cost > _THOUGHT * alive.sum():
                # What do those that were settled since say together?
                alive[alive] = self._settled.undecided(rules[alive])
                fresh = False
                heappush(waiting, (score, size, some))
                continue
            if cost > _INVERSION and self._evidence.distinct > known:
                return  # what was seen since may have broken those that are left: cheaper to invert again
            if self.take(some):
                alive &= self._settled.missed_by_last(boxes)
                fresh = True
            else:  # broken by too many pairs, which decides the rule that this set makes up
                alive[[at for at in ways[some] if rules[at].sum() == size]] = False

    def _cost(self, some: tuple[int, ...]) -> float:
        """Estimated nanoseconds to settle a set. No pair of the sample satisfies a candidate, so it has a cost."""
        if some not in self._costs:
            shares = self._held(some) @ self._weights / max(1, self._weights.sum())
            pairs = shares * self._space.rows * (self._space.rows - 1)
            self._costs[some] = self._work(some, pairs)
            if pairs > self._most_pairs:
                self._costs[some] = np.inf
        return self._costs[some]

    def _held(self, some: tuple[int, ...]) -> NDArray[np.bool_]:
        """Which outcomes of the sample satisfy a set."""
        held = np.ones(len(self._outcomes), np.bool_)
        for at in some:
            op = self._space.ops[at]
            told = np.array([False, op & 1, op & 2, op & 4], np.bool_)
            held &= told[self._outcomes[:, self._space.comparison_of[at]]]
        return held

    def _work(self, some: tuple[int, ...], pairs: float) -> float:
        rows = self._space.rows
        if self._grouped(some):
            return rows * _SORT + pairs / 2 * _SCAN
        ordered = sum(self._space.predicates[at].op.is_order for at in some)
        return rows * (_SWEEP if ordered <= 2 and pairs == 0 else _TREE) + pairs * _LIST

    def _grouped(self, some: tuple[int, ...]) -> bool:
        """Whether it is only about columns that are equal on both rows."""
        return all(
            p.op is Op.EQ and p.rows == {"t", "s"} and p.columns[0].name == p.columns[1].name
            for p in (self._space.predicates[at] for at in some)
        )

    @property
    def taken(self) -> list[tuple[int, ...]]:
        """The sets that have been settled here, in the order in which they were."""
        return list(self._taken)

    def know(self, rules: NDArray[np.bool_]) -> None:
        """Sets that were settled before: the evidence has all that pairs which satisfy them say."""
        for marks in rules:
            self._settled.add(marks)

    def take(self, some: tuple[int, ...]) -> bool:
        """Takes in the evidence of all pairs that satisfy a set: true, or false if they were too many."""
        if self._grouped(some):
            settled = self._scan(some)
        else:
            settled = self._listed(some)
        if settled and not self._evidence.full:
            marks = np.zeros(len(self._space.predicates), np.bool_)
            marks[list(some)] = True
            self._settled.add(marks)
            self._taken.append(some)
        else:
            settled = False
            self._costs[some] = np.inf
        return settled

    def _scan(self, some: tuple[int, ...]) -> bool:
        """All pairs of rows that agree on some columns."""
        bound = self._space.rule(some)
        sides = sides_of(bound, self._space.exact)
        order = order_of(sides.group.left, sides.group.bits)
        starts = run_starts(sides.group.left[order])
        sizes = np.diff(starts)
        pairs = int((sizes * (sizes - 1) // 2).sum())
        rows = order if sides.left is None else sides.left[order]
        shared = np.repeat(sizes > 1, sizes)
        ends = np.repeat(starts[1:], sizes) - np.repeat(np.cumsum(np.where(sizes > 1, 0, 1)), sizes)
        rows, ends = rows[shared], ends[shared]
        if pairs > self._most_pairs:
            self._some_of_groups(rows, ends)
            return False
        codes = np.ascontiguousarray(self._space.codes[:, rows])
        work = np.cumsum(ends - np.arange(len(rows)) - 1)
        first = 0
        while first < len(rows):
            reached = work[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(work, reached + _STEP)))
            self._evidence.add_groups(codes, rows, ends, first, min(last, len(rows)))
            first = last
            if first < len(rows) and not self._go_on():
                return False
        return True

    def _some_of_groups(self, rows: Ints, ends: Ints) -> None:
        places = self._chance.integers(0, len(rows), _SOME)
        room = ends[places] - places - 1
        places, room = places[room > 0], room[room > 0]
        partner = places + 1 + (self._chance.random(len(places)) * room).astype(np.int64)
        self._evidence.add_pairs(rows[places], rows[partner])

    def _listed(self, some: tuple[int, ...]) -> bool:
        bound = self._space.rule(some)
        if bound.rule.one_row:
            return self._on_one_row(mask_of(self._space.exact.table, bound.left_filter))
        sides = sides_of(bound, self._space.exact)
        if 0 in sides.sizes:
            return True
        if len(sides.ordered) <= 2 and len(sides.unequal) <= 3:
            pairs = count_pairs(sides).violations
            if not pairs or pairs > self._most_pairs:
                return not pairs or self._some_of(sides)
        taken = 0
        for left, right in Boxes(sides).pairs(1 << 20):
            self._evidence.add_pairs(left, right)
            taken += len(left)
            if taken > self._most_pairs or not self._go_on():
                return False
        return True

    def _some_of(self, sides: Sides) -> bool:
        """Some of too many pairs: those of rows chosen at random. Never settles anything."""
        boxes, taken = Boxes(sides), 0
        for rows in np.array_split(self._chance.permutation(sides.sizes[0]), max(1, sides.sizes[0] // 256)):
            for left, right in boxes.pairs(_SOME, np.sort(rows)):
                self._evidence.add_pairs(left[:_SOME], right[:_SOME])
                taken += len(left)
                if taken >= _SOME:
                    return False
        return False

    def _on_one_row(self, mask: NDArray[np.bool_] | None) -> bool:
        """A set on one row holds, or every row that satisfies it does so with any other."""
        rows = np.arange(self._space.rows) if mask is None else np.flatnonzero(mask)
        if not len(rows):
            return True
        left = rows[self._chance.integers(0, len(rows), _SOME)]
        right = self._chance.integers(0, self._space.rows - 1, _SOME)
        right += right >= left
        self._evidence.add_pairs(left, right)
        return False


def _ways(rules: NDArray[np.bool_]) -> dict[tuple[int, ...], list[int]]:
    """The sets that could be settled: small subsets of the rules and each whole rule, with the rules they decide."""
    ways: dict[tuple[int, ...], list[int]] = {}
    most = _SUBSETS if len(rules) <= _MANY else 1
    for at, rule in enumerate(rules):
        numbers = tuple(int(number) for number in np.flatnonzero(rule))
        for size in range(1, min(most, len(numbers) - 1) + 1):
            for some in combinations(numbers, size):
                ways.setdefault(some, []).append(at)
        ways.setdefault(numbers, []).append(at)
    return ways
