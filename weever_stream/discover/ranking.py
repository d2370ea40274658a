"""Which rules are worth a person's time: interestingness, best first, and none that the better ones imply.

*Succinctness* and *coverage* are those of Chu, Ilyas and Papotti (2013): a short rule says more, and a rule that many
pairs come close to breaking, satisfying all but few of its predicates, is tested more. *Surprise* asks whether a rule
holds by accident: how many violations there would be if its predicates had nothing to do with each other. A rule that
should have a thousand and has none is real; one that should have none has not been tested. (A rule that may be broken a
little is measured by how far its violations stay below that.) Order predicates beyond two count against a rule, and so
does a comparison of different columns, the more the fewer values they share: they are where accidents live.

Shares are taken from evidence with its number of pairs: of every pair where those were scanned, else of the random
sample. A sample hardly meets two rows with the same zip, so for keys and dependencies the best of which depend on that,
pairs that agree are counted in the codes of up to 10,000 rows. Cost: linear in (rules) * (distinct evidences), both
bounded, and a sort of those rows for each set of columns that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.discover.logic import exchange
from weever_stream.discover.settled import Settled
from weever_stream.rules import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Comparison, Space
    from weever_stream.index.arrays import Ints

__all__ = ["TESTED", "Interest", "choose", "rank"]

_SHORTEST = 4
"""Symbols of the shortest rule: two rows, a column and an operator."""
_PLENTY = 4.0
"""Orders of magnitude of expected violations that say all."""
TESTED = 0.1
"""The surprise of a rule that would have a violation or two by chance."""
_SUCCINCT, _COVERED, _SURPRISING = 0.4, 0.15, 0.45
_LONG, _ORDER, _LONG_ORDER = 0.04, 0.05, 0.12
"""What each predicate beyond three costs, any order, and each order beyond two."""
_CROSSED, _UNSHARED = 0.12, 0.4
"""What a comparison of different columns costs: numbers of any two, and columns that share no value."""
_EVIDENCES, _WEIGHED, _CLOSELY = 8192, 5000, 400
"""Distinct evidences that stand for all of them, rules that are weighed, and those whose agreeing pairs are counted."""
_ROWS = 10_000
_AT_ONCE = 512
_PASSED_OVER = 2000
"""Rules that are looked at at most for one that the chosen ones do not imply."""


@dataclass(frozen=True)
class Interest:
    """What makes a rule interesting, each from 0 to 1."""

    succinctness: float
    coverage: float
    surprise: float
    score: float


_UNWEIGHED = Interest(0.0, 0.0, 0.0, -1.0)


def rank(
    space: Space, rules: NDArray[np.bool_], outcomes: NDArray[np.uint8], pairs: Ints
) -> tuple[Ints, list[Interest]]:
    """The order of the rules, best first, and the interest of each. Of very many only the shortest are weighed."""
    weigher = _Weigher(space, outcomes, pairs)
    found = [_UNWEIGHED] * len(rules)
    weighed = np.argsort(rules.sum(1), kind="stable")[:_WEIGHED]
    for first in range(0, len(weighed), _AT_ONCE):
        some = weighed[first : first + _AT_ONCE]
        for at, interest in zip(some, weigher.interests(rules[some]), strict=True):
            found[at] = interest
    agreeing = _Agreeing(space)
    # What a rule could score at best decides whether its pairs are worth counting.
    hopeful = sorted(weighed.tolist(), key=lambda at: (_SURPRISING * found[at].surprise - found[at].score, at))
    for at in hopeful[:_CLOSELY]:
        surprise = agreeing.surprise(np.flatnonzero(rules[at]))
        if surprise is not None:
            score = found[at].score + _SURPRISING * (surprise - found[at].surprise)
            found[at] = replace(found[at], surprise=surprise, score=score)
    order = sorted(range(len(found)), key=lambda at: (-found[at].score, int(rules[at].sum()), at))
    return np.array(order, np.int64), found


def choose(
    space: Space,
    rules: NDArray[np.bool_],
    order: Ints,
    top: int | None,
    outcomes: NDArray[np.uint8],
    pairs: Ints,
) -> list[int]:
    """The best rules, without those that better ones imply together or but for pairs that hardly exist.

    Keys and dependencies are left out only for others of their like: an order of numbers that are names, as zips are,
    may end with the next row, and must not take along that zip determines city. With `top` None all, in order.
    """
    if top is None or not len(order):
        return [int(at) for at in order]
    settled, plain, weigher, passed = Settled(space), Settled(space), _Weigher(space, outcomes, pairs), 0
    chosen: list[int] = []
    taken = rules[:0]
    for at in order:
        if len(chosen) == top or passed > _PASSED_OVER:
            break
        ordered = any(space.predicates[number].op.is_order for number in np.flatnonzero(rules[at]))
        told = settled if ordered else plain
        if told.undecided(rules[at : at + 1])[0] and _adds(space, rules[at], taken, weigher):
            chosen.append(int(at))
            settled.add(rules[at])
            if not ordered:
                plain.add(rules[at])
            taken = np.concatenate([taken, rules[at : at + 1], exchange(space, rules[at : at + 1])])
        else:
            passed += 1
    return chosen


def _adds(space: Space, rule: NDArray[np.bool_], taken: NDArray[np.bool_], weigher: _Weigher) -> bool:
    """Whether a rule says something beyond each one of the chosen.

    Where one predicate of the rule is weaker (`t.A >= s.A` for `t.A = s.A`), what it adds is the rule with the rest of
    that predicate (`t.A > s.A`). That is asked of the evidence like any rule; if the whole is tested by it and the rest
    is not, the rule adds nothing that anybody could see.
    """
    rests = []
    mine = {int(space.comparison_of[at]): int(at) for at in np.flatnonzero(rule)}
    for other in taken:
        theirs = np.flatnonzero(other)
        if not all(int(space.comparison_of[at]) in mine for at in theirs):
            continue
        beyond = [at for at in theirs if space.ops[mine[int(space.comparison_of[at])]] & ~space.ops[at]]
        if len(beyond) == 1:
            place = int(space.comparison_of[beyond[0]])
            left = int(space.ops[mine[place]] & ~space.ops[beyond[0]])
            rest = rule.copy()
            rest[mine[place]] = False
            rest[np.flatnonzero((space.comparison_of == place) & (space.ops == left))] = True
            rests.append(rest)
    if not rests:
        return True
    whole, *others = weigher.interests(np.stack([rule, *rests]))
    return whole.surprise < TESTED or all(one.surprise >= TESTED for one in others)


class _Weigher:
    """Evidence, drawn down to a size at which many rules can be weighed by it."""

    def __init__(self, space: Space, outcomes: NDArray[np.uint8], pairs: Ints) -> None:
        outcomes, weights = _drawn(outcomes, pairs)
        self._space = space
        self._satisfied = space.satisfied(outcomes)
        self._counted = self._satisfied.astype(np.float32)
        self._shares = weights / max(1.0, float(weights.sum()))
        self._alone = self._shares @ self._satisfied
        self._unlike = _unlike(space)
        self._total = float(space.rows) * (space.rows - 1)

    def interests(self, rules: NDArray[np.bool_]) -> Iterator[Interest]:
        """The interest of some rules."""
        held = np.ascontiguousarray((self._counted @ rules.T.astype(np.float32)).T.astype(np.int16))
        for rule, mine in zip(rules, held, strict=True):
            yield self._interest(np.flatnonzero(rule), mine)

    def _interest(self, numbers: Ints, held: NDArray[np.int16]) -> Interest:
        """The interest of a rule, of whose predicates each evidence satisfies so many."""
        predicates = [self._space.predicates[at] for at in numbers]
        columns = {column.name for p in predicates for column in p.columns}
        succinctness = min(1.0, _SHORTEST / (2 + len(columns) + len({p.op for p in predicates})))
        close = np.flatnonzero(held >= len(numbers) - 1)
        mine, weights = self._satisfied[np.ix_(close, numbers)], self._shares[close]
        missed = held[close] < len(numbers)
        violating = float(weights[~missed].sum())
        # a pair that satisfies k of n predicates counts (k + 1) / n; one that satisfies all breaks the rule
        nearness = float(self._shares @ held) + 1.0 - violating * (len(numbers) + 1)
        coverage = nearness / len(numbers) / max(1e-12, 1.0 - violating)
        broken = self._total * violating
        surprise = float(broken == 0)
        if len(numbers) > 1:
            # pairs that satisfy all predicates but this one, or this one too
            without = violating + (weights * missed) @ ~mine
            surprise = _surprise(broken, self._total * float((without * self._alone[numbers]).min()))
        score = _SUCCINCT * succinctness + _COVERED * coverage + _SURPRISING * surprise
        orders = sum(p.op.is_order for p in predicates)
        score -= _LONG * max(0, len(numbers) - 3) + _ORDER * bool(orders) + _LONG_ORDER * max(0, orders - 2)
        score -= float(self._unlike[self._space.comparison_of[numbers]].sum())
        return Interest(succinctness, coverage, surprise, score)


def _drawn(outcomes: NDArray[np.uint8], pairs: Ints) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Evidences that stand for all of them, rare ones drawn more often than their pairs and weighed less."""
    if len(outcomes) <= _EVIDENCES:
        return outcomes, pairs.astype(np.float64)
    chances = np.sqrt(pairs)
    chances /= chances.sum()
    drawn = np.random.default_rng(0).choice(len(outcomes), _EVIDENCES, p=chances)
    seen, times = np.unique(drawn, return_counts=True)
    return outcomes[seen], times * pairs[seen] / (_EVIDENCES * chances[seen])


