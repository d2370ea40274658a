"""Agreement with DuckDB's self-join on random rules and data, larger than nested loops could take."""

from __future__ import annotations

from contextlib import suppress

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from weever_stream.check import check
from weever_stream.errors import RuleError
from weever_stream.rules import Rule, parse_rule

_PREDICATES = [
    f"t.{left} {op} s.{right}" for left in "abcd" for right in "abcd" for op in ("=", "!=", "<", "<=", ">", ">=")
]


def _rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {}
    for name, high in (("a", 6), ("b", 40), ("c", 40), ("d", 12)):
        values = random.integers(0, high, 400)
        columns[name] = pa.array(values, mask=random.random(400) < 0.05)
    return pa.table({"id": np.arange(400), **columns})


def _rule(random: np.random.Generator) -> tuple[list[str], Rule]:
    """A random rule that says something."""
    while True:
        chosen = [str(p) for p in random.choice(_PREDICATES, random.integers(1, 5), replace=False)]
        with suppress(RuleError):
            return chosen, parse_rule(" and ".join(chosen), name="random")


@pytest.mark.parametrize("seed", range(30))
def test_counts_and_pairs_are_those_of_a_self_join(seed: int) -> None:
    random = np.random.default_rng(seed)
    table = _rows(seed)
    chosen, rule = _rule(random)
    apart = "t.id < s.id" if rule.symmetric else "t.id != s.id"
    sql = f"select t.id, s.id from rows t, rows s where {' and '.join(chosen)} and {apart}"
    with duckdb.connect() as connection:
        connection.register("rows", table)
        expected = connection.execute(sql).fetchnumpy()
    left, right = (np.asarray(column) for column in expected.values())
    report = check(rule, table, key=["id"])
    assert report.results[0].violations == len(left)
    assert report.results[0].rows_involved == len(np.union1d(left, right))
    found = {
        (int(one), int(other))
        for piece in report.violations()
        for one, other in zip(piece.pairs.left, piece.pairs.right, strict=True)
    }
    assert found == set(zip(left.tolist(), right.tolist(), strict=True))


def test_two_orders_within_few_groups_over_values_that_span_all_bits() -> None:
    """Packed keys of such columns are ranked on the way; the groups must still be told apart."""
    random = np.random.default_rng(5)
    table = pa.table(
        {
            "id": np.arange(90),
            "g": random.integers(0, 3, 90),
            "x": random.integers(0, 3, 90),
            "y": random.integers(0, 1 << 60, 90),
        }
    )
    rule = parse_rule("t.g = s.g and t.x < s.x and t.y > s.y", name="wide")
    with duckdb.connect() as connection:
        connection.register("rows", table)
        sql = "select count(*) from rows t, rows s where t.g = s.g and t.x < s.x and t.y > s.y"
        assert check(rule, table, mode="count").results[0].violations == connection.execute(sql).fetchall()[0][0]
