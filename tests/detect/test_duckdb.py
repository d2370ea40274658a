"""Random rules over random tables: the detector, the nested-loop oracle and DuckDB's self-join find the same pairs.

Catches: a misreading of SQL that detector and oracle could share, since both were written from the same page; plans
that go wrong for a combination of predicates nobody thought of.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.detect.agreement import triples
from tests.detect.drawn import SCHEMA, VALUES, small_runs
from tests.oracle import violations, written
from weever_stream.detect.detector import Detector
from weever_stream.errors import RuleError
from weever_stream.rules import Rule, parse_rule

COMPARABLE = ["abn", "anf", "cg", "de", "dw", "bd", ["day", "at"], ["yes"], ["id"], ["w"], "c", "a", "b", "f"]
OPS = ["=", "!=", "<", "<=", ">", ">="]
CONSTANTS = {
    "a": ["1", "0.5"], "n": ["2", "9007199254740992"], "f": ["1.0", "0"], "c": ["'x'", "''"], "d": ["1.5", "1"],
    "w": ["1.5"], "day": ["date '2024-02-29'"], "yes": ["true"], "g": ["'the same first eight bytes!'"],
}  # fmt: skip


@st.composite
def predicates(draw: st.DrawFn) -> str:
    """A predicate in words that both we and SQL understand."""
    op = draw(st.sampled_from(OPS))
    row = draw(st.sampled_from("ts"))
    if draw(st.integers(0, 4)) == 0:
        column = draw(st.sampled_from(sorted(CONSTANTS)))
        return f"{row}.{column} {op} {draw(st.sampled_from(CONSTANTS[column]))}"
    group = sorted(draw(st.sampled_from(COMPARABLE)))
    left = draw(st.sampled_from(group))
    right = left if draw(st.booleans()) else draw(st.sampled_from(group))
    other = row if left != right and draw(st.integers(0, 5)) == 0 else {"t": "s", "s": "t"}[row]
    return f"{row}.{left} {op} {other}.{right}"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """The text of a rule that says something."""
    text = " and ".join(draw(st.lists(predicates(), min_size=1, max_size=4)))
    try:
        parse_rule(text)
    except RuleError:
        assume(False)
    return text


def table_of(seed: int, rows: int, spread: int) -> list[dict[str, Any]]:
    """Rows of few values; of more the larger the spread."""
    draw = random.Random(seed)
    made = []
    for number in range(rows):
        row = {name: draw.choice([*values, None]) for name, (_, values) in VALUES.items()}
        if spread:
            row |= {name: draw.randrange(spread) for name in "abn"} | {"f": float(draw.randrange(spread))}
        made.append({**row, "id": number, "name": None, "amount": None})
    draw.shuffle(made)
    return made


def joined(connection: duckdb.DuckDBPyConnection, rule: Rule, text: str) -> set[tuple[str, int, int | None]]:
    """What SQL says."""
    if rule.one_row:
        only = text.replace("s.", "t.") if "t." not in text else text
        return {
            (rule.name, key, None) for (key,) in connection.execute(f"select t.id from r t where {only}").fetchall()
        }
    pairs = connection.execute(f"select t.id, s.id from r t, r s where t.id <> s.id and {text}").fetchall()
    return {(rule.name, left, right) for left, right in pairs}


def assert_all_agree(texts: list[str], rows: list[dict[str, Any]]) -> None:
    rules = [parse_rule(text, name=f"r{number}") for number, text in enumerate(texts)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    with small_runs(batch=4, tail=10):
        detector = Detector(rules, key="id", schema=SCHEMA)
        for start in range(0, len(rows), 7):
            detector.insert(table.slice(start, 7))
    expected = violations([written(text, rule.name) for text, rule in zip(texts, rules, strict=True)], rows, "id")
    with duckdb.connect() as connection:
        connection.register("r", table)
        for rule, text in zip(rules, texts, strict=True):
            found = triples(detector.violations(rule), ("id",))
            assert found == {triple for triple in expected if triple[0] == rule.name}
            if rule.symmetric:
                found |= {(name, right, left) for name, left, right in found}
            assert found == joined(connection, rule, text), text


@settings(max_examples=25)
@given(st.lists(expressions(), min_size=1, max_size=4), st.integers(0, 2**32), st.integers(0, 20))
def test_detector_oracle_and_duckdb_agree(texts: list[str], seed: int, rows: int):
    assert_all_agree(texts, table_of(seed, rows, 0))


@pytest.mark.slow
@settings(max_examples=120)
@given(
    st.lists(expressions(), min_size=1, max_size=4), st.integers(0, 2**32), st.integers(0, 120), st.sampled_from([0, 9])
)
def test_detector_oracle_and_duckdb_agree_on_larger_tables(texts: list[str], seed: int, rows: int, spread: int):
    assert_all_agree(texts, table_of(seed, rows, spread))
