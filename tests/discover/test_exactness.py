"""The rules found are those of brute force: all subsets of predicates, all pairs of rows.

Catches a wrong outcome of a null, a tie or a column of another type, a minimal rule that the search loses, one that is
not minimal, one that is implied or trivial, and a large table's path that ends with other rules than comparing all pairs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.discover.brute import Brute
from weever_stream.discover import hydra
from weever_stream.discover.logic import closures
from weever_stream.discover.predicates import Options, Space, space_of

_KINDS = {
    "int": (pa.int64(), [0, 1, 2, None]),
    "small": (pa.int32(), [0, 1, 2, None]),
    "float": (pa.float64(), [0.0, -0.0, float("nan"), 1.5]),
    "text": (pa.string(), ["", "a", "b", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "constant": (pa.int64(), [7]),
}


@st.composite
def tables(draw: st.DrawFn, kinds: list[str], most_rows: int) -> pa.Table:
    rows = draw(st.integers(0, most_rows))
    columns = {}
    for at, kind in enumerate(kinds):
        type_, values = _KINDS[kind]
        columns[f"{kind}{at}"] = pa.array(draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows)), type_)
    return pa.table(columns)


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, Options]:
    """Small spaces of each shape: one column with itself, columns with each other, columns of one row."""
    kinds, options = draw(
        st.sampled_from(
            [
                (["int", "float"], Options(cross=False)),
                (["int", "text", "flag"], Options(cross=False)),
                (["text", "text", "text", "constant"], Options(cross=False)),
                (["text"], Options(order_text=True)),
                (["text", "text"], Options(shared=0)),
                (["text", "text"], Options(shared=0, one_row=True)),
                (["int"], Options(one_row=True)),
            ]
        )
    )
    return draw(tables(kinds, 7)), options


def found_by(space: Space, brute: Brute, **how: int) -> set[int]:
    outcome = hydra.find_rules(space, **how)
    assert outcome.exact
    sets = [sum(1 << int(at) for at in np.flatnonzero(rule)) for rule in outcome.rules]
    found = {brute.canonical(some) for some in sets}
    assert len(found) == len(sets), "no two rules say the same"
    return found


@settings(max_examples=15)
@given(cases())
def test_the_rules_are_those_of_brute_force(case: tuple[pa.Table, Options]) -> None:
    same_as_brute_force(*case)


@pytest.mark.slow
@settings(max_examples=150)
@given(cases())
def test_the_rules_are_those_of_brute_force_many_times(case: tuple[pa.Table, Options]) -> None:
    same_as_brute_force(*case)


def same_as_brute_force(table: pa.Table, options: Options) -> None:
    space = space_of(table, options)
    brute = Brute(space, table)
    expected = brute.rules()
    assert found_by(space, brute) == expected
    assert found_by(space, brute, scanned=-1, sample=4) == expected, "by sampling and completion"


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_what_follows_from_a_set_is_what_holds_in_every_way_it_can_hold(data: st.DataObject, one_row: bool) -> None:
    table = pa.table({"a": pa.array([0, 1]), "b": pa.array([0, 1], pa.int32())})
    space = space_of(table, Options(shared=0, cross=True, one_row=one_row))
    brute = _brute_of(one_row)
    chosen = data.draw(st.sets(st.integers(0, len(space.predicates) - 1), min_size=1, max_size=5))
    marks = np.zeros((1, len(space.predicates)), np.bool_)
    marks[0, list(chosen)] = True
    closed, sound = closures(space, marks)
    expected = brute.closure(sum(1 << at for at in chosen))
    assert bool(sound[0]) == (expected is not None)
    if expected is not None:
        assert sum(1 << int(at) for at in np.flatnonzero(closed[0])) == expected


@cache
def _brute_of(one_row: bool) -> Brute:
    table = pa.table({"a": pa.array([0, 1]), "b": pa.array([0, 1], pa.int32())})
    return Brute(space_of(table, Options(shared=0, cross=True, one_row=one_row)), table)


@settings(max_examples=6)
@given(tables(["int", "small", "text", "flag"], 20), st.booleans(), st.integers(0, 3), st.sampled_from([0, 5, 10**6]))
def test_sampling_and_completion_end_with_the_rules_of_all_pairs(
    table: pa.Table, cross: bool, seed: int, listed: int
) -> None:
    same_when_sampled(table, cross, seed, listed)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    tables(["int", "small", "text", "float", "flag"], 40),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([0, 5, 10**6]),
)
def test_sampling_and_completion_end_with_the_rules_of_all_pairs_many_times(
    table: pa.Table, cross: bool, seed: int, listed: int
) -> None:
    same_when_sampled(table, cross, seed, listed)


def same_when_sampled(table: pa.Table, cross: bool, seed: int, listed: int) -> None:
    space = space_of(table, Options(cross=cross))
    every = hydra.find_rules(space)
    sampled = hydra.find_rules(space, scanned=-1, sample=8, seed=seed, listed=listed)
    assert every.exact
    assert sampled.exact
    assert _fingerprints(space, sampled.rules) == _fingerprints(space, every.rules)


def _fingerprints(space: Space, rules: np.ndarray) -> set[str]:
    return {space.rule(np.flatnonzero(rule)).rule.fingerprint for rule in rules}


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_pairs_teaches_nothing(rows: int) -> None:
    space = space_of(pa.table({"a": list(range(rows)), "b": ["x"] * rows}))
    assert not len(hydra.find_rules(space).rules)
