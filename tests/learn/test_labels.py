"""Labels compare as the values they stand for, whatever order the values come in, and after they are given out anew.

Catches: two values with one label, or one with two; an order that is turned where there was no room left; a batch of
which some columns have old labels; rows held whose labels were not renewed; columns that meet without one order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learn.shapes import SHAPES, narrow_labels
from tests.learn.truth import assert_exact
from tests.oracle import compare
from weever_stream.discover.predicates import Options, comparisons_of, may_meet, usable
from weever_stream.learn import Learner, labels
from weever_stream.learn.labels import NULL, Labelled, Labels
from weever_stream.rules import ColumnType, schema_of

INTEGER = ColumnType("integer")
LEAST, MOST = -(2**63), 2**63 - 1


def halving(n: int) -> list[int]:
    """Each between the first and the one before: the gap is halved each time."""
    return [0, *(2**62 >> at for at in range(min(n, 60)))]


ORDERS: dict[str, Callable[[int], list[int]]] = {
    "ascending": lambda n: list(range(n)),
    "descending": lambda n: list(range(n, 0, -1)),
    "just below the last": lambda n: [MOST, *range(n)],
    "just above the first": lambda n: [LEAST, *range(n, 0, -1)],
    "halving": halving,
    "from both ends": lambda n: [at if at % 2 else -at for at in range(n)],
    "to the middle": lambda n: [at - n if at % 2 else n - at for at in range(n)],
    "at random": lambda n: random.Random(n).sample(range(-(10**9), 10**9), n),
    "in two places": lambda n: [at // 2 + (10**6 if at % 2 else 0) for at in range(n)],
}


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts how often labels are given out anew."""
    times = [0]
    plain = Labels._give

    def give(self: Labels, new: Any) -> None:
        before = self.renewed
        plain(self, new)
        times[0] += self.renewed is not before

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Labels, "_give", give)
        yield times


def follow(values: list[int], at_once: int, spread: int) -> int:
    """Labels values as they come, as a learner does, and holds all of them against the values after every batch."""
    one = Labelled.of(comparisons_of({"a": INTEGER}, (), Options()))
    held, rows = np.empty((0, 1), np.int32), []
    with narrow_labels(spread), counted() as renewals:
        for first in range(0, len(values), at_once):
            some = values[first : first + at_once]
            told = one.label(pa.table({"a": pa.array(some, pa.int64())}))
            one.renew(held)
            held, rows = np.concatenate([held, told]), [*rows, *some]
            one.labels[0]._check()
            order = np.argsort(np.array(rows, np.int64), kind="stable")
            values_now, labels_now = np.array(rows, np.int64)[order], held[order, 0]
            assert ((np.diff(labels_now) > 0) == (values_now[1:] > values_now[:-1])).all()
            assert (np.diff(labels_now) >= 0).all()
    return renewals[0]


@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_labels_rise_with_values_in_whatever_order_they_come(order: str, at_once: int):
    values = ORDERS[order](200)
    renewals = follow(values, at_once, spread=1 << 10)
    follow(values, at_once, spread=1 << 30)
    if at_once == 1 and order not in ("ascending", "in two places"):
        assert renewals, "there was no room left"


@pytest.mark.parametrize("at_once", [1, 10, 1000])
def test_a_clock_below_an_open_end_hardly_ever_renews(at_once: int):
    """Rows that are valid until 9999-12-31, and end one after the other: the common case."""
    values = [3_000_000, *range(5_000)]
    one = Labels(INTEGER, ordered=True)
    with counted() as renewals:
        for first in range(0, len(values), at_once):
            one.label(pa.array(values[first : first + at_once]))
            one.renewed = None
    assert renewals[0] < 5
    one._check()


@settings(max_examples=40)
@given(st.data(), st.sampled_from(sorted(SHAPES)), st.booleans())
def test_labels_of_all_types_compare_as_their_values(data: st.DataObject, name: str, narrow: bool):
    """Columns that meet are compared with each other too."""
    shape = SHAPES[name]
    schema = pa.schema([(column, kind) for column, (kind, _) in shape.columns.items()])
    options = Options(order_text=shape.options.get("order_text", False))
    types, _ = usable(schema_of(schema), (), options)
    met = may_meet(types) if shape.options.get("cross", True) else ()
    comparisons = comparisons_of(types, met, options)
    row = st.fixed_dictionaries({column: st.sampled_from(some) for column, (_, some) in shape.columns.items()})
    batches = data.draw(st.lists(st.lists(row, max_size=6), max_size=5))
    one, held, rows = Labelled.of(comparisons), np.empty((0, 0), np.int32), []
    held = np.empty((0, len(one.columns)), np.int32)
    with narrow_labels(128) if narrow else narrow_labels(1 << 30):
        for batch in batches:
            told = one.label(pa.Table.from_pylist(batch, schema))
            one.renew(held)
            held, rows = np.concatenate([held, told]), [*rows, *batch]
    for inner, outer in zip(one.comparisons, comparisons, strict=True):
        for t, left in zip(rows, held, strict=True):
            for s, right in zip(rows, held, strict=True):
                a, b = int(left[int(inner.left.name)]), int(right[int(inner.right.name)])
                x, y = t[outer.left.name], s[outer.right.name]
                assert (a == NULL) == (x is None)
                assert (b == NULL) == (y is None)
                if x is not None and y is not None:
                    assert (a == b) == (compare(x, y) == 0)
                    assert not outer.ordered or (a < b) == (compare(x, y) < 0)


