"""What a learner must say: the rules that discovery and brute force find in its table, and reasons that are real.

assert_exact(learner, rows)             the rules are those of `discover` on the rows, compared pair by pair
assert_brute(learner, rows)             and those of all subsets of predicates, for spaces of a dozen
assert_reasons(learned, before, after)  the pairs that are told for rules that come and go
assert_counts(learner)                  each evidence is counted as often as its pairs are listed
assert_watched(learner)                 no pair can break a rule without satisfying a set that is watched
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tests.discover.brute import Brute
from tests.oracle import compare, satisfies
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import find_rules
from weever_stream.discover.logic import closures, exchange
from weever_stream.discover.predicates import Space, space_over
from weever_stream.learn import Learned, Learner
from weever_stream.rules import Rule

Row = Mapping[str, Any]

__all__ = [
    "assert_brute",
    "assert_counts",
    "assert_exact",
    "assert_reasons",
    "assert_watched",
    "breaks",
    "implied",
    "marks_of",
    "space_of_rows",
]


def space_of_rows(learner: Learner, rows: Iterable[Row]) -> Space:
    """The learner's comparisons over other rows."""
    schema = pa.schema([field for field in learner._schema if field.name != "_row"])
    table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
    return space_over(table, learner._space.comparisons)


def marks_of(space: Space, rules: Iterable[Rule]) -> np.ndarray:
    """Rules as rows of the predicates that they have."""
    rules = list(rules)
    marks = np.zeros((len(rules), len(space.predicates)), np.bool_)
    for at, rule in enumerate(rules):
        for p in rule.predicates:
            known = space.number.get((p.left, p.op, p.right))
            if known is None:
                known = space.number[p.right, p.op.flipped(), p.left]  # type: ignore[index]
            marks[at, known] = True
    return marks


def implied(space: Space, rule: Rule, by: Iterable[Rule]) -> bool:
    """Whether one of some rules lies in the closure of a rule, one way round or the other."""
    closed, _ = closures(space, marks_of(space, [rule]))
    others = marks_of(space, by)
    both = np.concatenate([others, exchange(space, others)])
    return bool((~(both & ~closed[0]).any(1)).any())


def breaks(rule: Rule, t: Row, s: Row) -> bool:
    """Whether a pair of rows satisfies every predicate of a rule."""
    rows = {"t": t, "s": s}
    return all(
        satisfies(rows[p.left.row][p.left.name], p.op, rows[p.right.row][p.right.name])  # type: ignore[union-attr]
        for p in rule.predicates
    )


def assert_exact(learner: Learner, rows: Iterable[Row], **how: int) -> None:
    space = space_of_rows(learner, rows)
    outcome = find_rules(space, most=learner.max_predicates, **how)
    assert outcome.exact
    expected = {space.rule(np.flatnonzero(rule)).rule.fingerprint for rule in outcome.rules}
    found = [rule.fingerprint for rule in learner.rules]
    assert len(set(found)) == len(found), "no rule is told twice"
    assert set(found) == expected, "the rules are those of the table"
    names = [rule.name for rule in learner.rules]
    assert len(set(names)) == len(names), "each rule has a name of its own"


def assert_brute(learner: Learner, rows: Iterable[Row]) -> None:
    space = space_of_rows(learner, rows)
    brute = Brute(space, space.exact.table)
    sets = [sum(1 << int(at) for at in np.flatnonzero(rule)) for rule in marks_of(space, learner.rules)]
    assert {brute.canonical(some) for some in sets} == brute.rules(), "the rules are those of brute force"


def assert_reasons(learner: Learner, learned: Learned, before: Mapping[Any, Row], after: Mapping[Any, Row]) -> None:
    """The pair of a rule that went breaks it, or broke the more general one that came in its place.

    The pair of a rule that came broke it before, or breaks one that went and said more.
    """
    space, few = space_of_rows(learner, ()), len(before) < 2 or len(after) < 2
    added, dropped = [one.rule for one in learned.added], [one.rule for one in learned.dropped]
    for change, came in [*((one, True) for one in learned.added), *((one, False) for one in learned.dropped)]:
        if change.left_key is None or change.right_key is None:
            assert few, "with two rows there is a reason"
            assert change.left_values is None
            assert change.right_values is None
            continue
        left, right = (key if len(key) > 1 else key[0] for key in (change.left_key, change.right_key))
        assert left != right, "a row never pairs with itself"
        told = change.left_values, change.right_values
        old = left in before and right in before and _agree(told, before[left], before[right])
        new = left in after and right in after and _agree(told, after[left], after[right])
        assert old or new, "the pair is one of the table"
        rule = change.rule
        if came:
            broke = old and breaks(rule, before[left], before[right])
            refines = new and any(
                _break_either_way(other, after[left], after[right]) and implied(space, rule, [other])
                for other in dropped
            )
            assert broke or refines or few, "the pair broke the rule, or breaks one that said more"
        else:
            broken = new and breaks(rule, after[left], after[right])
            gave_way = old and any(
                _break_either_way(other, before[left], before[right]) and implied(space, rule, [other])
                for other in added
            )
            assert broken or gave_way, "the pair breaks the rule, or broke the one that came in its place"


def _break_either_way(rule: Rule, t: Row, s: Row) -> bool:
    return breaks(rule, t, s) or breaks(rule, s, t)


def _agree(told: tuple[Any, Any], left: Row, right: Row) -> bool:
    return all(_same(some[name], row[name]) for some, row in zip(told, (left, right), strict=True) for name in some)


def _same(told: Any, value: Any) -> bool:
    if told is None or value is None:
        return told is value
    if isinstance(value, datetime) and isinstance(told, str):
        return told.startswith(value.isoformat())  # nanoseconds, which Python has not
    return compare(told, value) == 0


def assert_counts(learner: Learner) -> None:
    """The ledger counts every pair of a watched set, once for each way round that the set lists it."""
    keeper = learner._keeper
    alive, space = keeper.alive, keeper.space
    expected: Counter[bytes] = Counter()
    one, other = np.triu_indices(len(alive), 1)
    for left, right in zip(alive[one].tolist(), alive[other].tolist(), strict=True):
        ways = []
        for pair in ((left, right), (right, left)):
            evidence = Evidence(space)
            evidence.add_pairs(*(np.array([at], np.int32) for at in pair), keeper.codes.T)
            ways.append(evidence.keys)
        name, _, owner = keeper.ledger.standing(ways[0])[0]
        if owner >= 0:
            numbers = keeper.sets[owner]
            listed = [keeper.ledger._inside(way)[0, owner] for way in ways]
            symmetric = {*numbers} == {int(space.exchanged[at]) for at in numbers}
            expected[name] += 1 if symmetric else sum(listed)
    assert keeper.ledger.counts == expected, "counts are those of the pairs"


def assert_watched(learner: Learner) -> None:
    """Every rule's pairs, with all that follows from them, lie in the union of the watched sets."""
    keeper = learner._keeper
    closed, _ = closures(keeper.laws, keeper.lattice.rules(keeper.told()))
    unsafe = keeper._settled().undecided(closed)
    assert not unsafe.any(), "every rule is watched"