def _unlike(space: Space) -> NDArray[np.float64]:
    """What each comparison costs a rule: nothing within a column."""
    found = np.zeros(len(space.comparisons))
    for at, (one, program) in enumerate(zip(space.comparisons, space.programs, strict=True)):
        if one.left.name != one.right.name:
            ours, theirs = (np.unique(codes[codes >= 0]) for codes in space.codes[program[:2]])
            shared = len(np.intersect1d(ours, theirs, assume_unique=True))
            numbers = one.domain.kind != "string"  # any two columns of numbers may share some
            found[at] = _CROSSED * numbers + _UNSHARED * (1 - shared / max(1, len(ours) + len(theirs) - shared))
    return found


def _surprise(broken: float, expected: float) -> float:
    unlike_chance = max(0.0, 1 - broken / expected) if expected else 0.0
    return min(1.0, float(np.log10(1 + expected)) / _PLENTY) * unlike_chance


class _Agreeing:
    """Pairs of rows that agree in sets of columns, counted in a random part of the rows and scaled to all."""

    def __init__(self, space: Space) -> None:
        self._space = space
        here = space.codes.shape[1]  # of a table in parts a sample
        rows = np.arange(here)
        if here > _ROWS:
            rows = np.sort(np.random.default_rng(0).choice(here, _ROWS, replace=False))
        own = {one.left.name: program[0] for one, program in _own(space)}
        self._codes = {name: space.codes[at, rows].astype(np.int64) for name, at in own.items()}
        self._total = float(space.rows) * (space.rows - 1)
        self._pairs = max(1.0, len(rows) * (len(rows) - 1.0))
        self._known: dict[frozenset[str], float] = {}

    def surprise(self, numbers: Ints) -> float | None:
        """The surprise of a key or dependency; None for another rule."""
        predicates = [self._space.predicates[at] for at in numbers]
        if any(p.columns[0].name != p.columns[1].name or p.op.is_order for p in predicates) or len(predicates) < 2:
            return None
        equal = frozenset(p.columns[0].name for p in predicates if p.op is Op.EQ)
        unlike = frozenset(p.columns[0].name for p in predicates if p.op is Op.NE)
        if len(unlike) > 2 or not equal:
            return None
        expected = [self._share(equal - {name}, unlike) * self._share(frozenset({name})) for name in equal]
        expected += [self._share(equal, unlike - {name}) * self._share(frozenset(), {name}) for name in unlike]
        return _surprise(self._total * self._share(equal, unlike), self._total * min(expected))

    def _share(self, equal: frozenset[str], unlike: frozenset[str] | set[str] = frozenset()) -> float:
        """The share of pairs that agree in some columns and differ in up to two others."""
        if not unlike:
            return self._agree(equal)
        one, *rest = sorted(unlike)
        without = frozenset(rest)
        return max(0.0, self._share(equal, without) - self._share(equal | {one}, without))

    def _agree(self, names: frozenset[str]) -> float:
        if not names:
            return 1.0
        if names not in self._known:
            group = np.zeros(len(next(iter(self._codes.values()))), np.int64)
            for name in sorted(names):
                codes = self._codes[name]
                group = np.where((group < 0) | (codes < 0), -1, group * (int(codes.max(initial=0)) + 1) + codes)
                group = np.unique(group, return_inverse=True)[1] - int((group < 0).any())
            sizes = np.bincount(group[group >= 0]).astype(np.float64)
            self._known[names] = float((sizes * (sizes - 1)).sum()) / self._pairs
        return self._known[names]


def _own(space: Space) -> list[tuple[Comparison, NDArray[np.int32]]]:
    """The comparisons of each column with itself."""
    both = zip(space.comparisons, space.programs, strict=True)
    return [(one, program) for one, program in both if one.left.name == one.right.name]
