"""The truth by Spark SQL: the violations of rules over a table, as the self-joins that `rules.writing.write_sql` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weever_stream.detect.identity import json_value, plain
from weever_stream.detect.texts import written
from weever_stream.rules import Rule
from weever_stream.rules.writing import write_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_violations", "self_joins"]

Violation = tuple[str, str, str | None]


def self_joins(spark: SparkSession, table: DataFrame, rules: Sequence[Rule], key: Sequence[str]) -> set[Violation]:
    """(rule, left key, right key) of every violation, keys as outputs write them."""
    table.createOrReplaceTempView("truth")
    found: set[Violation] = set()
    for rule in rules:
        rows = spark.sql(write_sql(rule, table="truth", key=key)).collect()
        width = len(table.columns)
        for row in rows:
            sides = [tuple(row)[at : at + width] for at in range(0, len(row), width)]
            keys = [_text([side[table.columns.index(name)] for name in key]) for side in sides]
            found.add((rule.name, keys[0], keys[1] if len(keys) > 1 else None))
    return found


def _text(key: list[Any]) -> str:
    return plain(key[0]) if len(key) == 1 else written([json_value(part) for part in key])


def open_violations(rows: DataFrame) -> set[Violation]:
    """The violations of an `open` table; none stands twice."""
    listed = [(row.rule, row.left_key, row.right_key) for row in rows.select("rule", "left_key", "right_key").collect()]
    assert len(set(listed)) == len(listed), "a violation is open once"
    return set(listed)
