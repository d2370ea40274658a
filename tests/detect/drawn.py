"""A small table with few values of many types, rules over it that share families, and how to make runs of few rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.oracle import Written, written
from weever_stream.detect import census, dump, flood, forest, moving
from weever_stream.detect import rows as encoded
from weever_stream.index import arrangement
from weever_stream.rules import Rule, parse_rule

__all__ = [
    "KEYS", "RULES", "SCHEMA", "VALUES", "as_written", "key_values", "rows", "rule_sets", "small_runs", "tiny_samples",
]  # fmt: skip

NAN = float("nan")
LONG = "the same first eight bytes"

KEYS: dict[str, tuple[str, ...]] = {
    "number": ("id",),
    "text": ("name",),
    "wide decimal": ("amount",),
    "two columns": ("name", "id"),
    "none": (),
}
_KEY_VALUES: dict[str, list[Any]] = {
    "id": [0, 1, 2, 3, 4, 5, 6, 7, -(2**63), 2**63 - 1, 2**53, 2**53 + 1],
    "name": ["", "a", "b", "ä", "z", "\0", LONG, LONG + " and more", "B"],
    "amount": [Decimal(f"{n}e-10") for n in (0, 1, -1, 10**10, 10**37, 10**37 + 1, -(10**37), 5 * 10**9)],
}
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a": (pa.int64(), [0, 1, 2]),
    "b": (pa.int32(), [0, 1, 2]),
    "n": (pa.int64(), [0, 1, 2, 3, 2**53, 2**53 + 1]),
    "f": (pa.float64(), [0.0, -0.0, 0.3, 1.0, 1.5, 2.0**53, NAN, float("-inf")]),
    "c": (pa.string(), ["", "x", "y", "ä"]),
    "g": (pa.large_string(), ["x", LONG, LONG + "!", LONG + "?", "z"]),
    "d": (pa.decimal128(6, 2), [Decimal("1.00"), Decimal("1.50"), Decimal("-2.00")]),
    "e": (pa.decimal128(10, 4), [Decimal("1.0000"), Decimal("1.5000"), Decimal("1.5001")]),
    "w": (pa.decimal128(38, 10), [Decimal("1.5"), Decimal(f"{10**37}e-10"), Decimal(f"{10**37 + 1}e-10")]),
    "day": (pa.date32(), [date(2024, 2, 29), date(9999, 12, 31), date(1, 1, 1)]),
    "at": (pa.timestamp("us"), [datetime(2024, 2, 29), datetime(2024, 2, 29, 0, 0, 0, 1), datetime(9999, 12, 31)]),
    "yes": (pa.bool_(), [True, False]),
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(38, 10)),
        *((column, kind) for column, (kind, _) in VALUES.items()),
    ]
)
_EXPRESSIONS = {
    "unique": "t.a = s.a and t.b = s.b",
    "unique_text": "t.c = s.c and t.g = s.g",
    "dependency": "t.a = s.a and t.c != s.c",
    "dependency_on_float": "t.f = s.f and t.a != s.a",
    "dependency_on_wide": "t.w = s.w and t.a != s.a",
    "order_in_group": "t.a = s.a and t.n < s.n and t.f > s.f",
    "order_of_texts": "t.a = s.a and t.g < s.g",
    "crossed": "t.a = s.b and t.b = s.a and t.c != s.c",
    "crossed_one_way": "t.a = s.b and t.n <= s.n",
    "no_equality": "t.n < s.n and t.f > s.f",
    "three_orders": "t.n < s.n and t.f >= s.f and t.b > s.a",
    "unequal_only": "t.a != s.a and t.b != s.b and t.c != s.c",
    "constants_on_both": "t.a = s.a and t.c = 'x' and s.c = 'y'",
    "constant_on_one": "t.c = s.c and t.a > 1",
    "no_pair_predicate": "t.a > 1 and s.b < 1",
    "filtered_alike": "t.a = s.a and t.n != s.n and t.yes = true and s.yes = true",
    "one_row": "t.n > t.a",
    "one_row_constant": "t.f > 1.0 and t.c != 'x'",
    "number_with_float": "t.n = s.f and t.a <= s.a",
    "number_below_float": "t.b = s.b and t.n < s.f",
    "scales": "t.d = s.e",
    "scales_ordered": "t.a = s.a and t.d < s.w",
    "whole_with_decimal": "t.b <= s.d and t.a = s.a",
    "day_with_time": "t.day = s.at and t.a != s.a",
    "day_before_time": "t.c = s.c and t.day < s.at",
    "booleans": "t.yes < s.yes and t.b = s.b",
    "reads_the_id": "t.id < s.id and t.a = s.a and t.b != s.b",
    "reads_the_name": "t.name > s.name and t.c = s.c",
    "texts_of_two_widths": "t.c <= s.g and t.a = s.a",
    "bounds_that_are_one_double": "t.a = s.a and t.f > 0.3 and t.f >= 0.30000000000000001",
    "bounds_that_are_two_integers": "t.n >= 9007199254740992 and t.n != 9007199254740992 and t.a = s.a and s.n < 2.5",
    "bounds_across_a_double": "t.n = s.f and t.n > 9007199254740992 and s.f <= 9007199254740992",
}
RULES: dict[str, Rule] = {name: parse_rule(text, name=name) for name, text in _EXPRESSIONS.items()}
_TEXTS = {rule.fingerprint: _EXPRESSIONS[name] for name, rule in RULES.items()}


def as_written(rules: Iterable[Rule]) -> list[Written]:
    """Some of `RULES`, under whatever name, for the oracle."""
    return [written(_TEXTS[rule.fingerprint], rule.name) for rule in rules]


rule_sets = st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=6, unique=True).map(
    lambda names: [RULES[name] for name in names]
)
rows = st.fixed_dictionaries(
    {column: st.sampled_from([*values, *values, None]) for column, (_, values) in VALUES.items()}
)
"""Rows without their key columns."""


def key_values(key: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Values of the key columns, few enough to meet again, and of the columns that could have been the key."""
    return st.fixed_dictionaries(
        {name: st.sampled_from([*values, *([] if name in key else [None])]) for name, values in _KEY_VALUES.items()}
    )


@contextmanager
def small_runs(batch: int = 3, tail: int = 9) -> Iterator[None]:
    """Batches of more than a few rows become runs, and runs are arranged with care, as large ones are.

    The engine's sizes suit real tables; with them a random test would hardly ever see two runs.
    """
    with other_sizes([(forest, "SMALL", batch), (forest, "CAPACITY", tail), (arrangement, "_TRY_FROM", 8)]):
        yield


@contextmanager
def tiny_samples(held: int = 1 << 21, many: int = 128) -> Iterator[None]:
    """Levels that matter among two dozen rows; batches that are held or not, trees made for counting or not."""
    sizes: list[tuple[Any, str, int]] = [(module, "FIRST", 1) for module in (flood, encoded, dump)]
    sizes += [(flood, "_SAMPLE", 1), (moving, "_PAIRS_HELD", held), (census, "_MANY", many)]
    with other_sizes(sizes):
        yield


@contextmanager
def other_sizes(sizes: list[tuple[Any, str, int]]) -> Iterator[None]:
    """Constants of modules, by module and name, with other values for a while."""
    before = [(module, name, getattr(module, name)) for module, name, _ in sizes]
    try:
        for module, name, size in sizes:
            setattr(module, name, size)
        yield
    finally:
        for module, name, size in before:
            setattr(module, name, size)
