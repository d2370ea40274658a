"""Sorting and Z-order against numpy.

Catches: a radix sort that is unstable, mistakes the sign, skips a digit that differs, or fails at the size where its
digits widen; cuts that are no quantiles; a Z-order that does not follow the columns.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weever_stream.index.sorting import quantile_cuts, sort_rows, z_order

NOTHING = np.empty(0, np.int64)
codes = st.one_of(
    st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 2**32, -(2**32)])
)


@settings(max_examples=60)
@given(st.lists(st.tuples(codes, codes), max_size=60))
def test_rows_are_sorted_by_key_then_order_and_ties_stay(values: list[tuple[int, int]]):
    keys, order = np.array(values, np.int64).reshape(-1, 2).T.copy()
    assert sort_rows(keys, order).tolist() == np.lexsort([order, keys]).tolist()
    assert sort_rows(keys, NOTHING).tolist() == np.argsort(keys, kind="stable").tolist()
    assert sort_rows(NOTHING, order).tolist() == np.argsort(order, kind="stable").tolist()


@pytest.mark.parametrize("n", [8191, 8192, 20_000])
@pytest.mark.parametrize("spread", [3, 2**12, 2**62])
def test_large_sets_of_rows_are_sorted_as_numpy_sorts_them(n: int, spread: int):
    random = np.random.default_rng(n + spread)
    keys, order = random.integers(-spread, spread, (2, n))
    assert (sort_rows(keys, order) == np.lexsort([order, keys])).all()


@settings(max_examples=40)
@given(st.lists(st.tuples(codes, codes, codes), min_size=1, max_size=50), st.integers(1, 4), st.integers(1, 3))
def test_z_order_rises_where_all_columns_rise(values: list[tuple[int, int, int]], bits: int, width: int):
    matrix = np.array(values, np.int64)[:, :width].copy()
    cuts = quantile_cuts(matrix, bits)
    order = z_order(matrix, cuts)
    assert (order >= 0).all()
    assert (order < 1 << bits * width).all()
    for one, its_order in zip(matrix, order, strict=True):
        below = (matrix <= one).all(1)
        assert (order[below] <= its_order).all()


@settings(max_examples=40)
@given(st.lists(codes, min_size=1, max_size=200), st.integers(1, 5))
def test_cuts_are_values_that_part_the_rows_evenly(values: list[int], bits: int):
    column = np.array(values, np.int64).reshape(-1, 1)
    cuts, pieces = quantile_cuts(column, bits), 1 << bits
    assert len(cuts) == pieces - 1
    assert (cuts[1:] >= cuts[:-1]).all()
    ranked = np.sort(column[:, 0])
    for number, cut in enumerate(cuts, 1):
        # All rows are sampled here, so the cut stands exactly at its rank.
        assert cut == ranked[number * len(ranked) // pieces]


def test_z_order_of_two_columns_interleaves_their_ranks():
    grid = np.array([[x, y] for x in range(4) for y in range(4)], np.int64)
    cuts = np.array([1, 2, 3, 1, 2, 3], np.int64)
    expected = [
        (x >> 1 & 1) << 3 | (y >> 1 & 1) << 2 | (x & 1) << 1 | (y & 1) for x in range(4) for y in range(4)
    ]  # fmt: skip
    assert z_order(grid, cuts).tolist() == expected
