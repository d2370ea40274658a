"""Random entries and programs for trees, and what a probe must find, by looking at every pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from weever_stream.index.layout import ZORDER
from weever_stream.index.probing import EVERY, HALF, OTHERS
from weever_stream.index.sorting import quantile_cuts
from weever_stream.index.tree import Arrangement, Entries, Pairs, Programs

__all__ = ["Shapes", "arrangements", "entries", "expected", "listed", "programs", "shapes"]

CODES = st.one_of(st.integers(0, 4), st.sampled_from([-(2**63), 2**63 - 1, -1]))
SIZES = st.sampled_from([(2, 2), (1, 2), (3, 4), (16, 8)])
Shapes = tuple[bool, int, int, int]
"""Whether there are keys, how many equality codes, codes, and gates."""
shapes = st.one_of(
    st.tuples(st.just(False), st.just(0), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just(True), st.integers(0, 2), st.integers(0, 3), st.sampled_from([0, 2, 66])),
)


@st.composite
def entries(draw: st.DrawFn, shape: Shapes, most: int = 40) -> Entries:
    """Rows whose keys may collide: the key of equality codes is their sum, cut to a few values."""
    keyed, n_equals, n_codes, n_gates = shape
    n = draw(st.integers(0, most))

    def table(values: st.SearchStrategy[int], width: int) -> Any:
        cells = draw(st.lists(values, min_size=n * width, max_size=n * width))
        return np.array(cells, np.int64).reshape(n, width)

    equals = table(st.integers(0, 2), n_equals)
    keys = table(st.integers(-2, 2), 1)[:, 0]
    if n_equals:
        keys = equals.sum(1) % draw(st.sampled_from([2, 3, 9])) - 1
    words = (n_gates + 63) // 64 if draw(st.booleans()) else 0
    gates = table(st.integers(-(2**63), 2**63 - 1), words)
    rows = np.array(draw(st.permutations(range(n))), np.int32)
    return Entries.of(keys if keyed else np.empty(0, np.int64), equals, table(CODES, n_codes), gates, rows)


@st.composite
def programs(draw: st.DrawFn, stored: Shapes, queries: Shapes, most: int = 4) -> Programs:
    """A few programs over both sides' columns and gates."""
    heads, predicates = [], []
    for _ in range(draw(st.integers(1, most))):
        mine = []
        if stored[2] and queries[2]:
            column, its_column = st.integers(0, stored[2] - 1), st.integers(0, queries[2] - 1)
            mine = draw(st.lists(st.tuples(column, st.integers(1, 6), its_column), max_size=3))
        gates = [draw(st.integers(-1, side[3] - 1)) for side in (stored, queries)]
        heads.append((len(predicates), len(predicates) + len(mine), *gates, draw(st.sampled_from([OTHERS, HALF]))))
        predicates += mine
    return Programs(np.array(heads, np.int64).reshape(-1, 5), np.array(predicates, np.int64).reshape(-1, 3))


@st.composite
def arrangements(draw: st.DrawFn, of: Entries) -> Arrangement:
    """As they come, by a column, or in Z-order."""
    choices = [-1, *range(of.codes)]
    if of.codes and len(of):
        choices.append(ZORDER)
    lead = draw(st.sampled_from(choices))
    if lead != ZORDER:
        return Arrangement(lead=lead, at=len(of))
    return Arrangement(ZORDER, quantile_cuts(np.ascontiguousarray(of.values), draw(st.integers(1, 3))), len(of))


def expected(
    stored: Entries, queries: Entries, run: Programs, *, wanted: int = -1, within: bool = False, dead: Any = ()
) -> list[tuple[int, int, int]]:
    """(program, query, row) of every pair, sorted."""
    return sorted(
        (p, q, row)
        for p, (first, last, stored_gate, query_gate, mode) in enumerate(run.heads.tolist())
        if wanted >> p & 1
        for q in range(len(queries))
        for r, row in enumerate(stored.rows.tolist())
        if row not in dead
        and _meets(mode if within else EVERY, row, int(queries.rows[q]))
        and (stored.matrix[r, : 1 + stored.equals] == queries.matrix[q, : 1 + queries.equals]).all()
        and _open(stored, r, stored_gate)
        and _open(queries, q, query_gate)
        and all(
            _holds(int(stored.values[r, column]), op, int(queries.values[q, its_column]))
            for column, op, its_column in run.predicates[first:last].tolist()
        )
    )


def _meets(mode: int, row: int, me: int) -> bool:
    return {EVERY: True, OTHERS: row != me, HALF: row > me}[mode]


def _open(side: Entries, at: int, gate: int) -> bool:
    return gate < 0 or not side.gates.shape[1] or bool(int(side.gates[at, gate // 64]) >> gate % 64 & 1)


def _holds(stored: int, op: int, query: int) -> bool:
    return bool(op & (1 if stored < query else 2 if stored == query else 4))


def listed(pieces: Any) -> list[tuple[int, int, int]]:
    """The pairs of a probe, sorted."""
    found: list[tuple[int, int, int]] = []
    for piece in pieces:
        assert isinstance(piece, Pairs)
        assert len(piece), "no empty pieces"
        found += zip(piece.program.tolist(), piece.query.tolist(), piece.row.tolist(), strict=True)
    return sorted(found)
