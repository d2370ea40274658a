"""Columns that meet others, behind and between columns that do not: every comparison reads its own columns."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.learn.truth import assert_exact
from weever_stream.learn import Learner

ROWS = [
    {"id": at, "c": "xyz"[at % 3], "a": at % 4, "k": at // 2, "b": (at + 1) % 4, "d": at % 2 + 90} for at in range(9)
]


@pytest.mark.slow
@pytest.mark.parametrize("small", [3, 1000])
@pytest.mark.parametrize("names", ["cabk", "abck", "kbca", "akcb"])
def test_the_order_of_columns_does_not_matter(names: str, small: int):
    rows = [{name: row[name] for name in ("id", *names)} for row in ROWS]
    learner = Learner(rows[:6], key="id", small=small, shared=0.5, max_predicates=3)
    assert ("a", "b") in {(one.left.name, one.right.name) for one in learner._space.comparisons} or (
        ("b", "a") in {(one.left.name, one.right.name) for one in learner._space.comparisons}
    ), "two columns meet"
    learner._check()
    assert_exact(learner, rows[:6])
    learner.insert(rows[6:])
    learner.delete([0, 3])
    learner._check()
    assert_exact(learner, [row for row in rows if row["id"] not in (0, 3)])


def test_a_column_that_is_compared_in_two_types_is_one_column_to_the_laws_of_order():
    """t.d < s.d and t.d > s.e follow from each other's chains, though d is a number of another scale with e than alone."""
    kinds = {"id": "bigint", "d": "decimal(6,2)", "e": "decimal(10,4)"}
    values = [("1.50", "1.5001"), ("1.00", "1.5001"), ("1.50", "1.5000"), ("-2.00", "1.5000"), (None, "1.0000")]
    rows = [
        {"id": at, "d": d and Decimal(d), "e": e and Decimal(e)} for at, (d, e) in enumerate([*values, ("1.00", None)])
    ]
    learner = Learner(rows[:4], key="id", schema=kinds, shared=0)
    for at in range(4, 7):
        assert_exact(learner, rows[:at])
        learner.insert(rows[at : at + 1])
