"""Random tables and rules for Hypothesis: every comparable type, few distinct values, nulls, crossed columns, filters."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from weever_stream.errors import RuleError
from weever_stream.rules import Rule, parse_rule

__all__ = ["COLUMNS", "predicates", "rules", "tables"]

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "a": (pa.int64(), [0, 1, 2, 3]),
    "b": (pa.int32(), [0, 1, 2, 3]),
    "big": (pa.int64(), [2**63 - 1, -(2**63), 2**53, 2**53 + 1]),
    "f": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")]),
    "g": (pa.float32(), [0.0, 1.5, -2.0, float("nan")]),
    "s": (pa.string(), ["", "a", "ä", "b", "aa"]),
    "z": (pa.large_string(), ["", "a", "ä", "z"]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 5, 30, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc)]),
    "d": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("1.10"), Decimal("-3.00")]),
    "e": (pa.decimal128(38, 4), [Decimal("1.0000"), Decimal("1.1000"), Decimal(10) ** 30]),
}  # fmt: skip
_COMPARABLE = [{"a", "b", "big"}, {"f", "g", "a"}, {"s", "z"}, {"flag"}, {"day"}, {"at"}, {"d", "e", "b"}]
_OPS = ["=", "!=", "<", "<=", ">", ">="]
_FILTERS = ["t.a > 0", "s.a <= 2", "t.b != 1", "s.b < 3", "t.s = 'a'", "t.a >= t.b", "s.f >= 0.0"]


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
def rules(draw: st.DrawFn, most: int = 4) -> Rule:
    """A rule that says something: contradictory and trivial ones are refused where rules are read."""
    from hypothesis import assume

    parts = draw(st.lists(predicates(), min_size=1, max_size=most))
    parts += draw(st.lists(st.sampled_from(_FILTERS), max_size=2, unique=True)) if draw(st.booleans()) else []
    try:
        return parse_rule(" and ".join(parts), name="drawn")
    except RuleError:
        assume(False)
        raise
