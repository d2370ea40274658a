"""The running example of IncDC: tax records, what they teach, and what three more records change (docs/learn.md).

The rules that the paper names hold on rows 0-6. Rows 7-9 break one of them, by the pairs (7, 1) and (8, 3), and bring
its refinements; when they go, everything is as it was.
"""

from __future__ import annotations

import pytest

from tests.discover.test_examples import AMOUNTS, RECORDS, read
from tests.learn.truth import assert_exact, assert_reasons, breaks, implied, space_of_rows
from weever_stream import parse_rule
from weever_stream.learn import Learner

NAMED = [
    "t.ssn = s.ssn and t.name != s.name",
    "t.zip = s.zip and t.st != s.st",
    "t.ssn = s.ssn and t.date < s.date and t.num >= s.num",
    "t.stx = s.stx and t.stx > s.ctx and t.ms != s.ms",
]
ROWS = [{"tid": at, **row} for at, row in enumerate(read(RECORDS, 10).to_pylist())]
BY_KEY = {row["tid"]: row for row in ROWS}
COLUMNS = ["date", "st", "sal", "rate", "txa"]
"""Those of the broken rule and of its refinements."""


def learner_of(columns: list[str], rows: int = 7, **options: int) -> Learner:
    return Learner(ROWS[:rows], key="tid", columns=columns, **options)


def holds(learner: Learner, deny: str) -> bool:
    return implied(space_of_rows(learner, ()), parse_rule(deny), learner.rules)


@pytest.mark.parametrize("deny", NAMED)
@pytest.mark.parametrize("small", [3, 1000])
def test_rules_that_the_new_rows_do_not_break_stay_implied(deny: str, small: int):
    columns = sorted(parse_rule(deny).columns)
    learner = learner_of(columns, small=small)
    assert holds(learner, deny)
    for row in ROWS[7:]:
        learner.insert([row])
        assert holds(learner, deny)
    assert_exact(learner, ROWS)
    learner.delete([7, 8, 9])
    assert holds(learner, deny)
    assert_exact(learner, ROWS[:7])


@pytest.mark.parametrize("small", [3, 1000])
@pytest.mark.parametrize("cross", [False, True])
def test_the_broken_rule_is_replaced_by_its_refinements_and_comes_back(small: int, cross: bool):
    learner = learner_of(COLUMNS, small=small, cross=cross)
    first = {rule.fingerprint: rule.name for rule in learner.rules}
    assert holds(learner, AMOUNTS)
    learned = learner.insert(ROWS[7:])
    assert learned.changes == 3
    assert not holds(learner, AMOUNTS)
    assert holds(learner, AMOUNTS + " and t.st = s.st")
    assert holds(learner, AMOUNTS + " and t.date = s.date")
    before = {row["tid"]: row for row in ROWS[:7]}
    assert_reasons(learner, learned, before, BY_KEY)
    assert_exact(learner, ROWS)
    for change in learned.dropped:
        if breaks(change.rule, BY_KEY[change.left_key[0]], BY_KEY[change.right_key[0]]):
            assert {change.left_key[0], change.right_key[0]} & {7, 8, 9}, "one of the new rows breaks it"
    gone = learner.delete([7, 8, 9])
    assert_reasons(learner, gone, BY_KEY, before)
    assert {rule.fingerprint: rule.name for rule in learner.rules} == first, "everything is as it was"
    assert {one.rule.fingerprint for one in gone.added} == {one.rule.fingerprint for one in learned.dropped}
    assert {one.rule.fingerprint for one in gone.dropped} == {one.rule.fingerprint for one in learned.added}
    assert_exact(learner, ROWS[:7])


@pytest.mark.parametrize(("row", "pair"), [(7, (7, 1)), (8, (8, 3))])
@pytest.mark.parametrize("small", [3, 1000])
def test_the_pair_that_breaks_the_rule_is_the_papers(row: int, pair: tuple[int, int], small: int):
    """Of the three comparisons alone, so that the rule itself is one that is told, or implied by one that is."""
    learner = learner_of(["txa", "sal", "rate"], small=small, cross=False)
    rule = parse_rule(AMOUNTS)
    space = space_of_rows(learner, ())
    saying = [one for one in learner.rules if implied(space, rule, [one])]
    assert saying
    learned = learner.insert([ROWS[row]])
    assert not holds(learner, AMOUNTS)
    broken = {one.rule.fingerprint: one for one in learned.dropped}
    assert {one.fingerprint for one in saying} <= broken.keys(), "all that said it are dropped"
    for one in saying:
        told = broken[one.fingerprint]
        assert breaks(one, BY_KEY[told.left_key[0]], BY_KEY[told.right_key[0]])
        assert told.left_values == {name: BY_KEY[told.left_key[0]][name] for name in told.left_values}
    breaking = [
        (t["tid"], s["tid"])
        for t in [*ROWS[:7], ROWS[row]]
        for s in [*ROWS[:7], ROWS[row]]
        if t is not s and breaks(rule, t, s)
    ]
    assert breaking == [pair]


@pytest.mark.slow
def test_all_columns_of_the_tax_records_at_once():
    learner = Learner(ROWS[:7], key="tid", max_predicates=4)
    first = {rule.fingerprint for rule in learner.rules}
    assert all(holds(learner, deny) for deny in [*NAMED, AMOUNTS])
    learner.insert(ROWS[7:])
    assert [holds(learner, deny) for deny in [*NAMED, AMOUNTS]] == [True] * 4 + [False]
    learner.delete([7, 8, 9])
    assert {rule.fingerprint for rule in learner.rules} == first
