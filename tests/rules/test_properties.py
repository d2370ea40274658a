"""Laws of the rule language, on random rules and on garbage.

Round trips catch a notation that cannot say what was meant; the shuffles catch a normal form that depends on spelling;
the truth tables catch a simplification that changes the meaning; the garbage catches every error that is not ours.
"""

from __future__ import annotations

import itertools
import math
import pickle
import random
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.oracle import satisfies
from tests.rules.strategies import rules
from weever_stream.errors import RuleError
from weever_stream.rules import (
    NOTATIONS,
    Column,
    ColumnType,
    Constant,
    Op,
    Predicate,
    bind,
    make_rule,
    parse_rule,
    read_rules_text,
    type_of_name,
    write_rule,
    write_sql,
)
from weever_stream.rules.canonical import exchanged
from weever_stream.rules.literals import type_of_literal

fast = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize("notation", [notation for notation in NOTATIONS if notation != "sql"])
@fast
@given(rule=rules())
def test_reading_what_was_written_gives_the_same_rule(notation, rule):
    again = parse_rule(write_rule(rule, notation), name=rule.name)
    assert again == rule
    assert again.predicates == rule.predicates


@fast
@given(rule=rules(), data=st.data())
def test_the_fingerprint_does_not_depend_on_the_order_or_direction_of_predicates(rule, data):
    shuffled = data.draw(st.permutations(rule.predicates))
    flips = data.draw(st.lists(st.booleans(), min_size=len(shuffled), max_size=len(shuffled)))
    written = [
        Predicate(p.right, p.op.flipped(), p.left) if flip else p for p, flip in zip(shuffled, flips, strict=True)
    ]
    repeated = data.draw(st.sampled_from(written))
    assert make_rule("random", [*written, repeated]) == rule


@fast
@given(rule=rules())
def test_the_fingerprint_does_not_depend_on_which_row_is_called_t(rule):
    other = make_rule("random", exchanged(rule.predicates))
    assert other.fingerprint == rule.fingerprint
    assert other.symmetric == rule.symmetric
    if not rule.one_row:
        assert rule.symmetric == (other.predicates == rule.predicates)


@fast
@given(rule=rules())
def test_a_rule_survives_pickling(rule):
    again = pickle.loads(pickle.dumps(rule))
    assert (again.name, again.fingerprint, again.symmetric) == (rule.name, rule.fingerprint, rule.symmetric)
    assert write_rule(again) == write_rule(rule)


TYPES = [type_of_name(name) for name in ("string", "bigint", "uint64", "double", "boolean", "date", "time", "timestamp", "timestamp_ntz", "decimal(38,0)", "decimal(38,38)")] + [ColumnType("duration", unit="ns"), "binary"]  # fmt: skip


@fast
@given(rule=rules(), data=st.data())
def test_binding_gives_constants_of_the_domain_or_a_rule_error(rule, data):
    schema = {name: data.draw(st.sampled_from(TYPES)) for name in rule.columns}
    try:
        bound = bind(rule, schema)
    except RuleError:
        return
    for typed in (*bound.pairs, *bound.left_filter, *bound.right_filter):
        if isinstance(typed.right, Constant):
            assert type_of_literal(typed.right.value).kind in (
                typed.domain.kind,
                {"uint64": "integer"}.get(typed.domain.kind),
            ) or (typed.domain.kind in ("decimal", "uint64") and isinstance(typed.right.value, int | Decimal))
        assert typed.domain.precision <= 76


@fast
@given(rule=rules())
def test_every_rule_can_be_written_as_sql(rule):
    assert write_sql(rule, table="x", key=["a", "b"]).startswith("SELECT t.*")


COMPARE = {Op.EQ: eq, Op.NE: ne, Op.LT: lt, Op.LE: le, Op.GT: gt, Op.GE: ge}
VALUES = (None, 0, 1, 2)
small_columns = st.builds(Column, st.sampled_from("ts"), st.sampled_from("ab"))
small_operands = st.one_of(small_columns, small_columns, st.builds(Constant, st.integers(0, 2)))
small_predicates = st.builds(Predicate, small_columns, st.sampled_from(list(Op)), small_operands)


def satisfied(predicates, t, s):
    """The plain meaning of a rule, nulls and all."""

    def value(operand):
        return operand.value if isinstance(operand, Constant) else (t if operand.row == "t" else s)[operand.name]

    for predicate in predicates:
        left, right = value(predicate.left), value(predicate.right)
        if left is None or right is None or not COMPARE[predicate.op](left, right):
            return False
    return True


def all_pairs():
    small_rows = [dict(zip("ab", pair, strict=True)) for pair in itertools.product(VALUES, repeat=2)]
    return itertools.product(small_rows, repeat=2)


@settings(max_examples=200, deadline=None)
@given(written=st.lists(small_predicates, min_size=1, max_size=5))
def test_the_normal_form_denies_the_same_pairs_as_what_was_written(written):
    try:
        rule = make_rule("small", written)
    except RuleError as error:
        if "never" in error.message:
            assert not any(satisfied(written, t, s) for t, s in all_pairs())
        return
    only_s = all(column.row == "s" for predicate in written for column in predicate.columns)
    for t, s in all_pairs():
        assert satisfied(rule.predicates, *((s, t) if only_s else (t, s))) == satisfied(written, t, s)
        if rule.symmetric:
            assert satisfied(rule.predicates, t, s) == satisfied(rule.predicates, s, t)


