"""The pairs that a watched set lists as rows come and go are those of comparing all rows.

Catches: pairs lost or doubled where trees merge or are arranged anew, between rows of one batch, with dead rows among
them; a set that reads the same with t and s exchanged and lists a pair twice, or one that does not and lists it once;
nulls; equal hashes; columns that stand on one side only.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.drawn import other_sizes
from weever_stream.discover.predicates import Options, comparisons_of, may_meet, usable
from weever_stream.index import arrangement
from weever_stream.index.tree import ALIVE
from weever_stream.learn.keeper import Keeper
from weever_stream.learn.labels import NULL, Labelled
from weever_stream.learn.watch import Everything, Watch
from weever_stream.rules import schema_of

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string()), ("d", pa.string()), ("e", pa.int64())])
TYPES, _ = usable(schema_of(SCHEMA), (), Options())
COMPARISONS = comparisons_of(TYPES, may_meet(TYPES), Options())
KEEPER = Keeper(Labelled.of(COMPARISONS), None)
SPACE = KEEPER.space
WIDTH = 5
SETS = {
    "one equality": "t.a = s.a",
    "two equalities": "t.a = s.a and t.c = s.c",
    "equality and order": "t.c = s.c and t.a < s.a",
    "equality and difference": "t.c = s.c and t.a != s.a",
    "differences": "t.c != s.c and t.d != s.d and t.a != s.a",
    "orders": "t.a < s.a and t.b >= s.b",
    "three orders": "t.a <= s.a and t.b >= s.b and t.e < s.e",
    "equality across": "t.a = s.b",
    "order across": "t.a < s.b",
    "equality across, symmetric": "t.a = s.b and t.b = s.a",
    "order across, symmetric": "t.a < s.b and t.b > s.a",
    "order across, one way": "t.a < s.b and t.b < s.a and t.e >= s.e",
    "text across, symmetric with more": "t.c = s.d and t.d = s.c and t.a != s.a",
    "all equal": "t.a = s.a and t.b = s.b and t.c = s.c and t.d = s.d",
    "chain": "t.a = s.b and t.b = s.e and t.e = s.a",
}


def numbers_of(deny: str) -> tuple[int, ...]:
    from weever_stream import parse_rule

    names = {name: str(at) for at, (name, _) in enumerate(Labelled.of(COMPARISONS).columns)}
    outer = {
        (one.left.name, one.right.name, op): at
        for at, (one, op) in enumerate(
            (SPACE.comparisons[SPACE.comparison_of[at]], SPACE.predicates[at].op) for at in range(len(SPACE.predicates))
        )
    }
    found = []
    for p in parse_rule(deny).predicates:
        left, op, right = p.left, p.op, p.right
        if left.row == "s":
            left, op, right = right, op.flipped(), left
        found.append(outer[names[left.name], names[right.name], op])
    return tuple(found)


def satisfying(numbers: tuple[int, ...], codes: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Which of the pairs (left, right) of rows satisfy a set, as a matrix."""
    held = left[:, None] != right[None]
    for at in numbers:
        one, op = SPACE.comparisons[SPACE.comparison_of[at]], int(SPACE.ops[at])
        a, b = codes[left, int(one.left.name)][:, None], codes[right, int(one.right.name)][None]
        told = np.where(a < b, 1, np.where(a == b, 2, 4))
        if not one.ordered:
            told = np.where(a == b, 2, 1)
        held &= (told & op != 0) & (a != NULL) & (b != NULL)
    return held


def symmetric(numbers: tuple[int, ...]) -> bool:
    return {*numbers} == {int(SPACE.exchanged[at]) for at in numbers}


def named(numbers: tuple[int, ...], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pairs as numbers, one for both ways round where the set is symmetric; in order."""
    if symmetric(numbers):
        left, right = np.minimum(left, right), np.maximum(left, right)
    return np.sort(left.astype(np.int64) << 32 | right)


def expected(numbers: tuple[int, ...], codes: np.ndarray, rows: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The pairs of some rows with each other and with those held: ordered, or once where the set is symmetric."""
    found = [np.empty(0, np.int64)]
    for left, right in ((rows, rows), (rows, held), (held, rows)):
        one, other = np.nonzero(satisfying(numbers, codes, left, right))
        found.append(named(numbers, left[one], right[other]))
    pairs = np.sort(np.concatenate(found))
    return np.unique(pairs) if symmetric(numbers) else pairs


def listed(
    watch: Watch | Everything, numbers: tuple[int, ...], codes: np.ndarray, rows: np.ndarray, dead: np.ndarray
) -> np.ndarray:
    found = [named(numbers, left, right) for left, right in watch.pairs(codes, rows, dead)]
    return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


def drive(numbers: tuple[int, ...], seed: int, batches: list[int], values: int, nulls: float, going: float) -> None:
    chance = np.random.default_rng(seed)
    total = sum(batches)
    codes = chance.integers(0, values, (total, WIDTH)).astype(np.int32)
    codes[chance.random(codes.shape) < nulls] = NULL
    watch = Watch(SPACE, numbers) if numbers else Everything()
    dead, held, size = np.zeros(total, np.uint8), np.empty(0, np.int32), 0
    for batch in batches:
        gone = held[chance.random(len(held)) < going]
        if len(gone):
            dead[gone] = 1
            held = held[dead[held] == 0]
            assert np.array_equal(listed(watch, numbers, codes, gone, dead), expected(numbers, codes, gone, held)), (
                "those that go"
            )
        rows = np.arange(size, size + batch, dtype=np.int32)
        size += batch
        mask = dead if dead.any() else ALIVE
        assert np.array_equal(listed(watch, numbers, codes, rows, mask), expected(numbers, codes, rows, held)), (
            "those that come"
        )
        watch.add(codes, rows, dead)
        held = np.concatenate([held, rows])
        watch._check(dead, held)


@pytest.mark.parametrize("name", sorted(SETS))
@pytest.mark.parametrize("nulls", [0.0, 0.2])
def test_the_pairs_of_a_set_are_those_of_nested_loops(name: str, nulls: float):
    with other_sizes([(arrangement, "_TRY_FROM", 8)]):
        for seed in range(3):
            drive(numbers_of(SETS[name]), seed, [1, 2, 1, 7, 30, 1, 1, 12, 60, 3], 5, nulls, 0.15)


def test_everything_is_all_pairs():
    drive((), 1, [0, 1, 2, 30, 1], 5, 0.3, 0.2)


@settings(max_examples=30)
@given(
    st.sets(st.integers(0, len(SPACE.predicates) - 1), min_size=1, max_size=5),
    st.integers(0, 2**32),
    st.lists(st.integers(0, 25), min_size=1, max_size=8),
    st.sampled_from([2, 4, 40]),
    st.sampled_from([0.0, 0.2]),
)
def test_the_pairs_of_any_set_are_those_of_nested_loops(
    chosen: set[int], seed: int, batches: list[int], values: int, nulls: float
):
    """Sets as rules have them: one predicate of a comparison."""
    one_each = {int(SPACE.comparison_of[at]): at for at in sorted(chosen)}
    with other_sizes([(arrangement, "_TRY_FROM", 8)]):
        drive(tuple(sorted(one_each.values())), seed, batches, values, nulls, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SETS))
def test_thousands_of_rows_in_batches_that_merge(name: str):
    """Large enough that trees outgrow how they are arranged; values so many that sets have few pairs."""
    batches = [700, 1, 1, 300, 10, 900, 1, 50, 50, 50, 1200, 3]
    drive(numbers_of(SETS[name]), 7, batches, 12 if "equal" in name or "chain" in name else 60, 0.05, 0.1)
