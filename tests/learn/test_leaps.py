"""Tables that grow many times over in one change: the pairs of all new rows are not simply all listed.

Catches: memory that grows with the square of a batch, and rules, reasons or sets that are wrong after a leap.
"""

from __future__ import annotations

import time

import numpy as np
import psutil
import pyarrow as pa
import pytest

from tests.learn.shapes import few_samples
from tests.learn.truth import assert_exact, assert_reasons
from weever_stream.learn import Learner

KINDS = {"id": "bigint", "a": "bigint", "b": "bigint", "c": "bigint"}


def table(first: int, rows: int, seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    a = chance.integers(0, rows // 4, rows)
    return pa.table({"id": np.arange(first, first + rows), "a": a, "b": a // 7, "c": chance.integers(0, 50, rows)})


@pytest.mark.parametrize("first", [0, 3, 30])
@pytest.mark.parametrize("samples", [1, 1000])
def test_rules_and_reasons_are_right_after_a_leap(first: int, samples: int):
    rows = table(0, 40).to_pylist()
    with few_samples(samples):
        learner = Learner(rows[:first], key="id", schema=KINDS, small=4, cross=False)
        before = {row["id"]: row for row in rows[:first]}
        for step in (slice(first, 36), slice(36, 38), slice(38, 40)):
            after = before | {row["id"]: row for row in rows[step]}
            assert_reasons(learner, learner.insert(rows[step]), before, after)
            learner._check()
            assert_exact(learner, after.values())
            before = after
        learned = learner.upsert(
            [{**rows[at], "id": at, "b": 99, "c": None} for at in range(1)] + table(50, 300).to_pylist()
        )
        learner._check()
        assert learned.changes == 301
        assert_exact(learner, [{**rows[0], "b": 99, "c": None}, *rows[1:], *table(50, 300).to_pylist()])


def test_many_rows_at_once_take_time_and_memory_by_their_number():
    learner = Learner(schema=KINDS, key="id", cross=False)
    before, start = psutil.Process().memory_info().rss, time.monotonic()
    learner.insert(table(0, 20_000))
    grown = psutil.Process().memory_info().rss - before
    assert len(learner) == 20_000
    assert "a determines b" in {rule.description for rule in learner.rules}
    assert grown < 600 << 20, "200 million pairs would take gigabytes"
    assert time.monotonic() - start < 60