# Values and constants that differ as decimals and are one as doubles. Which they are only the column's type tells.
NUMBERS = {
    "bigint": [0, 2**53, 2**53 + 1, 2**53 + 2],
    "decimal(38,17)": [Decimal("0.3"), Decimal("0.30000000000000001"), Decimal(2**53), Decimal(2**53 + 1)],
    "double": [0.3, math.nextafter(0.3, 1), 2.0**53, 2.0**53 + 2, math.nan, math.inf],
}
CLOSE = [
    *(Decimal(text) for text in ("0.3", "0.30000000000000001", "0.300000000000000016653345369377")),
    *(2**53 + n for n in range(-1, 3)),
    *(0.3, 2.0**53, math.nan, math.inf),
]
close_columns = st.builds(Column, st.sampled_from("ts"), st.sampled_from("abc"))
close_operands = st.one_of(
    close_columns, st.builds(Constant, st.sampled_from(CLOSE)), st.builds(Constant, st.sampled_from(CLOSE))
)
close_predicates = st.builds(Predicate, close_columns, st.sampled_from(list(Op)), close_operands)

A, B, MIXED = Column("t", "a"), Column("t", "b"), ("bigint", "double", "bigint")


@settings(max_examples=300, deadline=None)
@given(
    written=st.lists(close_predicates, min_size=1, max_size=3),
    equalities=st.lists(st.builds(Predicate, close_columns, st.just(Op.EQ), close_columns), max_size=3),
    kinds=st.tuples(*[st.sampled_from(sorted(NUMBERS))] * 3),
)
@example(
    [Predicate(A, Op.LT, Column("s", "a"))], [Predicate(A, Op.EQ, B), Predicate(B, Op.EQ, Column("s", "a"))], MIXED
)
@example([Predicate(A, Op.GT, Constant(2**53)), Predicate(B, Op.LE, Constant(2**53))], [Predicate(A, Op.EQ, B)], MIXED)
@example([Predicate(B, Op.GT, Constant(CLOSE[0])), Predicate(B, Op.GE, Constant(CLOSE[1]))], [], MIXED)
def test_a_bound_rule_denies_the_same_pairs_as_what_was_written(written, equalities, kinds):
    """The oracle gets the predicates as drawn. What is refused as impossible has no pair, and what is kept has the same."""
    types = dict(zip("abc", map(type_of_name, kinds), strict=True))
    written = [*written, *equalities]
    chance = random.Random(5)
    drawn = [
        {name: chance.choice([None, *NUMBERS[kind]]) for name, kind in zip("abc", kinds, strict=True)}
        for _ in range(40)
    ]
    truth = {
        (i, j)
        for (i, t), (j, s) in itertools.product(enumerate(drawn), repeat=2)
        if all(_satisfied(predicate, t, s) for predicate in written)
    }
    try:
        bound = bind(make_rule("close", written), types)
    except RuleError as error:
        if "always" not in error.message:
            assert not truth, "only what no pair satisfies is refused"
        return
    turned = all(column.row == "s" for predicate in written for column in predicate.columns)
    typed = (*bound.pairs, *bound.left_filter, *bound.right_filter)
    found = {
        (i, j)
        for (i, t), (j, s) in itertools.product(enumerate(drawn), repeat=2)
        if all(_satisfied(predicate, *((s, t) if turned else (t, s))) for predicate in typed)
    }
    assert found == truth


def _satisfied(predicate, t, s):
    left, right = (
        side.value if isinstance(side, Constant) else (t if side.row == "t" else s)[side.name]
        for side in (predicate.left, predicate.right)
    )
    return satisfies(left, predicate.op, right)


TOKENS = ["t", "s", "t1", "t2", ".", "a", "b", "=", "<", ">=", "!=", "and", "or", "not", "!", "¬", "(", ")", "{", "}", "'x'", "'", '"', "`", "1", "-1.5e3", "1e99999", "date '2024-01-01'", "date '9'", "true", "&", "EQ(", ",", "[DC:", "(String)", "]", "∧", "≠", "->", "\n", "\x00", "é", "\ud800"]  # fmt: skip
garbage = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(TOKENS), max_size=14).map(" ".join),
    st.lists(st.sampled_from(TOKENS), max_size=14).map("".join),
)


@settings(max_examples=200, deadline=None)
@given(text=garbage)
def test_no_text_raises_anything_but_a_rule_error(text):
    try:
        parse_rule(text, filter=text if len(text) % 3 == 0 else None)
    except RuleError as error:
        error.render()


PIECES = ["table: x\n", "key: a\n", "rules:\n", "  - name: r\n", "    deny: t.a = s.a\n", "    unique: [a, b]\n", "    fd: a -> b\n", "    order: {by: a, of: b}\n", "  - {name: q, deny: t.b < s.b}\n", "rules: []\n", "&x ", "*x ", "- ", "{", "}", "[", "]", ": ", "!!python/object:os.system ", "!t ", "<<: *x\n", "\t", "'", '"', "|\n", ">\n", "---\n", "...\n", "%", "null\n", "~", "columns: {a: int}\n", "columns: {a: foo}\n", "sinks: 5\n", "\x00", "\u2028", "\x85", "\r\n", "é", "? "]  # fmt: skip
files = st.one_of(
    st.text(max_size=60), st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
)


@settings(max_examples=200, deadline=None)
@given(content=files, listing=st.booleans())
def test_no_file_raises_anything_but_a_rule_error(content, listing):
    try:
        read_rules_text(content, path="fuzz.yaml", listing=listing)
    except RuleError as error:
        error.render()
