"""The packed tree against a look at every pair.

Catches: a node skipped though it holds a match or taken though it does not, at the edges of int64 too; slices of a key
that are too short or too long; keys that collide; gates read from the wrong row or word; a pair within one set found
twice, with itself or not at all; dead rows found; steps of a probe that lose or repeat pairs; counts that differ from
lists; rows lost or mixed up in a merge; answers that depend on how rows lie, on leaf size or fan-out, or on whether the
buffer can be written.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from tests.index.brute import SIZES, Shapes, arrangements, entries, expected, listed, programs, shapes
from weever_stream.errors import StateError
from weever_stream.index import layout, probing, sorting
from weever_stream.index.layout import ZORDER
from weever_stream.index.tree import Arrangement, Entries, Programs, Tree
from weever_stream.index.tuples import TupleSet


def other_side(shape: Shapes, data: st.DataObject) -> Shapes:
    """A side with the same keys and its own number of codes and gates."""
    return shape[0], shape[1], data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0, 3]))


def build(data: st.DataObject, rows: Entries, shape: Shapes) -> Tree:
    leaf, fanout = data.draw(SIZES)
    arrangement = data.draw(arrangements(rows))
    return Tree.build(rows, arrangement, keyed=shape[0], leaf=leaf, fanout=fanout)


def assert_finds_the_pairs(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    rows = data.draw(entries(shape))
    tree = build(data, rows, shape)
    tree._check()
    theirs = other_side(shape, data)
    queries = data.draw(entries(theirs, most=12))
    run = data.draw(programs(shape, theirs))
    wanted = data.draw(st.integers(0, 15) | st.just(-1))
    dead = data.draw(st.sets(st.sampled_from(rows.rows.tolist()))) if len(rows) else set()
    mask = TupleSet(len(rows), BitMap(dead)).mask
    limit = data.draw(st.sampled_from([1, 3, 1 << 20]))
    truth = expected(rows, queries, run, wanted=wanted, dead=dead)
    assert listed(tree.probe(queries, run, wanted=wanted, dead=mask, limit=limit)) == truth
    tally, visits = tree.count(queries, run)
    everything = expected(rows, queries, run)
    assert tally.tolist() == [sum(q == query for _, query, _ in everything) for q in range(len(queries))]
    assert visits >= 0


@settings(max_examples=40)
@given(st.data())
def test_a_probe_finds_exactly_the_pairs_that_match(data: st.DataObject):
    assert_finds_the_pairs(data)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.data())
def test_a_probe_finds_exactly_the_pairs_that_match_whatever_is_drawn(data: st.DataObject):
    assert_finds_the_pairs(data)


@settings(max_examples=40)
@given(st.data())
def test_rows_of_one_set_meet_each_other_once(data: st.DataObject):
    shape = data.draw(shapes)
    rows = data.draw(entries(shape, most=25))
    tree = build(data, rows, shape)
    run = data.draw(programs(shape, shape))
    assert listed(tree.probe(rows, run, within=True)) == expected(rows, rows, run, within=True)
    own = tree.entries()
    assert listed(tree.probe(own, run, within=True, limit=2)) == expected(rows, own, run, within=True)


@settings(max_examples=40)
@given(st.data())
def test_a_tree_gives_back_the_rows_it_was_built_of(data: st.DataObject):
    shape = data.draw(shapes)
    rows = data.draw(entries(shape))
    assert as_set(build(data, rows, shape).entries()) == as_set(rows)


def as_set(side: Entries) -> set[tuple[Any, ...]]:
    made = {(row, *cells) for row, cells in zip(side.rows.tolist(), side.matrix.tolist(), strict=True)}
    assert len(made) == len(side)
    return made


@settings(max_examples=40)
@given(st.data())
def test_merged_trees_hold_the_living_rows_of_both(data: st.DataObject):
    shape = data.draw(shapes)
    one, other = data.draw(entries(shape)), data.draw(entries(shape, most=15))
    leaf, fanout = data.draw(SIZES)
    arrangement = data.draw(arrangements(one))
    sizes = {"keyed": shape[0], "leaf": leaf, "fanout": fanout}
    first = Tree.build(one, arrangement, **sizes)
    second = Tree.build(other, arrangement, keep_cuts=data.draw(st.booleans()), **sizes)
    dead = [
        TupleSet(len(side), BitMap(data.draw(st.sets(st.sampled_from(range(len(side)))))) if len(side) else None)
        for side in (one, other)
    ]
    kept, other_kept = dead[0].kept(0), dead[1].kept(len(one) - len(dead[0]))
    merged = first.merged(kept, second, other_kept)
    merged._check()
    assert merged.arrangement.lead == arrangement.lead
    assert merged.arrangement.cuts.tolist() == arrangement.cuts.tolist()
    width = max(one.gates.shape[1], other.gates.shape[1])
    parts = [side.at(where(side.rows)) for side, where in ((one, kept), (other, other_kept))]
    together = Entries(
        np.concatenate([np.pad(p.matrix, ((0, 0), (0, width - p.gates.shape[1])), constant_values=-1) for p in parts]),
        np.concatenate([p.rows for p in parts]), one.equals, one.codes,
    )  # fmt: skip
    assert as_set(merged.entries()) == as_set(together)
    assert sorted(merged.entries().rows.tolist()) == list(range(len(together))), "positions are counted on"
    theirs = other_side(shape, data)
    queries, run = data.draw(entries(theirs, most=8)), data.draw(programs(shape, theirs))
    assert listed(merged.probe(queries, run)) == expected(together, queries, run)


COMPILED = [
    probing.probe_tree, probing.scan_rows, layout.pack, layout.merge, layout.unpack, sorting.sort_rows,
    sorting.quantile_cuts, sorting.z_order,
]  # fmt: skip


@settings(max_examples=15)
@given(st.data())
def test_a_mapped_tree_answers_alike_without_compiling_anew(data: st.DataObject):
    shape = data.draw(shapes)
    rows = data.draw(entries(shape))
    tree = build(data, rows, shape)
    with tempfile.NamedTemporaryFile() as written:
        written.write(tree.buffer.tobytes())
        written.flush()
        file = pa.memory_map(written.name)
        mapped = Tree(np.frombuffer(file.read_buffer(), np.int64))
        assert not mapped.buffer.flags.writeable
        run = data.draw(programs(shape, shape))
        queries = mapped.entries()
        assert listed(mapped.probe(queries, run)) == listed(tree.probe(queries, run))
        assert mapped.count(queries, run)[0].tolist() == tree.count(queries, run)[0].tolist()
        nobody = TupleSet(len(rows)).kept(0)
        everybody = TupleSet(len(rows)).kept(len(rows))
        assert as_set(mapped.merged(nobody, mapped, everybody).entries()) == as_set(
            tree.merged(nobody, tree, everybody).entries()
        )
    assert {compiled.__name__: len(compiled.signatures) for compiled in COMPILED} == {
        compiled.__name__: 1 for compiled in COMPILED
    }


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 8, 9, 64, 3000]), st.sampled_from([1, 3, 200, 2**62]))
def test_the_hash_index_finds_the_whole_slice_of_a_key(seed: int, n: int, spread: int):
    random = np.random.default_rng(seed)
    keys = np.concatenate([random.integers(-spread, spread, n), [-(2**63), 2**63 - 1, 0]])
    none = np.empty((len(keys), 0), np.int64)
    rows = Entries.of(keys, none, none, none, np.arange(len(keys), dtype=np.int32))
    buffer = Tree.build(rows, Arrangement(), keyed=True).buffer
    where, ranked = layout.sections(buffer), np.sort(keys)
    for key in [*random.choice(keys, 20).tolist(), *random.integers(-spread - 2, spread + 2, 20).tolist(), 2**63 - 1]:
        first, end = layout.key_range(buffer, where[0], where[9], key)
        assert end - first == (ranked == key).sum()
        assert first == end or first == np.searchsorted(ranked, key)


def test_a_large_tree_finds_what_numpy_finds():
    random = np.random.default_rng(7)
    keys, codes = random.integers(0, 50, 20_000), random.integers(0, 1000, (20_000, 2))
    none = np.empty((len(keys), 0), np.int64)
    rows = Entries.of(keys, none, codes, none, np.arange(len(keys), dtype=np.int32))
    run = Programs(np.array([[0, 2, -1, -1, 1]]), np.array([[0, 1, 0], [1, 4, 1]]))  # stored a < a and stored b > b
    queries = rows.take(random.integers(0, len(keys), 40))
    for lead in (-1, 0, 1, ZORDER):
        cuts = sorting.quantile_cuts(codes, 6) if lead == ZORDER else np.empty(0, np.int64)
        tree = Tree.build(rows, Arrangement(lead, cuts), keyed=True)
        tally, _ = tree.count(queries, run)
        found = listed(tree.probe(queries, run, limit=5000))
        for q, (key, a, b) in enumerate(queries.matrix.tolist()):
            truth = np.flatnonzero((keys == key) & (codes[:, 0] < a) & (codes[:, 1] > b))
            assert tally[q] == len(truth)
            assert [row for _, query, row in found if query == q] == truth.tolist()


@pytest.mark.parametrize("words", [0, 3, 15, 64])
def test_a_buffer_that_is_no_tree_is_refused(words: int):
    with pytest.raises(StateError, match="not a packed index"):
        Tree(np.zeros(words, np.int64))


def test_arrangements_that_sort_differently_never_pass_for_alike():
    leads = [Arrangement(lead=lead) for lead in range(-1, 20)]
    curves = [
        Arrangement(ZORDER, np.array(cuts, np.int64))
        for cuts in ([0, 0, 0, 0, 0, 0], [0, 0], [1, 1], [0, 1], [1, 0], [5, 5, 5, 5, 5, 5], [1, 2, 3, 1, 2, 3])
    ]
    tags = [arrangement.tag for arrangement in [*leads, *curves]]
    assert len(set(tags[: len(leads)])) == len(leads)
    assert set(tags[: len(leads)]).isdisjoint(tags[len(leads) :]), "a sorted tree is not taken for one in Z-order"