def test_labels_that_are_renewed_by_a_later_column_of_the_batch_are_renewed_in_all():
    """Columns that meet share labels: the second may leave the first with old ones."""
    types = {"a": INTEGER, "b": INTEGER}
    one = Labelled.of(comparisons_of(types, may_meet(types), Options()))
    assert one.labels[0] is one.labels[1]
    held = np.empty((0, 2), np.int32)
    rows: list[tuple[int, int]] = []
    with narrow_labels(1 << 8), counted() as renewals:
        for at in range(60):
            batch = [(1000 - at, 500 + at), (at, 10**6 - at)]
            told = one.label(pa.table({"a": [a for a, _ in batch], "b": [b for _, b in batch]}))
            one.renew(held)
            held, rows = np.concatenate([held, told]), [*rows, *batch]
            flat, values = held.reshape(-1), np.array(rows).reshape(-1)
            assert (np.sign(flat[:, None] - flat[None]) == np.sign(values[:, None] - values[None])).all()
    assert renewals[0] > 3


def test_columns_that_do_not_meet_have_labels_of_their_own():
    types = {"a": INTEGER, "b": INTEGER}
    one = Labelled.of(comparisons_of(types, (), Options()))
    assert one.labels[0] is not one.labels[1]


@pytest.mark.parametrize("small", [3, 1000])
@pytest.mark.parametrize("order", ["descending", "just below the last", "to the middle", "at random"])
@pytest.mark.parametrize("cross", [False, True])
def test_a_learner_has_the_rules_of_its_table_through_renewals(order: str, small: int, cross: bool):
    values = ORDERS[order](40)
    rows = [{"id": at, "a": value, "b": values[at // 2], "c": "xyz"[at % 3]} for at, value in enumerate(values)]
    with narrow_labels(100), counted() as renewals:
        learner = Learner(rows[:6], key="id", small=small, cross=cross, shared=0, max_predicates=2)
        alive = {row["id"]: row for row in rows[:6]}
        for at in range(6, len(rows), 3):
            learner.insert(rows[at : at + 3])
            alive |= {row["id"]: row for row in rows[at : at + 3]}
            if at % 2:
                learner.delete([at - 4])
                del alive[at - 4]
            assert_exact(learner, alive.values())
            learner._check()
    assert renewals[0], "labels were given out anew"


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (pa.string(), lambda at: f"key {at:05d}"),
        (pa.decimal128(38, 2), lambda at: Decimal(10**30 + at)),
        (pa.date32(), lambda at: date(2020, 1, 1) + timedelta(at)),
    ],
)
def test_texts_wide_decimals_and_days_are_renewed_too(kind: pa.DataType, make: Callable[[int], Any]):
    schema = pa.schema([("id", pa.int64()), ("a", kind)])
    rows = [{"id": at, "a": make(at * 37 % 101)} for at in range(60)]
    with narrow_labels(1 << 7), counted() as renewals:
        learner = Learner(rows[:2], key="id", schema=schema, order_text=True, small=3)
        for row in rows[2:]:
            learner.insert([row])
        learner._check()
        assert_exact(learner, rows)
    assert renewals[0]


@pytest.mark.parametrize("kind", ["number", "text"])
def test_values_that_no_row_has_are_forgotten_and_come_back_as_new_ones(kind: str):
    """Numbers are ordered, texts are not; both columns of each share their labels."""
    make: Callable[[int], Any] = (lambda at: at) if kind == "number" else (lambda at: f"text {at}")
    schema = pa.schema([(name, pa.int64() if kind == "number" else pa.string()) for name in "ab"])
    types, _ = usable(schema_of(schema), (), Options())
    one = Labelled.of(comparisons_of(types, may_meet(types), Options()))
    draw = random.Random(7)
    rows = [{"a": make(draw.randrange(40)), "b": None if at % 7 == 0 else make(draw.randrange(40))} for at in range(60)]
    held = one.label(pa.Table.from_pylist(rows, schema))
    rows, held = rows[50:], held[50:].copy()
    one.forget(held)
    values = {value for row in rows for value in row.values() if value is not None}
    assert len(one.labels[0]._values) + len(one.labels[0]._places) == len(values)
    more = [{"a": make(at), "b": make(39 - at)} for at in range(40)]
    told = one.label(pa.Table.from_pylist(more, schema))
    one.renew(held)
    rows, held = [*rows, *more], np.concatenate([held, told])
    flat = [
        (value, int(label))
        for row, some in zip(rows, held, strict=True)
        for value, label in zip(row.values(), some, strict=True)
    ]
    for x, a in flat:
        for y, b in flat:
            if x is not None and y is not None:
                assert (a == b) == (x == y)
                assert kind == "text" or (a < b) == (x < y)
            assert (x is None) == (a == NULL)


def test_labels_keep_to_31_bits():
    assert labels._FRONT + labels._SPREAD + labels._HOT <= labels._LAST < 2**31 - 1
