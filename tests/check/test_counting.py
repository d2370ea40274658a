"""Counting agrees with nested loops, in each of its ways: by value, by row, by boxes.

Hypothesis draws rules of every shape; the exhaustive test below walks all pairs of order operators over ties and
duplicates, where sweeps go wrong first; the last ones hold totals that no loop could list.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.check.drawn import rules, tables
from tests.check.oracle import involved_rows, violations_of
from weever_stream.check import check
from weever_stream.check.boxes import Boxes
from weever_stream.check.count import Tally, count_rule
from weever_stream.check.exact import ExactCodes
from weever_stream.check.sides import sides_of
from weever_stream.rules import Rule, bind, parse_rule, schema_of

_ORDERS = ["<", "<=", ">", ">="]


def tally(rule: Rule, table: pa.Table, keep: bool = False) -> Tally:
    bound = bind(rule, schema_of(table.schema))
    return count_rule(bound, ExactCodes(table, [bound]), keep)


def truth(text: str, table: pa.Table) -> tuple[int, int]:
    pairs = violations_of(text, table)
    return len(pairs), involved_rows(pairs)


@settings(max_examples=180, deadline=None)
@given(rules(), tables())
def test_counting_agrees_with_nested_loops(text: str, table: pa.Table) -> None:
    assert tally(parse_rule(text), table)[:2] == truth(text, table)


@settings(max_examples=100, deadline=None)
@given(rules(), tables())
def test_rows_kept_for_listing_are_those_in_a_pair(text: str, table: pa.Table) -> None:
    rule = parse_rule(text)
    found, pairs = tally(rule, table, keep=True), violations_of(text, table)
    assert found[:2] == (len(pairs), involved_rows(pairs))
    if found.left is not None and found.right is not None:
        both_ways = pairs | {(j, i) for i, j in pairs} if rule.symmetric else pairs
        assert set(found.left) == {left for left, _ in both_ways}
        assert set(found.right) == {right for _, right in both_ways}


@settings(max_examples=100, deadline=None)
@given(rules(most=6), tables(most=9))
def test_boxes_count_what_sweeps_count(text: str, table: pa.Table) -> None:
    rule = parse_rule(text)
    if rule.one_row:
        return
    bound = bind(rule, schema_of(table.schema))
    sides = sides_of(bound, ExactCodes(table, [bound]))
    if 0 in sides.sizes:
        return
    left, right = Boxes(sides).partners()
    assert left.sum() == right.sum() == len(violations_of(text, table)) * (2 if rule.symmetric else 1)


@pytest.mark.parametrize(("first", "second"), list(product(_ORDERS, _ORDERS)))
@pytest.mark.parametrize("group", ["", "t.g = s.g and "])
@pytest.mark.parametrize("crossed", [False, True])
def test_two_orders_over_ties_and_duplicates(first: str, second: str, group: str, crossed: bool) -> None:
    random = np.random.default_rng(5)
    table = pa.table({name: random.integers(0, high, 60) for name, high in (("g", 3), ("x", 5), ("y", 4), ("z", 5))})
    text = f"{group}t.x {first} s.{'z' if crossed else 'x'} and t.y {second} s.y"
    assert tally(parse_rule(text), table)[:2] == truth(text, table)


@pytest.mark.parametrize("wide", [2**62, 2**63 - 1])
def test_values_too_wide_to_be_packed_are_counted_by_rank(wide: int) -> None:
    random = np.random.default_rng(6)
    values = {name: random.choice([-wide, -1, 0, 7, wide], 50) for name in "abcd"}
    table = pa.table(values)
    for text in (
        "t.a = s.a and t.b = s.b and t.c = s.c and t.d != s.d",
        "t.a = s.a and t.b < s.b and t.c > s.c",
        "t.a = s.b and t.c <= s.d",
        "t.a = s.b and t.c <= s.d and t.b > s.a",
        "t.a != s.a and t.b != s.b and t.c != s.c",
    ):
        assert tally(parse_rule(text), table)[:2] == truth(text, table), text


def test_a_row_that_satisfies_a_crossed_rule_with_itself_is_no_violation() -> None:
    table = pa.table({"id": [100, 101, 102], "sid": [100, 102, 101]})
    assert tally(parse_rule("t.id = s.sid and t.sid = s.id", name="supervise"), table)[:2] == (1, 2)


def test_billions_of_pairs_are_counted_exactly() -> None:
    n = 200_000
    table = pa.table({"k": np.zeros(n, np.int64), "x": np.arange(n), "y": np.arange(n)[::-1].copy()})
    every = n * (n - 1) // 2
    assert tally(parse_rule("t.k = s.k", name="a"), table)[:2] == (every, n)
    assert tally(parse_rule("t.k = s.k and t.x < s.x and t.y > s.y", name="b"), table)[:2] == (every, n)
    assert tally(parse_rule("t.k = s.k and t.x != s.y", name="c"), table).violations == 2 * every - n
    assert tally(parse_rule("t.k = s.k and t.x < s.x", name="d"), table)[:2] == (every, n)


def test_an_empty_table_has_no_violations() -> None:
    table = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    for text in ("t.a = s.a", "t.a < s.a and t.b > s.b", "t.a = s.a and t.b != s.b", "t.a > 3"):
        assert tally(parse_rule(text, name="empty"), table)[:2] == (0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_rules_that_share_a_grouping_count_as_each_does_alone_with_nulls_and_filters(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = {
        name: pa.array(random.integers(0, high, 500), mask=random.random(500) < 0.1)
        for name, high in (("k", 60), ("m", 5), ("a", 3), ("b", 3), ("c", 40))
    }
    table = pa.table(columns)
    texts = {
        "one": "t.k = s.k and t.a != s.a",
        "two": "t.k = s.k and t.b != s.b",
        "three": "t.k = s.k",
        "four": "t.k = s.k and t.b != s.b and t.a = 1 and s.a = 1",
        "five": "t.k = s.k and t.m = s.m and t.c != s.c",
        "six": "t.k = s.k and t.m = s.m",
        "seven": "t.k = s.k and t.c < s.c and t.a > s.a",
        "eight": "t.k = s.k and t.a != s.a and t.m > 2",
    }
    rules = [parse_rule(text, name=name) for name, text in texts.items()]
    together = check(rules, table, mode="count")
    for rule, shared in zip(rules, together.results, strict=True):
        alone = check(rule, table, mode="count").results[0]
        assert (shared.violations, shared.rows_involved) == (alone.violations, alone.rows_involved), rule.name
        assert sum(len(piece.pairs) for piece in check(rules, table).violations() if piece.rule.name == rule.name) == (
            alone.violations
        )
