"""Tables of thousands of rows with the learner's own sizes: sets are watched, trees merge, rows are numbered anew.

Catches: what the small tables of the other tests cannot reach, and state that grows with what has gone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.learn.truth import assert_exact, assert_watched
from weever_stream.learn import Learner
from weever_stream.learn.watch import Watch


def table(first: int, rows: int, chance: np.random.Generator, nulls: float = 0.0, wrong: float = 0.0) -> pa.Table:
    """zip determines city and rate rises with salary in a city, but for some; valid from a clock that goes on."""
    zips = chance.integers(0, 400, rows)
    city = zips // 4
    salary = chance.integers(0, 3000, rows)
    rate = salary // 100 + city % 5
    city = np.where(chance.random(rows) < wrong, 999, city)
    columns = {"zip": zips, "city": city, "salary": salary, "rate": rate, "at": np.arange(first, first + rows)}
    arrays = {name: pa.array(values, mask=chance.random(rows) < nulls) for name, values in columns.items()}
    return pa.table({"id": np.arange(first, first + rows), **arrays})


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 2])
def test_thousands_of_rows_come_and_go(most: int | None):
    chance = np.random.default_rng(4)
    learner = Learner(table(0, 2500, chance), key="id", max_predicates=most)
    size, watched = 2500, 0
    steps = [(1, 0, 0.0, 0.0), (200, 50, 0.0, 0.0), (3, 300, 0.0, 0.4), (0, 200, 0.0, 0.0), (100, 3, 0.1, 0.0),
             (0, 150, 0.0, 0.0), (50, 1500, 0.0, 0.1), (300, 900, 0.2, 0.0), (5, 0, 0.0, 0.0)]  # fmt: skip
    for come, go, nulls, wrong in steps:
        learner.insert(table(size, come, chance, nulls, wrong))
        size += come
        if go:
            learner.delete(chance.choice(learner.table()["id"].to_numpy(), go, replace=False))
        assert_exact(learner, learner.table().to_pylist())
        assert_watched(learner)
        watched += any(isinstance(one, Watch) for one in learner._keeper._listings)
    learner._check()
    assert watched > 5


def test_what_has_gone_is_forgotten():
    """Thousands of rows have come and gone through a window of some hundred."""
    chance = np.random.default_rng(5)
    learner = Learner(table(0, 300, chance), key="id", small=100, max_predicates=2, columns=["zip", "at"])
    for first in range(300, 9300, 300):
        learner.insert(table(first, 300, chance))
        learner.delete(range(first - 300, first))
    keeper, held = learner._keeper, learner._held
    assert len(learner) == 300
    assert keeper.size <= 3000
    assert held.size == keeper.size
    assert not held.drops, "without sequences of their own no change can be late"
    assert max(len(one._values) + len(one._places) for one in learner._labelled.labels) <= 3000
    learner._check()
    assert_exact(learner, learner.table().to_pylist())
