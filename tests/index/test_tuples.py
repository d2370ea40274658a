"""Sets of rows against Python's own sets.

Catches: a bitmap and its mask that come apart, rows that come back after they were taken out, wrong new positions.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from weever_stream.index.tuples import TupleSet

ROWS = 20
steps = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, ROWS - 1), max_size=6)), max_size=8)


@settings(max_examples=80)
@given(steps, st.sets(st.integers(0, ROWS - 1)), st.integers(0, 1000))
def test_a_tuple_set_is_a_set(changes: list[tuple[bool, list[int]]], first: set[int], start: int):
    mine, truth = TupleSet(ROWS, BitMap(first)), set(first)
    for adds, rows in changes:
        if adds:
            mine.add(np.array(rows, np.int32))
            truth |= set(rows)
        else:
            mine.discard(np.array(rows, np.int32))
            truth -= set(rows)
        mine._check()
        assert len(mine) == len(truth)
        assert set(mine.bitmap) == truth
        assert {row for row in range(ROWS) if len(mine.mask) and mine.mask[row]} == truth
    left = [row for row in range(ROWS) if row not in truth]
    positions = mine.kept(start)(np.arange(ROWS, dtype=np.int32)).tolist()
    assert [positions[row] for row in left] == list(range(start, start + len(left)))
    assert all(positions[row] == -1 for row in truth)


def test_an_empty_set_has_no_mask():
    assert len(TupleSet(10).mask) == 0
