"""Tables that shrink to a row or none and grow again: the rules of two rows are there as soon as there are two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.learn.truth import assert_exact
from weever_stream.learn import Learner

ROWS = [{"id": at, "a": at % 2, "b": at} for at in range(6)]


@pytest.mark.parametrize("small", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("first", range(4))
def test_rules_come_with_the_second_row(first: int, small: int):
    learner = Learner(ROWS[:first], key="id", small=small, schema={"id": "bigint", "a": "bigint", "b": "bigint"})
    for at in range(first, 6):
        learner.insert([ROWS[at]])
        learner._check()
        assert_exact(learner, ROWS[: at + 1])
    assert learner.rules


@pytest.mark.slow
@pytest.mark.parametrize("small", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("left", range(3))
def test_rules_come_back_after_almost_all_rows_have_gone(left: int, small: int):
    learner = Learner(ROWS, key="id", small=small)
    for at in range(left, 6):
        learner.delete([at])
        learner._check()
        assert_exact(learner, [*ROWS[:left], *ROWS[at + 1 :]])
    assert bool(learner.rules) == (left > 1)
    learner.insert(ROWS[left:4])
    learner._check()
    assert_exact(learner, ROWS[:4])
    learner.delete(range(4))
    learner.insert(ROWS)
    assert_exact(learner, ROWS)


def test_what_counts_as_small_is_part_of_a_dump(tmp_path: Path):
    learner = Learner(ROWS, key="id", small=3)
    learner.dump(tmp_path / "state")
    learner = Learner.load(tmp_path / "state")
    learner.delete(range(1, 6))
    learner.insert(ROWS)
    learner._check()
    assert_exact(learner, ROWS)
