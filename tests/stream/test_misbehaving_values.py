"""Values and names that trip others, end to end through a stream, held to Spark SQL; and the zone of the session.

Catches: a comparison that is not Spark's (NaN, -0.0, subnormals, nulls, the hour that comes twice, years 1 and 9999,
decimals of another scale, texts by their bytes); whole numbers that pass through doubles; names that need quotes; an
output that depends on the session's zone, or a restart under another one that loses or repeats something.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stream.jobs import Stream, job_text
from tests.stream.truth import self_joins
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Batch

pytestmark = pytest.mark.slow

VALUES: dict[str, tuple[str, list[str]]] = {
    "a.b": ("bigint", ["9007199254740992", "9007199254740993", "-9223372036854775808", "9223372036854775807", "null"]),
    "select": ("string", [
        "''", "'x'", "'x '", "'x' || char(0)", "'\u00e9'", "'e\u0301'", "'\U0001f600'", "'\ufffd'", "'eight bytes a'",
        "'eight bytes b'", "null",
    ]),
    "ÄÖ ü": ("double", [
        "double('NaN')", "double('Infinity')", "double('-Infinity')", "-0.0D", "0.0D", "4.9E-324D", "-4.9E-324D", "null",
    ]),
    "at": ("timestamp", [
        "timestamp'2024-11-03 05:30:00Z'", "timestamp'2024-11-03 06:30:00Z'", "timestamp'0001-01-01 00:00:00Z'",
        "timestamp'9999-12-31 23:59:59.999999Z'", "timestamp'1883-11-18 17:00:00Z'", "null",
    ]),
    "wall": ("timestamp_ntz", [
        "timestamp_ntz'2024-11-03 01:30:00'", "timestamp_ntz'2024-03-10 02:30:00'", "timestamp_ntz'0001-01-01 00:00:00'",
        "timestamp_ntz'9999-12-31 23:59:59.999999'", "null",
    ]),
    "day": ("date", ["date'0001-01-01'", "date'1582-10-04'", "date'1582-10-15'", "date'9999-12-31'", "null"]),
    "d2": ("decimal(10,2)", ["1.00", "1.10", "-1.00", "99999999.99", "null"]),
    "d5": ("decimal(20,5)", ["1.00000", "1.10000", "1.10001", "123456789012345.00001", "null"]),
    "yes": ("boolean", ["true", "false", "null"]),
}  # fmt: skip
RULES = {
    "big": {"deny": "t.`a.b` = s.`a.b` and t.`select` != s.`select`"},
    "big_order": {"deny": "t.`a.b` < s.`a.b` and t.yes = s.yes"},
    "texts": {"deny": "t.`select` = s.`select` and t.`a.b` != s.`a.b`"},
    "text_order": {"deny": "t.`select` < s.`select` and t.day = s.day"},
    "doubles": {"deny": "t.`ÄÖ ü` = s.`ÄÖ ü` and t.day != s.day"},
    "double_order": {"deny": "t.`ÄÖ ü` > s.`ÄÖ ü` and t.`a.b` = s.`a.b`"},
    "instants": {"deny": "t.at = s.at and t.yes != s.yes"},
    "instant_order": {"deny": "t.at < s.at and t.d2 = s.d2"},
    "walls": {"deny": "t.wall <= s.wall and t.d2 > s.d2"},
    "days": {"deny": "t.day >= s.day and t.wall = s.wall and t.d5 < s.d5"},
    "scales": {"deny": "t.d2 = s.d5 and t.yes != s.yes"},
    "scale_order": {"deny": "t.d2 < s.d5 and t.day = s.day and t.yes = true"},
}


class Texts:
    """A sink that keeps what was told, as text."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def write(self, batch: Batch) -> None:
        names = ("change", "rule", "violation_id", "left_key", "right_key", "left_values", "right_values")
        self.told += [tuple(row) for row in batch.deltas.select(*names).collect()]


def rows(first: int, n: int) -> str:
    """Rows in which every value meets every other of its column sooner or later."""
    columns = [values for _, values in VALUES.values()]
    lines = []
    for key in range(first, first + n):
        cells = [values[(key * (at + 1) + key // 7) % len(values)] for at, values in enumerate(columns)]
        lines.append(f"({key}, {', '.join(cells)})")
    return ", ".join(lines)


def test_values_that_trip_others_are_compared_as_spark_compares_them_whatever_the_zone(
    spark: SparkSession, tmp_path: Path
):
    from weever_stream.stream.run import start

    path = tmp_path / "table"
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in VALUES.items())
    spark.sql(
        f"create table delta.`{path}` (id bigint, {columns}) using delta tblproperties"
        " (delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name')"
    )
    streams = [
        Stream(spark, job_text({"kind": "delta", "path": str(path)}, tmp_path / name, RULES, columns={}))
        for name in ("moved", "stayed")
    ]
    texts = [Texts(), Texts()]
    zone = spark.conf.get("spark.sql.session.timeZone")
    steps = [
        (f"insert into delta.`{path}` values {rows(0, 60)}", [zone, zone]),
        (f"update delta.`{path}` set at = at + interval 1 hour, wall = wall, `select` = `select` || ' ' where id % 3 = 0"
         " and at < '9000-01-01'", ["Pacific/Apia", zone]),
    ]  # fmt: skip
    try:
        for statement, zones in steps:
            spark.conf.set("spark.sql.session.timeZone", zone)
            spark.sql(statement)
            for stream, told, at in zip(streams, texts, zones, strict=True):
                spark.conf.set("spark.sql.session.timeZone", at)
                query = start(spark, stream.job, stream.reports.append, once=True, also=[stream.kept, told]).query
                query.awaitTermination(300)
            expected = self_joins(spark, spark.read.format("delta").load(str(path)), streams[0].rules, ["id"])
            assert {rule for rule, _, _ in expected} == set(RULES), "every rule has something to say"
            assert streams[0].kept.open == streams[1].kept.open == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert len(streams[0].reports) == 2
    assert streams[0].reports[1].added > 0
    assert sorted(texts[0].told) == sorted(texts[1].told), "the same texts in every zone"


def test_columns_that_cannot_be_compared_are_refused_with_their_rule(spark: SparkSession, tmp_path: Path):
    path = tmp_path / "table"
    kinds = {"b": "binary", "s": "struct<x: int>", "l": "array<int>", "m": "map<string, int>", "v": "variant"}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    spark.sql(
        f"create table delta.`{path}` (id int, {columns}) using delta tblproperties (delta.enableChangeDataFeed = true)"
    )
    for name, kind in kinds.items():
        rule = {f"rule_{name}": {"deny": f"t.{name} = s.{name} and t.id < s.id"}}
        with pytest.raises(RuleError) as refused:
            Stream(
                spark, job_text({"kind": "delta", "path": str(path)}, tmp_path / name, rule, columns={"id": "bigint"})
            ).start()
        assert f"rule_{name}" in str(refused.value)
        assert kind.partition("<")[0] in str(refused.value)
