"""Which rules are worth a person's time: interestingness, best first, and none that the better ones imply.

*Succinctness* and *coverage* are those of Chu, Ilyas and Papotti (2013): a short rule says more, and a rule that many
pairs come close to breaking, satisfying all but few of its predicates, is tested more. *Surprise* asks whether a rule
holds by accident: how many violations there would be *by chance*, if its predicates had nothing to do with each other.
A rule that should have a thousand and has none is real; one that should have none has not been tested. (A rule that may
be broken a little is measured by how far its violations stay below that.) Order predicates beyond two count against a
rule, and so does a comparison of different columns, the more the fewer values they share: that is where accidents live.

A comparison with a null has no outcome, so a pair says nothing about a predicate for which it lacks a value. Shares are
of the pairs that have the values: a column that is mostly null is judged by the rest.

A rule is *tested* if chance would break it at least `LEAST` times and it is broken at most `MOST` as often as that. For
a rule of one predicate there is no such chance: it is tested if `LEAST` pairs have values for it and few rows break it.

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
from weever_stream.discover.predicates import ACROSS, NOTHING
from weever_stream.discover.settled import Settled
from weever_stream.rules import Op

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Comparison, Space
    from weever_stream.index.arrays import Ints

__all__ = ["LEAST", "MOST", "MOST_ROWS", "Interest", "choose", "is_tested", "rank"]

_SHORTEST = 4
"""Symbols of the shortest rule: two rows, a column and an operator."""
_PLENTY = 4.0
"""Orders of magnitude of expected violations that say all."""
LEAST = 5
"""Violations by chance, or pairs of a rule of one predicate, below which a rule has not been tested."""
MOST, MOST_ROWS = 0.75, 0.1
"""The part of the violations by chance, and of the rows for a rule of one predicate, that a tested rule may have."""
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
    chance: float | None = None
    """Violations by chance, counted as violations are; None for a rule of one predicate."""
    tested: bool = False
    """Whether the rule is tested, as far as the weighed pairs say."""


_UNWEIGHED = Interest(0.0, 0.0, 0.0, -1.0)


def is_tested(violations: float, chance: float) -> bool:
    """Whether a rule of two or more predicates is tested, by the numbers that are shown for it."""
    return chance >= LEAST and violations <= MOST * chance


def rank(
    space: Space, rules: NDArray[np.bool_], outcomes: NDArray[np.uint8], pairs: Ints, rows: int | None = None
) -> tuple[Ints, list[Interest]]:
    """The order of the rules, best first, those that are not tested last, and the interest of each.

    Of very many only the shortest are weighed. `rows` is the size of the table where the space is of a sample.
    """
    rows = space.rows if rows is None else rows
    weigher = _Weigher(space, outcomes, pairs, rows)
    found = [_UNWEIGHED] * len(rules)
    weighed = np.argsort(rules.sum(1), kind="stable")[:_WEIGHED]
    for first in range(0, len(weighed), _AT_ONCE):
        some = weighed[first : first + _AT_ONCE]
        for at, interest in zip(some, weigher.interests(rules[some]), strict=True):
            found[at] = interest
    agreeing = _Agreeing(space, rows)
    # What a rule could score at best decides whether its pairs are worth counting.
    hopeful = sorted(weighed.tolist(), key=lambda at: (_SURPRISING * found[at].surprise - found[at].score, at))
    for at in hopeful[:_CLOSELY]:
        counted = agreeing.chance(np.flatnonzero(rules[at]))
        if counted is not None:
            surprise, tested = _surprise(*counted), is_tested(*counted)
            score = found[at].score + _SURPRISING * (surprise - found[at].surprise)
            found[at] = replace(found[at], surprise=surprise, score=score, chance=counted[1], tested=tested)
    order = sorted(range(len(found)), key=lambda at: (not found[at].tested, -found[at].score, rules[at].sum(), at))
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
    settled, plain, weigher, passed = Settled(space), Settled(space), _Weigher(space, outcomes, pairs, space.rows), 0
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
    return not whole.tested or all(one.tested for one in others)


class _Weigher:
    """Evidence, drawn down to a size at which many rules can be weighed by it."""

    def __init__(self, space: Space, outcomes: NDArray[np.uint8], pairs: Ints, rows: int) -> None:
        outcomes, weights = _drawn(outcomes, pairs)
        self._space, self._rows = space, float(rows)
        self._satisfied = space.satisfied(outcomes)
        self._known = np.ascontiguousarray(outcomes > NOTHING)
        self._counted, self._present = (some.astype(np.float32) for some in (self._satisfied, self._known))
        self._shares = weights / max(1.0, float(weights.sum()))
        known = self._shares @ self._known
        self._alone = self._shares @ self._satisfied / np.maximum(1e-12, known[space.comparison_of])
        self._unlike = _unlike(space)
        self._across = np.array([one.where == ACROSS for one in space.comparisons], np.bool_)

    def interests(self, rules: NDArray[np.bool_]) -> Iterator[Interest]:
        """The interest of some rules."""
        compared = np.zeros((len(rules), len(self._space.comparisons)), np.float32)
        for rule, number in zip(*np.nonzero(rules), strict=True):
            compared[rule, self._space.comparison_of[number]] = 1
        held = _rows_of(self._counted @ rules.T.astype(np.float32))
        present = _rows_of(self._present @ compared.T)
        symmetric = (exchange(self._space, rules) == rules).all(1)
        for rule, mine, known, both in zip(rules, held, present, symmetric, strict=True):
            yield self._interest(np.flatnonzero(rule), mine, known, both)

    def _interest(
        self, numbers: Ints, held: NDArray[np.int16], present: NDArray[np.int16], symmetric: bool
    ) -> Interest:
        """The interest of a rule, of which each evidence satisfies and has values for this many predicates."""
        predicates = [self._space.predicates[at] for at in numbers]
        columns = {column.name for p in predicates for column in p.columns}
        succinctness = min(1.0, _SHORTEST / (2 + len(columns) + len({p.op for p in predicates})))
        close = np.flatnonzero(held >= len(numbers) - 1)
        mine, weights = self._satisfied[np.ix_(close, numbers)], self._shares[close]
        known = self._known[np.ix_(close, self._space.comparison_of[numbers])]
        missed = held[close] < len(numbers)
        violating = float(weights[~missed].sum())
        # Of pairs that have all values, one that satisfies k of n predicates counts (k + 1) / n; if all, it violates.
        whole = present == len(numbers)
        shares = self._shares[whole]
        nearness = float(shares @ held[whole]) + float(shares.sum()) - violating * (len(numbers) + 1)
        coverage = nearness / len(numbers) / max(1e-12, float(shares.sum()) - violating)
        broken, chance = self._unit(numbers, symmetric) * violating, None
        surprise, tested = float(broken == 0), broken == 0
        if len(numbers) == 1 and broken and predicates[0].op is Op.EQ and len(columns) == 1:
            rows = _rows_that_agree(self._space, numbers[0])
            surprise, tested = max(0.0, 1 - rows / MOST_ROWS), rows <= MOST_ROWS
        elif len(numbers) > 1:
            # Pairs that satisfy all predicates but this one, and have values for it, or satisfy this one too.
            without = violating + (weights * missed) @ (known & ~mine)
            chance = self._unit(numbers, symmetric) * float((without * self._alone[numbers]).min())
            surprise, tested = _surprise(broken, chance), is_tested(broken, chance)
        score = _SUCCINCT * succinctness + _COVERED * coverage + _SURPRISING * surprise
        orders = sum(p.op.is_order for p in predicates)
        score -= _LONG * max(0, len(numbers) - 3) + _ORDER * bool(orders) + _LONG_ORDER * max(0, orders - 2)
        score -= float(self._unlike[self._space.comparison_of[numbers]].sum())
        return Interest(succinctness, coverage, surprise, score, chance, tested)

    def _unit(self, numbers: Ints, symmetric: bool) -> float:
        """How many violations a rule has if every pair violates it."""
        if not self._across[self._space.comparison_of[numbers]].any():
            return self._rows
        return self._rows * (self._rows - 1) / (2 if symmetric else 1)


def _rows_that_agree(space: Space, number: int) -> float:
    """The share of rows that agree in a column with another row."""
    codes = space.codes[space.programs[space.comparison_of[number], 0]]
    sizes = np.bincount(codes[codes >= 0])
    return float(sizes[sizes > 1].sum()) / max(1, len(codes))


def _rows_of(counted: NDArray[np.float32]) -> NDArray[np.int16]:
    """Counts for each rule, a row each."""
    return np.ascontiguousarray(counted.T.astype(np.int16))


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

    def __init__(self, space: Space, size: int) -> None:
        self._space = space
        here = space.codes.shape[1]  # of a table in parts a sample
        rows = np.arange(here)
        if here > _ROWS:
            rows = np.sort(np.random.default_rng(0).choice(here, _ROWS, replace=False))
        own = {one.left.name: program[0] for one, program in _own(space)}
        self._codes = {name: space.codes[at, rows].astype(np.int64) for name, at in own.items()}
        self._rows = len(rows)
        self._total = float(size) * (size - 1) / 2
        self._pairs = max(1.0, len(rows) * (len(rows) - 1.0))
        self._counted: dict[tuple[frozenset[str], frozenset[str]], float] = {}

    def chance(self, numbers: Ints) -> tuple[float, float] | None:
        """Violations of a key or dependency, and those that it would have by chance; None for another rule."""
        predicates = [self._space.predicates[at] for at in numbers]
        if any(p.columns[0].name != p.columns[1].name or p.op.is_order for p in predicates) or len(predicates) < 2:
            return None
        equal = frozenset(p.columns[0].name for p in predicates if p.op is Op.EQ)
        unlike = frozenset(p.columns[0].name for p in predicates if p.op is Op.NE)
        if len(unlike) > 2 or not equal:
            return None
        expected = [self._share(equal - {name}, unlike, {name}) * self._alone({name}, set()) for name in equal]
        expected += [self._share(equal, unlike - {name}, {name}) * self._alone(set(), {name}) for name in unlike]
        return self._total * self._share(equal, unlike), self._total * min(expected)

    def _alone(self, equal: AbstractSet[str], unlike: AbstractSet[str]) -> float:
        """The share of pairs that agree, or differ, in one column, of those that have values for it."""
        present = self._share(frozenset(), frozenset(), equal | unlike)
        return self._share(equal, unlike) / present if present else 0.0

    def _share(
        self, equal: AbstractSet[str], unlike: AbstractSet[str], present: AbstractSet[str] = frozenset()
    ) -> float:
        """The share of pairs that agree in some columns, differ in up to two others, and have values for some more."""
        if not unlike:
            return self._agree(frozenset(equal), frozenset(present))
        one, *rest = sorted(unlike)
        # A pair with a null neither agrees nor differs.
        both = self._share(equal, set(rest), present | {one})
        return max(0.0, both - self._share(equal | {one}, set(rest), present))

    def _agree(self, names: frozenset[str], present: frozenset[str]) -> float:
        present -= names
        if (names, present) not in self._counted:
            group = np.zeros(self._rows, np.int64)
            for name in sorted(present):
                group[self._codes[name] < 0] = -1
            for name in sorted(names):
                codes = self._codes[name]
                group = np.where((group < 0) | (codes < 0), -1, group * (int(codes.max(initial=0)) + 1) + codes)
                group = np.unique(group, return_inverse=True)[1] - int((group < 0).any())
            sizes = np.bincount(group[group >= 0]).astype(np.float64)
            self._counted[names, present] = float((sizes * (sizes - 1)).sum()) / self._pairs
        return self._counted[names, present]


def _own(space: Space) -> list[tuple[Comparison, NDArray[np.int32]]]:
    """The comparisons of each column with itself."""
    both = zip(space.comparisons, space.programs, strict=True)
    return [(one, program) for one, program in both if one.left.name == one.right.name]
