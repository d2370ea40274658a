"""What no set watches: rules that come back as rows go, columns that get a null, and pairs that are met late.

A learner that looks at few random pairs and keeps few sets is driven through inserts and deletes by fixed seeds, with
every step held against discovery. Catches: a null that is taken for an earlier one that has gone since, when sets were
found safe for rules; a rule that is trusted though no set watches it, because another implied it until that was broken.
"""

from __future__ import annotations

import random

import pytest

from tests.learn.shapes import few_samples
from tests.learn.truth import assert_exact, assert_watched
from weever_stream.learn import Learner

Row = dict[str, int | None]


def drive(seed: int, nulls: float, steps: int = 52, meeting: bool = False) -> None:
    """Rows of two to four columns of few values come and go; those with a null mostly soon. Or of two that meet."""
    draw = random.Random(seed)
    if meeting:
        size, values, cross, most = 2, draw.choice([3, 4, 6, 9, 20]), True, [3, 4]
    else:
        size, values = draw.choice([2, 3, 3, 4]), draw.choice([2, 3, 4, 6])
        cross = draw.random() < 0.5 and size < 4
        most = [2, 3] if cross else [None, 3]
    names = "abcd"[:size]

    def row(at: int) -> Row:
        made: Row = {"id": at, **{name: draw.randrange(values) for name in names}}
        if draw.random() < nulls:
            made[draw.choice(names)] = None
        return made

    rows = {at: row(at) for at in range(8)}
    for one in rows.values():
        one.update({name: 0 for name in names if one[name] is None})
    learner = Learner(
        list(rows.values()),
        key="id",
        schema=dict.fromkeys(["id", *names], "bigint"),
        small=3,
        max_predicates=draw.choice(most),
        cross=cross,
        shared=0,
    )
    for at in range(8, 8 + steps):
        if len(rows) > 6 and draw.random() < 0.5:
            gone = draw.sample(sorted(rows), draw.randrange(1, 4))
            with_nulls = [key for key, one in rows.items() if None in one.values()]
            if with_nulls and draw.random() < 0.6:
                gone = with_nulls
            for key in gone:
                del rows[key]
            learner.delete(gone)
        else:
            rows[at] = row(at)
            learner.insert([rows[at]])
        assert_exact(learner, rows.values())
        assert_watched(learner)
    learner._check()


@pytest.mark.parametrize("seed", [12, 20, 40])
def test_a_null_after_all_others_have_gone_is_a_first_one_again(seed: int):
    with few_samples(1):
        drive(seed, 0.15)


@pytest.mark.parametrize("seed", [5, 209, 402])
def test_a_rule_is_looked_at_when_the_one_that_implied_it_is_broken(seed: int):
    with few_samples(1):
        drive(seed, 0.0, meeting=True)


@pytest.mark.parametrize("seed", [5, 7])
def test_rules_that_no_set_watched_are_found_and_kept(seed: int):
    with few_samples(1):
        drive(seed, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("nulls", [0.0, 0.15])
def test_rules_that_no_set_watched_are_found_and_kept_many_times(nulls: float):
    with few_samples(1):
        for seed in range(100, 110):
            drive(seed, nulls)
            drive(seed, nulls, meeting=True)
