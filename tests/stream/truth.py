"""The truth by Spark SQL: the violations of rules over a table, as the self-joins that `rules.writing.write_sql` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.oracle import Written, is_symmetric
from weever_stream.detect.identity import json_value, plain
from weever_stream.detect.texts import written
from weever_stream.rules import Rule
from weever_stream.rules.writing import write_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_violations", "self_joins"]

Violation = tuple[str, str, str | None]


def self_joins(spark: SparkSession, table: DataFrame, rules: Sequence[Written], key: Sequence[str]) -> set[Violation]:
    """(rule, left key, right key) of every violation of rules as they were written, keys as outputs write them."""
    table.createOrReplaceTempView("truth")
    parts = []
    for rule in rules:
        sides = ["t"] if rule.one_row else ["t", "s"]
        assert type(rule) is Written
        join = write_sql(Rule(rule.name, rule.predicates, "", is_symmetric(rule)), table="truth", key=key)
        keys = ", ".join(f"struct({', '.join(f'{side}.`{name}`' for name in key)})" for side in sides)
        keys = keys if len(sides) == 2 else f"{keys}, null"
        named = f"SELECT '{rule.name}', {keys} FROM" + join.partition(" FROM")[2]
        parts.append(named)
    rows = spark.sql(" UNION ALL ".join(parts)).collect()
    return {(rule, _text([*left]), None if right is None else _text([*right])) for rule, left, right in rows}


def _text(key: list[Any]) -> str:
    return plain(key[0]) if len(key) == 1 else written([json_value(part) for part in key])


def open_violations(rows: DataFrame) -> set[Violation]:
    """The violations of an `open` table; none stands twice."""
    listed = [(row.rule, row.left_key, row.right_key) for row in rows.select("rule", "left_key", "right_key").collect()]
    assert len(set(listed)) == len(listed), "a violation is open once"
    return set(listed)
