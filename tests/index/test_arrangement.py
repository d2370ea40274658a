"""Choosing how rows lie.

Catches: a choice that ignores the data (ten times the work for a probe), is made anew at every merge or never again,
or breaks on columns that are constant, few, or read by no rule.
"""

from __future__ import annotations

import numpy as np
import pytest

from weever_stream.index.arrangement import arrange, outgrown
from weever_stream.index.layout import ZORDER
from weever_stream.index.tree import Arrangement, Entries, Programs, Tree

LESS_AND_MORE = Programs(np.array([[0, 2, -1, -1, 1]]), np.array([[0, 1, 0], [1, 4, 1]]))
"""stored a < a and stored b > b."""


def side(codes: np.ndarray, keys: np.ndarray | None = None) -> Entries:
    n, none = len(codes), np.empty((len(codes), 0), np.int64)
    keys = np.empty(0, np.int64) if keys is None else keys
    return Entries.of(keys, none, np.ascontiguousarray(codes), none, np.arange(n, dtype=np.int32))


def visits(entries: Entries, arrangement: Arrangement) -> int:
    tree = Tree.build(entries, arrangement, keyed=False)
    return tree.count(entries.take(np.arange(0, len(entries), 100)), LESS_AND_MORE)[1]


def test_independent_columns_lie_in_z_order():
    codes = np.random.default_rng(1).integers(0, 10**6, (20_000, 2))
    chosen = arrange(side(codes), [LESS_AND_MORE])
    assert chosen.lead == ZORDER
    assert 3 * visits(side(codes), chosen) < visits(side(codes), Arrangement(lead=0))


def test_columns_that_rise_together_are_sorted_by_one():
    first = np.random.default_rng(2).integers(0, 10**6, 20_000)
    chosen = arrange(side(np.stack([first, first + 5], 1)), [LESS_AND_MORE])
    assert chosen.lead in (0, 1)


@pytest.mark.parametrize("n", [0, 1, 100, 5000])
@pytest.mark.parametrize("width", [0, 1, 2, 5])
@pytest.mark.parametrize("keyed", [True, False])
def test_any_side_can_be_arranged(n: int, width: int, keyed: bool):
    random = np.random.default_rng(n + width)
    codes = random.integers(0, 3, (n, width))
    if width > 2:
        codes[:, 1] = 7  # a constant column
    entries = side(codes, random.integers(0, 9, n) if keyed else None)
    group = [LESS_AND_MORE] if width > 1 else []
    for programs in (group, []):
        chosen = arrange(entries, programs)
        assert chosen.lead in range(-1, width) or chosen.lead == ZORDER
        Tree.build(entries, chosen, keyed=keyed)._check()


def test_a_choice_holds_until_the_tree_has_grown_much():
    codes = np.random.default_rng(3).integers(0, 100, (4000, 2))
    chosen = arrange(side(codes), [LESS_AND_MORE])
    assert not outgrown(chosen, 4000)
    assert not outgrown(chosen, 8000)
    assert outgrown(chosen, 40 * 4000)
    assert not outgrown(arrange(side(codes[:, :1]), []), 10**9), "one column leaves nothing to choose"
    few = arrange(side(codes[:10]), [LESS_AND_MORE])
    assert outgrown(few, 100_000)
    assert not outgrown(few, 100), "few rows are not worth a choice"
