"""Learned rules are weighed as `discover` ranks them. Catches scores that are another rule's, and supports by halves."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from weever_stream.discover import discover
from weever_stream.learn import Learner
from weever_stream.learn.weighing import weigh

N = 900


def table() -> pa.Table:
    source = random.Random(3)
    zips = [source.randrange(60) for _ in range(N)]
    return pa.table(
        {
            "id": pa.array(range(N), pa.int64()),
            "zip": zips,
            "city": [f"c{one // 3}" for one in zips],
            "tax": [one * 1.5 for one in zips],
            "rate": [source.random() for _ in zips],
        }
    )


def test_all_rows_give_the_scores_and_supports_of_discover() -> None:
    rows = table()
    learner = Learner(rows, key="id", cross=False, max_predicates=3)
    found = discover(rows.drop_columns(["id"]), cross=False, max_predicates=3, top=None).rules
    weights = weigh(learner, learner.rules)
    assert weights.keys() == {one.rule.fingerprint for one in found}
    for one in found:
        weight = weights[one.rule.fingerprint]
        assert weight.score == pytest.approx(one.interest.score, abs=1e-6), one.words
        assert weight.support == one.support, one.words


def test_a_sample_tells_about_the_same() -> None:
    learner = Learner(table(), key="id", cross=False, max_predicates=2)
    whole, sample = weigh(learner, learner.rules), weigh(learner, learner.rules, rows=300)
    for name, weight in whole.items():
        assert sample[name].score == pytest.approx(weight.score, abs=0.1)
    assert weigh(learner, []) == {}
