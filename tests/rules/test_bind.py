"""Binding: which type a predicate is compared in, and which Python value its constant becomes."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest

from weever_stream.errors import RuleError, RuleErrors, TypeMismatchError
from weever_stream.rules import (
    Column,
    Constant,
    Op,
    bind,
    bind_all,
    fd,
    order,
    parse_rule,
    read_rules_text,
    type_of_name,
)
from weever_stream.rules.bind import TypedPredicate

NAMES = ("string", "int", "uint64", "double", "boolean", "date", "time", "timestamp", "timestamp_ntz")
SCHEMA = {name: type_of_name(name) for name in NAMES} | {"decimal": type_of_name("decimal(10,2)")}
UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("text", "value", "domain"),
    [
        ("t.int > 5", 5, "bigint"),
        ("t.int > 1.5", Decimal("1.5"), "decimal(20,1)"),
        ("t.int > 9223372036854775808", Decimal(2**63), "decimal(19,0)"),
        ("t.int < double 'NaN'", math.nan, "double"),
        ("t.uint64 > 18446744073709551615", 2**64 - 1, "uint64"),
        ("t.uint64 > -1", Decimal(-1), "decimal(20,0)"),
        ("t.decimal > 1.005", Decimal("1.005"), "decimal(11,3)"),
        ("t.decimal > 7", Decimal(7), "decimal(21,2)"),
        ("t.double > 0.1", 0.1, "double"),
        ("t.double > 3", 3.0, "double"),
        ("t.double < 1e300", 1e300, "double"),
        ("t.double = double '-inf'", -math.inf, "double"),
        ("t.boolean = true", True, "boolean"),
        ("t.string > 'abc'", "abc", "string"),
        ("t.string = '2024-01-31'", "2024-01-31", "string"),
        ("t.date > '2024-01-31'", dt.date(2024, 1, 31), "date"),
        ("t.date > date '0001-01-01'", dt.date(1, 1, 1), "date"),
        ("t.date > '2024-01-31 10:00'", dt.datetime(2024, 1, 31, 10), "timestamp_ntz"),
        ("t.timestamp_ntz < '9999-12-31'", dt.datetime(9999, 12, 31), "timestamp_ntz"),
        ("t.timestamp_ntz < '2024-01-31T10:00:00.5'", dt.datetime(2024, 1, 31, 10, 0, 0, 500_000), "timestamp_ntz"),
        ("t.timestamp < '2024-01-31T10:00:00Z'", dt.datetime(2024, 1, 31, 10, tzinfo=UTC), "timestamp"),
        ("t.timestamp < '2024-01-31 10:00:00+0530'", dt.datetime(2024, 1, 31, 4, 30, tzinfo=UTC), "timestamp"),
        ("t.timestamp < timestamp '2024-01-31 10:00 -08'", dt.datetime(2024, 1, 31, 18, tzinfo=UTC), "timestamp"),
        ("t.time >= '10:30'", dt.time(10, 30), "time"),
    ],
)
def test_a_constant_becomes_a_value_of_the_type_it_is_compared_in(text, value, domain):
    (typed,) = bind(parse_rule(text), SCHEMA).left_filter
    assert isinstance(typed.right, Constant)
    assert type(typed.right.value) is type(value)
    assert typed.right.value == value or (math.isnan(value) and math.isnan(typed.right.value))
    assert str(typed.domain) == domain


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("t.int = s.uint64", "decimal(20,0)"),
        ("t.int < s.double", "double"),
        ("t.int < s.decimal", "decimal(21,2)"),
        ("t.date < s.timestamp_ntz", "timestamp_ntz"),
        ("t.boolean < s.boolean", "boolean"),
    ],
)
def test_columns_are_compared_in_their_common_type(text, domain):
    (typed,) = bind(parse_rule(text), SCHEMA).pairs
    assert str(typed.domain) == domain


def test_predicates_are_sorted_into_pairs_and_one_filter_for_each_row():
    bound = bind(parse_rule("t.int = s.int and s.double > t.double and s.string = 'x' and t.int < t.double"), SCHEMA)
    assert [(p.left.name, p.op) for p in bound.pairs] == [("int", Op.EQ), ("double", Op.LT)]
    assert bound.left_filter == (
        TypedPredicate(Column("t", "double"), Op.GT, Column("t", "int"), type_of_name("double")),
    )
    assert bound.right_filter == (TypedPredicate(Column("s", "string"), Op.EQ, Constant("x"), type_of_name("string")),)


def filtered(text):
    """What is left of the bounds on t, in the columns' types."""
    return [(p.op.symbol, p.right.value) for p in bind(parse_rule(text), SCHEMA).left_filter]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("t.int > 3 and t.int > 5 and t.int <= 9 and t.int < 9.5", [("<=", 9), (">", 5)]),
        ("t.int != 2 and t.int > 5", [(">", 5)]),
        ("t.int = 7 and t.int > 5 and t.int != 3", [("=", 7)]),
        ("t.int >= 5 and t.int <= 7 and t.int != 7 and t.int != 6", [("!=", 6), ("<", 7), (">=", 5)]),
        ("t.string > 'a' and t.string > 'b'", [(">", "b")]),
        ("t.date > '2024-01-01' and t.date > '2024-01-02 10:00'", [(">", dt.datetime(2024, 1, 2, 10))]),
        ("t.timestamp > '2024-01-01T00:00:00Z' and t.timestamp > '2024-01-01T00:00:00-01:00'", [(">", dt.datetime(2024, 1, 1, 1, tzinfo=UTC))]),
        # One double, so the bound that excludes it is the tighter one.
        ("t.double > 0.3 and t.double >= 0.30000000000000001", [(">", 0.3)]),
        ("t.double >= 0.3 and t.double <= 0.30000000000000001", [("=", 0.3)]),
        ("t.double = 0.3 and t.double = 0.30000000000000001", [("=", 0.3)]),
        # Two decimals.
        ("t.decimal > 0.3 and t.decimal >= 0.30000000000000001", [(">=", Decimal("0.30000000000000001"))]),
        # A whole number meets a decimal exactly and a double as one: neither bound says what the other does.
        ("t.int > 9007199254740992 and t.int <= double '9007199254740992'", [("<=", 2.0**53), (">", 2**53)]),
    ],
)  # fmt: skip
def test_bounds_are_reduced_to_the_tightest_in_the_type_of_the_column(text, left):
    assert sorted(filtered(text)) == left


