"""Random tables and rules for Hypothesis: every comparable type, few distinct values, nulls, crossed columns, filters."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from weever_stream.errors import RuleError
from weever_stream.rules import bind, parse_rule, schema_of

__all__ = ["COLUMNS", "predicates", "rules", "tables"]

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "a": (pa.int64(), [0, 1, 2, 3]),
    "b": (pa.int32(), [0, 1, 2, 3]),
    "big": (pa.int64(), [2**63 - 1, -(2**63), 2**53, 2**53 + 1]),
    "f": (pa.float64(), [0.0, -0.0, 0.3, 1.5, 2.0**53, float("nan"), float("inf"), -float("inf")]),
    "g": (pa.float32(), [0.0, 1.5, -2.0, float("nan")]),
    "s": (pa.string(), ["", "a", "ä", "b", "aa"]),
    "z": (pa.large_string(), ["", "a", "ä", "z"]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 5, 30, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc)]),
    "d": (pa.decimal128(10, 2), [Decimal("0.30"), Decimal("1.00"), Decimal("1.10"), Decimal("-3.00")]),
    "e": (pa.decimal128(38, 4), [Decimal("1.0000"), Decimal("1.1000"), Decimal(10) ** 30]),
}  # fmt: skip
_COMPARABLE = [
    {"a", "b", "big"},
    {"f", "g", "a"},
    {"big", "f"},
    {"d", "f"},
    {"s", "z"},
    {"flag"},
    {"day"},
    {"at"},
    {"d", "e", "b"},
]
_SCHEMA = schema_of(pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()]))
_OPS = ["=", "!=", "<", "<=", ">", ">="]
_FILTERS = ["t.a > 0", "s.a <= 2", "t.b != 1", "s.b < 3", "t.s = 'a'", "t.a >= t.b", "s.f >= 0.0"]
_CLOSE = [
    "0.3",
    "0.30000000000000001",
    "double '0.3'",
    "9007199254740992",
    "9007199254740993",
    "double '9007199254740992'",
]
"""Constants that differ as decimals and are one as doubles."""


@st.composite
def tables(draw: st.DrawFn, most: int = 12) -> pa.Table:
    """A small table of all columns."""
    rows = draw(st.integers(0, most))
    return pa.table(
        {
            name: pa.array(
                draw(st.lists(st.sampled_from([*values, *values, None]), min_size=rows, max_size=rows)), kind
            )
            for name, (kind, values) in COLUMNS.items()
        }
    )


@st.composite
def predicates(draw: st.DrawFn) -> str:
    """A predicate over two rows, often on one column."""
    group = sorted(draw(st.sampled_from(_COMPARABLE)))
    left = draw(st.sampled_from(group))
    right = left if draw(st.integers(0, 2)) else draw(st.sampled_from(group))
    return f"t.{left} {draw(st.sampled_from(_OPS))} s.{right}"


@st.composite
def bounds(draw: st.DrawFn) -> list[str]:
    """Some bounds on one column, by constants that only its type tells apart."""
    column = draw(st.sampled_from(["t.f", "s.f", "t.big", "s.big", "t.d"]))
    one = st.builds(lambda op, constant: f"{column} {op} {constant}", st.sampled_from(_OPS), st.sampled_from(_CLOSE))
    return draw(st.lists(one, min_size=1, max_size=3))


@st.composite
def rules(draw: st.DrawFn, most: int = 4) -> str:
    """The text of a rule that says something: contradictory and trivial ones are refused."""
    from hypothesis import assume

    parts = draw(st.lists(predicates(), min_size=1, max_size=most))
    parts += draw(st.lists(st.sampled_from(_FILTERS), max_size=2, unique=True)) if draw(st.booleans()) else []
    parts += draw(bounds()) if draw(st.integers(0, 2)) == 0 else []
    text = " and ".join(draw(st.permutations(parts)))
    try:
        bind(parse_rule(text), _SCHEMA)
    except RuleError:
        assume(False)
    return text
