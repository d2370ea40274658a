"""What the numbers of a rule count where values are null, and that rules are sorted by the numbers that are shown.

Catches pairs that count although a compared value is null, a rule over a sparse column that is taken for an accident,
numbers of `discover` and of the learner that differ, and a heading that counts something else than what follows.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import satisfies
from weever_stream.discover import Discovery, Found, discover
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import Budget, scan
from weever_stream.discover.predicates import Options, space_of
from weever_stream.discover.ranking import LEAST, MOST, MOST_ROWS
from weever_stream.discover.support import estimate_support, obeying
from weever_stream.discover.telling import entries
from weever_stream.learn import Learner
from weever_stream.learn.weighing import weigh
from weever_stream.rules import Op, Rule

TIMES = ("planned_start", "start", "planned_end", "end")


def _holds(predicates: object, t: dict, s: dict) -> bool:
    rows = {"t": t, "s": s}
    return all(
        satisfies(rows[p.left.row][p.left.name], p.op, rows[p.right.row][p.right.name])
        for p in predicates  # type: ignore[attr-defined]
    )


def _counted(rows: list[dict], rule: Rule, predicates: object) -> int:
    """The pairs that satisfy some predicates, counted as the violations of a rule are."""
    if rule.one_row:
        return sum(_holds(predicates, row, row) for row in rows)
    pairs = [(t, s) for t in range(len(rows)) for s in range(len(rows)) if t != s]
    found = {(t, s) for t, s in pairs if _holds(predicates, rows[t], rows[s])}
    return len({frozenset(pair) for pair in found}) if rule.symmetric else len(found)


values = st.one_of(st.none(), st.integers(0, 3))
tables = st.lists(st.tuples(values, values, values), min_size=2, max_size=9)


@given(tables, st.booleans(), st.sampled_from([0.0, 0.1]))
@settings(max_examples=60, deadline=None)
def test_support_is_what_nested_loops_count(drawn: list[tuple], one_row: bool, error: float) -> None:
    names = ("a", "b", "c")
    table = pa.table({name: pa.array([row[at] for row in drawn], pa.int64()) for at, name in enumerate(names)})
    rows = table.to_pylist()
    found = discover(table, shared=0.0, one_row=one_row, error=error, max_predicates=3, top=None)
    if not found.rules:
        return
    space = space_of(table, Options(None, False, True, 0.0, one_row))
    evidence = Evidence(space)
    scan(space, evidence, Budget(None), lambda phase, done, total: None)
    for one in random.Random(0).sample(found.rules, min(12, len(found.rules))):
        numbers = [space.number[p.left, p.op, p.right] for p in one.rule.predicates]  # type: ignore[index]
        obey = [space.predicates[at] for at in obeying(space, numbers, one.saying)]
        changed = set(obey) - set(one.rule.predicates)
        (end,) = set(one.rule.predicates) - set(obey)
        assert {p.op for p in changed} == {Op(7 & ~end.op.value)}, "only the conclusion is turned round"
        expected = _counted(rows, one.rule, one.rule.predicates) + _counted(rows, one.rule, obey)
        assert one.support == expected, one.words
        assert estimate_support(space, numbers, one.saying, *evidence.outcomes(), space.rows) == expected, one.words


def sparse(rows: int = 600, nulls: float = 0.7) -> pa.Table:
    """zip determines city, of which most values are null."""
    chance = np.random.default_rng(7)
    zips = chance.integers(0, 60, rows)
    cities = [None if chance.random() < nulls else f"c{zip_ % 17}" for zip_ in zips]
    return pa.table({"zip": zips, "city": pa.array(cities), "noise": chance.integers(0, 40, rows)})


def _of(found: Discovery, words: str) -> Found:
    return next(one for one in found.rules if one.words == words)


@pytest.mark.parametrize("nulls", [0.0, 0.7, 0.9])
def test_a_dependency_over_a_sparse_column_is_tested_by_the_pairs_that_have_values(nulls: float) -> None:
    table = sparse(nulls=nulls)
    one = _of(discover(table, cross=False), "zip determines city")
    rows = [row for row in table.to_pylist() if row["city"] is not None]
    same = sum(t["zip"] == s["zip"] for at, t in enumerate(rows) for s in rows[:at])
    assert one.support == same
    assert one.chance is not None
    assert 0.7 * same < one.chance <= same, "any two cities differ, as a rule"
    assert one.tested


def test_rows_without_a_key_are_no_pairs_of_it() -> None:
    found = discover(pa.table({"id": [1, 2, 3, None, None]}), cross=False)
    assert _of(found, "id is unique").support == 3


def flights() -> pa.Table:
    """Sources report the times of flights: some leave planned times out, some are wrong about the real ones."""
    chance = np.random.default_rng(11)
    flight = np.repeat(np.arange(90), 24)
    source = np.tile(np.arange(24), 90)
    columns: dict[str, object] = {"flight": [f"F{at}" for at in flight]}
    for at, name in enumerate(TIMES):
        truth = chance.integers(0, 200, 90)[flight]
        wrong = chance.random(len(flight)) < (0.03, 0.4, 0.1, 0.4)[at]
        shown = np.where(wrong, truth + chance.integers(1, 15, len(flight)), truth)
        silent = (source % 3 == 0) if at in (0, 2) else (source % 7 == at)
        columns[name] = pa.array([None if hidden else f"{one}" for one, hidden in zip(shown, silent, strict=True)])
    return pa.table(columns)


def test_the_true_rules_of_a_dirty_table_with_nulls_come_first() -> None:
    found = discover(flights(), error=0.008)
    assert {one.words for one in found.rules[:4]} == {f"flight determines {time}" for time in TIMES}
    assert set(entries(found)[0].saying.object) == set(TIMES)
    assert all(one.tested for one in found.rules[:4])


def test_the_learner_weighs_a_table_with_nulls_as_discover_does() -> None:
    table = sparse(400)
    rows = table.append_column("id", pa.array(range(400), pa.int64()))
    learner = Learner(rows, key="id", cross=False, max_predicates=3)
    found = discover(table, cross=False, max_predicates=3, top=None)
    weights = weigh(learner, learner.rules)
    assert weights.keys() == {one.rule.fingerprint for one in found.rules}
    for one in found.rules:
        assert weights[one.rule.fingerprint].support == one.support, one.words
        assert weights[one.rule.fingerprint].score == pytest.approx(one.interest.score, abs=1e-6), one.words


@pytest.mark.parametrize("error", [0.0, 0.001, 0.008])
def test_the_split_follows_the_numbers_that_are_shown(error: float) -> None:
    table = flights()
    found = discover(table, error=error, top=None, max_predicates=3)
    assert [one.tested for one in found.rules] == sorted((one.tested for one in found.rules), reverse=True)
    for one in found.rules:
        if one.chance is None:
            assert one.tested == (one.support >= LEAST and one.rows_involved <= MOST_ROWS * found.rows)
        else:
            assert one.chance <= one.support
            assert one.tested == (one.chance >= LEAST and one.violations <= MOST * one.chance)
    shown = str(found)
    for entry in entries(found):
        for one in entry.rules if entry.rules[0].violations else entry.rules[:1]:
            if one.violations:
                violations = f"{one.violations:,} violation{'s' * (one.violations != 1)}"
                by_chance = "" if one.chance is None else f", about {one.chance:,} by chance"
                assert f"support {one.support:,}, {violations}{by_chance}\n" in shown
                assert f"{one.rows_involved:,} row" in shown


def test_the_heading_counts_what_follows() -> None:
    found = discover(flights(), error=0.001, top=12)
    lines = str(found).splitlines()
    groups = [line for line in lines if re.match(r" {1,2}\d+\. ", line)]
    denied = [line for line in lines if line.startswith("     t.")]
    assert len(groups) == len(entries(found)) < len(found.rules) == len(denied) == 12
    assert lines[0].endswith(f"{found.total} minimal rules, the best 12 of them in {len(groups)} groups")
    assert f"<dt>shown here, in {len(groups)} groups</dt><dd>12</dd>" in found.html()
    assert found.html().count('<section class="card"') == len(groups)
    assert [one["name"] for one in found.as_json()["rules"]] == [one.rule.name for one in found.rules]
