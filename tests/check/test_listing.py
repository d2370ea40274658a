"""Listing gives exactly the pairs that nested loops find; limits and mode `first` give some of them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.drawn import rules, tables
from tests.check.oracle import violations_of
from weever_stream.check import Report, check
from weever_stream.detect.identity import violation_id
from weever_stream.rules import fd, parse_rule, unique


def pairs_in(report: Report) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    for piece in report.violations():
        rights = [None] * len(piece.pairs) if piece.pairs.right is None else piece.pairs.right.tolist()
        found += zip(piece.pairs.left.tolist(), rights, strict=True)
    return found


@settings(max_examples=120, deadline=None)
@given(rules(), tables())
def test_listing_agrees_with_nested_loops(text: str, table: pa.Table) -> None:
    report = check(parse_rule(text), table, threads=1)
    found = pairs_in(report)
    assert len(found) == len(set(found)) == report.results[0].violations
    assert set(found) == violations_of(text, table)


@settings(max_examples=70, deadline=None)
@given(rules(), tables())
def test_a_limit_lists_the_first_in_table_order_and_keeps_counts(text: str, table: pa.Table) -> None:
    truth = violations_of(text, table)
    report = check(parse_rule(text), table, limit=3, threads=1)
    assert pairs_in(report) == sorted(truth)[:3]
    assert report.results[0].violations == len(truth)


@settings(max_examples=70, deadline=None)
@given(rules(), tables())
def test_mode_first_finds_a_violation_if_there_is_one(text: str, table: pa.Table) -> None:
    truth = violations_of(text, table)
    report = check(parse_rule(text), table, mode="first", threads=1)
    assert report.results[0].violations == int(bool(truth))
    assert set(pairs_in(report)) <= truth
    assert report.exit_code == int(bool(truth))


def test_mode_first_reads_no_further_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    from weever_stream.check import engine

    monkeypatch.setattr(engine, "_FIRST_PREFIX", 10)
    keys = np.arange(1000)
    keys[13] = keys[12]
    keys[999] = keys[998]
    report = check(parse_rule("t.k = s.k", name="unique"), pa.table({"k": keys}), mode="first")
    assert report.rows == 20
    assert pairs_in(report) == [(12, 13)]
    clean = check(parse_rule("t.k = s.k", name="unique"), pa.table({"k": np.arange(1000)}), mode="first")
    assert (clean.rows, clean.exit_code) == (1000, 0)


def test_a_symmetric_pair_has_the_smaller_key_on_the_left_by_type_and_not_by_text() -> None:
    table = pa.table({"id": [10, 9], "zip": ["x", "x"], "city": ["a", "b"]})
    report = check(parse_rule("t.zip = s.zip and t.city != s.city", name="fd"), table, key=["id"])
    violation = report.to_arrow().to_pylist()[0]
    assert (violation["left_key"], violation["right_key"]) == ("9", "10")
    assert violation["id"] == violation_id("fd", "9", "10")


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"id": pa.array(["é", 'q"uote\n'])}, ["id"]),
        ({"id": pa.array([1.5, float("nan")])}, ["id"]),
        ({"id": pa.array([1, 2]), "part": pa.array(["x", "y"])}, ["id", "part"]),
        ({"id": pa.array([2**63 - 1, -(2**63)])}, ["id"]),
    ],
)
def test_ids_are_the_ids_that_anybody_can_compute(columns: dict[str, pa.Array], key: list[str]) -> None:
    table = pa.table({**columns, "k": [1, 1]})
    for violation in check(parse_rule("t.k = s.k", name='ru"le'), table, key=key).to_arrow().to_pylist():
        assert violation["id"] == violation_id('ru"le', violation["left_key"], violation["right_key"])


def test_rows_in_many_pairs_are_written_as_rows_in_few_are() -> None:
    table = pa.table({"k": [1] * 6 + [2], "text": ["a", "b", "c,", 'd"', "e\n", "f", "g"]})
    rule = parse_rule("t.k = s.k and t.text != s.text", name="many")
    full, few = check(rule, table).to_arrow().to_pylist(), check(rule, table, limit=100).to_arrow().to_pylist()
    assert sorted(map(json.dumps, full)) == sorted(map(json.dumps, few))
    assert len(full) == 15


def test_rules_checked_together_find_what_each_finds_alone() -> None:
    random = np.random.default_rng(1)
    table = pa.table({name: random.integers(0, 9, 300) for name in "abcd"})
    texts = ["t.a = s.a and t.b != s.b", "t.a = s.a and t.b < s.b and t.c > s.c", "t.a = s.b and t.c = s.d", "t.a > 7",
             "t.a = s.a and t.b = s.b and t.c = s.c", "t.a < s.a and t.b < s.b and t.c < s.c and t.d < s.d"]  # fmt: skip
    rules = [parse_rule(text, name=f"r{i}") for i, text in enumerate(texts)]
    together = check(rules, table, threads=2)
    for rule, result in zip(rules, together.results, strict=True):
        alone = check(rule, table, threads=1).results[0]
        assert (result.violations, result.rows_involved) == (alone.violations, alone.rows_involved)


@settings(max_examples=60)
@given(st.lists(rules(), min_size=2, max_size=6), tables())
def test_rules_of_any_families_share_work_and_nothing_else(several: list[str], table: pa.Table) -> None:
    together = check([parse_rule(text, name=f"r{i}") for i, text in enumerate(several)], table, threads=1)
    for text, result in zip(several, together.results, strict=True):
        assert result.violations == len(violations_of(text, table))


def test_a_key_leaves_nothing_to_do_for_rules_that_contain_it() -> None:
    random = np.random.default_rng(2)
    table = pa.table({"id": np.arange(200), "a": random.integers(0, 5, 200), "b": random.integers(0, 5, 200)})
    rules = [unique("id", name="key"), *fd("id", ["a", "b"], name="by_key"), *fd(["a", "id"], "b", name="more")]
    assert [result.violations for result in check(rules, table).results] == [0] * 4
    broken = table.set_column(0, "id", pa.array(np.where(np.arange(200) < 4, 0, np.arange(200))))
    texts = ["t.id = s.id", *(f"t.id = s.id and t.{name} != s.{name}" for name in "ab"),
             "t.a = s.a and t.id = s.id and t.b != s.b"]  # fmt: skip
    for text, result in zip(texts, check(rules, broken).results, strict=True):
        assert result.violations == len(violations_of(text, broken))
