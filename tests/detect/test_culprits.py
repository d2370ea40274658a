"""The rows that explain violations, against all ways to choose rows.

Catches: a wrong row that counts as often as it has partners; wrong rows that are not all counted; a culprit that is the
partner; names that differ between batches, shards or processes; pairs beyond number that take time.
"""

from __future__ import annotations

import time
import zlib
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from weever_stream.detect.batch import RowsOfBatch
from weever_stream.detect.culprits import Culprits
from weever_stream.detect.found import Found


def rows(n: int, first: int = 0) -> RowsOfBatch:
    """Rows with their own number as key."""
    return RowsOfBatch(pa.record_batch({"id": np.arange(first, first + n)}), np.arange(first, first + n))


def told(pairs: list[tuple[int, int]], n: int, pieces: int = 1) -> dict[str, Any]:
    """What is told of pairs of rows, found in some pieces."""
    culprits, all_rows = Culprits(["id"]), rows(n)
    for at in range(pieces):
        left, right = np.array(pairs[at::pieces], np.int32).reshape(-1, 2).T
        culprits.take(3, Found(3, 1, all_rows, left, all_rows, right), moving=False)
    [one] = culprits.told()
    assert (one["rule"], one["moving"]) == (3, False)
    return one


def named(key: object) -> int:
    return zlib.crc32(str(key).encode())


def test_one_row_in_all_pairs_counts_once_and_is_named():
    for wrong in (0, 500, 1000):
        pairs = [tuple(sorted((wrong, good))) for good in range(1001) if good != wrong]
        one = told(pairs, 1001, pieces=3)  # type: ignore[arg-type]
        assert one["rows"] == 1
        assert one["named"][0][0] == named(wrong)
        assert one["named"][0][2] is False, "its partners have one pair each"


def test_wrong_rows_among_many_good_ones_are_each_counted_and_named():
    pairs = [(wrong, good) for good in range(20, 400) for wrong in range(20)]
    one = told(pairs, 400)
    assert one["rows"] == 20
    assert {row for row, _, _ in one["named"]} == {named(wrong) for wrong in range(20)}


def test_of_two_rows_either_may_be_wrong():
    assert told([(4, 9)], 10) == {"rule": 3, "moving": False, "rows": 1, "named": [(named(4), named(9), True)]}


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] != pair[1]), min_size=1))
def test_there_are_at_most_as_many_as_the_fewest_that_explain_all_and_at_least_half(edges: set[tuple[int, int]]):
    fewest = next(
        size
        for size in range(1, 9)
        if any(all(left in some or right in some for left, right in edges) for some in combinations(range(8), size))
    )
    one = told(sorted(edges), 8)
    assert fewest / 2 <= one["rows"] <= fewest
    assert len(one["named"]) == one["rows"]
    mentioned = [name for row, partner, _ in one["named"] for name in (row, partner)]
    assert len(set(mentioned)) == len(mentioned), "no row explains twice"


def test_a_rule_on_one_row_names_its_rows():
    culprits = Culprits(["id"])
    culprits.take(0, Found(0, 1, rows(9), np.array([2, 5], np.int32)), moving=False)
    culprits.take(1, Found(1, 1, rows(9), np.array([2], np.int32)), moving=True)
    first, second = culprits.told()
    assert first["rows"] == 2
    assert [name[:2] for name in first["named"]] == [(named(2), None), (named(5), None)]
    assert (second["rule"], second["moving"], second["rows"]) == (1, True, 1)


def test_keys_of_several_columns_and_of_texts_have_names():
    table = pa.record_batch({"a": ["x", "ä\ud800".encode("utf-8", "replace").decode()], "b": [1, 2]})
    both = RowsOfBatch(table, np.arange(2))
    culprits = Culprits(["a", "b"])
    culprits.take(0, Found(0, 1, both, np.array([0], np.int32), both, np.array([1], np.int32)), moving=False)
    [one] = culprits.told()
    assert one["named"] == [(named('["x",1]'), named('["ä?",2]'), True)]


def test_millions_of_pairs_take_no_longer_than_some():
    n = 2000
    left, right = (side.ravel().astype(np.int32) for side in np.meshgrid(np.arange(n), np.arange(n, 2 * n)))
    everybody = rows(2 * n)
    culprits, began = Culprits(["id"]), time.process_time()
    for part in np.array_split(np.arange(n * n), 8):
        culprits.take(0, Found(0, 1, everybody, left[part], everybody, right[part]), moving=False)
    [one] = culprits.told()
    assert time.process_time() - began < 5  # 0.2 s
    assert n / 4 < one["rows"] <= n
    assert len(one["named"]) == 256


def test_nothing_broken_is_nothing_told():
    assert Culprits(["id"]).told() == []
