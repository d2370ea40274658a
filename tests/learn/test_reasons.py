"""The pairs that are told with rules that come and go: they are pairs of the table, and they are why.

Catches: a pair that is told for a rule that it never broke, such as where a rule is refined with t and s exchanged, or
follows from the broken one only by the laws of order; the pair of a dead row's successor; a rule without a reason.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.learn.shapes import SHAPES
from tests.learn.truth import assert_reasons, breaks
from weever_stream.learn import Learner

MEETING = [name for name in SHAPES if "meet" in name]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [*MEETING, "number and float", "days and times"])
@pytest.mark.parametrize("small", [3, 1000])
def test_reasons_are_real(shape: str, small: int):
    draw = random.Random(small)
    columns, options = SHAPES[shape].columns, SHAPES[shape].options

    def row(at: int) -> dict[str, Any]:
        return {"id": at, "name": "", **{name: draw.choice(values) for name, (_, values) in columns.items()}}

    rows = {at: row(at) for at in range(4)}
    learner = Learner(
        list(rows.values()),
        key="id",
        schema=SHAPES[shape].schema,
        columns=list(columns),
        small=small,
        max_predicates=3,
        **options,
    )
    for at in range(4, 24):
        before = dict(rows)
        if at % 4 == 3:
            gone = draw.sample(sorted(rows), len(rows) // 2)
            rows = {key: value for key, value in rows.items() if key not in gone}
            learned = learner.delete(gone)
        else:
            rows[at] = row(at)
            learned = learner.insert([rows[at]])
        assert_reasons(learner, learned, before, rows)


def test_a_broken_rule_comes_with_the_pair_that_breaks_it_and_its_refinements_too():
    rows = [{"id": at, "zip": f"z{at // 2}", "city": f"c{at // 2}", "day": at % 2} for at in range(6)]
    wrong = {"id": 9, "zip": "z0", "city": "c7", "day": 5}
    learner = Learner(rows, key="id", cross=False)
    learned = learner.insert([wrong])
    (broken,) = [one for one in learned.dropped if one.words == "zip determines city"]
    assert {broken.left_key, broken.right_key} <= {(9,), (0,), (1,)}
    assert {broken.left_values["zip"], broken.right_values["zip"]} == {"z0"}
    assert {broken.left_values["city"], broken.right_values["city"]} == {"c0", "c7"}
    back = learner.delete([9])
    assert {one.rule.fingerprint for one in back.added} == {one.rule.fingerprint for one in learned.dropped}
    assert {one.rule.name for one in back.added} == {one.rule.name for one in learned.dropped}, "a name is kept"
    after = {row["id"]: row for row in [*rows, wrong]}
    for one in back.added:
        assert breaks(one.rule, after[one.left_key[0]], after[one.right_key[0]]), "the pair that broke it is gone"