@pytest.mark.parametrize(
    "text",
    [
        # The integer 2^53 + 1 equals the double 2^53.
        "t.int = s.double and t.int > 9007199254740992 and s.double <= 9007199254740992",
        "t.int = t.double and t.double = s.int and t.int < s.int",
        "t.int > 9007199254740992 and t.int <= double '9007199254740992'",
    ],
)
def test_equality_with_a_double_is_not_passed_on(text):
    assert bind(parse_rule(text), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "t.int = s.int and t.int > 9007199254740992 and s.int <= 9007199254740992",
        "t.int = t.uint64 and t.uint64 = s.int and t.int < s.int",
        "t.double = s.double and s.double > 0.3 and t.double <= 0.30000000000000001",
        "t.double > 0.3 and t.double <= 0.30000000000000001",
        "t.double = 0.3 and t.double != 0.30000000000000001",
        "t.date = date '2024-01-31' and t.date > timestamp_ntz '2024-01-31 00:00:00'",
    ],
)
def test_what_no_pair_can_satisfy_in_these_types_is_refused(text):
    with pytest.raises(RuleError, match="never be violated"):
        bind(parse_rule(text), SCHEMA)


def test_all_errors_of_all_rules_are_raised_together():
    rules = [
        parse_rule("t.x = s.x", name="one"),
        parse_rule("t.int = s.int"),
        parse_rule("t.int = s.string", name="two"),
    ]
    with pytest.raises(RuleErrors) as caught:
        bind_all(rules, SCHEMA)
    one, two = caught.value.errors
    assert (one.place.rule, two.place.rule) == ("one", "two")
    assert isinstance(two, TypeMismatchError)


FILE = "table: x\nrules:\n  - {name: zip, fd: 'zip, country -> city, state'}\n  - {name: area, order: 'zip -> a, b within c'}"


@pytest.mark.parametrize("rules", [read_rules_text(FILE).rules, (*fd(["zip", "country"], ["city", "state"], name="zip"), *order("zip", ["a", "b"], within="c", name="area"))], ids=["file", "python"])  # fmt: skip
def test_a_missing_column_is_reported_once_for_each_place_that_names_it(rules):
    schema = dict.fromkeys(["city", "state", "a", "b", "c"], type_of_name("string"))
    with pytest.raises(RuleErrors) as caught:
        bind_all(rules, schema)
    assert sorted((e.place.rule.partition(".")[0], e.message) for e in caught.value.errors) == [
        ("area", "there is no column zip"),
        ("zip", "there is no column country"),
        ("zip", "there is no column zip"),
    ]


def test_a_missing_column_of_a_filter_is_reported_once():
    rules = read_rules_text("table: x\nrules:\n  - {name: q3, fd: a -> b, filter: t.kk = 1}\n").rules
    with pytest.raises(RuleError) as caught:
        bind_all(rules, dict.fromkeys(["a", "b"], type_of_name("string")))
    assert not isinstance(caught.value, RuleErrors)
    assert (caught.value.place.line, caught.value.place.column) == (3, 36)


def test_one_error_is_raised_as_itself():
    with pytest.raises(RuleError) as caught:
        bind_all([parse_rule("t.x = s.x")], SCHEMA)
    assert not isinstance(caught.value, RuleErrors)


def test_an_empty_schema_is_said_to_be_empty():
    with pytest.raises(RuleError, match="has no columns"):
        bind(parse_rule("t.x = s.x"), {})


def test_a_header_that_says_more_than_the_name_is_found():
    with pytest.raises(RuleError) as caught:
        bind(
            parse_rule("t.ident = s.ident"), {"ident(String)": type_of_name("string"), "identity": type_of_name("int")}
        )
    assert "did you mean" in (caught.value.hint or "")
    with pytest.raises(RuleError) as caught:
        bind(
            parse_rule("t.id = s.id"), {"id (a long remark on it)": type_of_name("string"), "zip": type_of_name("int")}
        )
    assert caught.value.hint == "did you mean id (a long remark on it)?"
