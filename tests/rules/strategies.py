"""Random rules: awkward names, constants of every type, predicates in every orientation."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from hypothesis import assume
from hypothesis import strategies as st

from weever_stream.errors import RuleError
from weever_stream.rules import Column, Constant, Op, Predicate, Rule, make_rule

awkward_names = st.sampled_from(
    ["a", "b", "order date", 'q"x', "é", "select", "and", "a.b", "x`y", "(String)", "t1&t2", "2020"]
)
names = st.one_of(
    awkward_names, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).map(str.strip).filter(bool)
)
rows = st.sampled_from(["t", "s"])
ops = st.sampled_from(list(Op))
utc = st.just(dt.timezone.utc)
values = st.one_of(
    st.integers(-(10**40), 10**40),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9),
    st.sampled_from([Decimal("1e300"), Decimal("1e-300"), Decimal("0.10")]),
    st.floats(),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["it's", 'say "hi"', "a)b", "x, y", "[DC:", "2024-01-31"]),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=utc),
    st.times(),
)
columns = st.builds(Column, rows, names)
predicates = st.builds(Predicate, columns, ops, st.one_of(columns, columns, st.builds(Constant, values)))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """A valid rule of up to five predicates."""
    written = draw(st.lists(predicates, min_size=1, max_size=5))
    try:
        return make_rule("random", written)
    except RuleError:
        assume(False)
        raise
