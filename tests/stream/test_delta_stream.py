"""The whole job on Delta tables: change data feed in, `log` and `open` out, held to Spark SQL's self-joins.

Catches: changes that are lost or told twice by any kind of commit (append, UPDATE, DELETE, MERGE, overwrite), by OPTIMIZE
and VACUUM in between, by restarts, by cutting the feed into other batches; an open set that is not that of the table at
the published position; values that Spark and the engine do not compare alike.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle import written_file
from tests.stream.truth import open_violations, self_joins
from weever_stream.job.job import job_of
from weever_stream.rules import read_rules_text
from weever_stream.stream.run import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RULES = """
  - {name: unique_pair, unique: [a, c]}
  - {name: dependency, fd: a -> c}
  - {name: crossed, deny: t.a = s.b and t.b = s.a and t.c != s.c}
  - {name: crossed_one_way, deny: t.a = s.b and t.n < s.n}
  - {name: order_in_group, deny: t.a = s.a and t.n < s.n and t.f > s.f}
  - {name: no_equality, deny: t.n < s.n and t.f > s.f and t.at < s.at}
  - {name: one_row, deny: t.n > t.a}
  - {name: filtered, deny: t.c = s.c and t.d > 1.2 and t.yes != s.yes}
  - {name: days, deny: t.day = s.day and t.at > s.at, spread: 2}
"""
SCHEMA = (
    "id bigint, a bigint, b int, n bigint, f double, c string, d decimal(10,2), day date, at timestamp, yes boolean"
)
VALUES: dict[str, list[str]] = {
    "a": ["0", "1", "2", "9007199254740993"],
    "b": ["0", "1", "2"],
    "n": ["0", "1", "2", "9007199254740992", "9007199254740993"],
    "f": ["0.0D", "-0.0D", "1.5D", "double('NaN')", "double('Infinity')"],
    "c": ["''", "'x'", "'Ä'", "'the same first eight bytes'", "'the same first eight bytes!'"],
    "d": ["1.00", "1.20", "1.50", "-2.00"],
    "day": ["date'2024-02-29'", "date'9999-12-31'", "date'0001-01-01'"],
    "at": ["timestamp'2024-11-03 05:30:00Z'", "timestamp'2024-11-03 06:30:00Z'", "timestamp'9999-12-31 00:00:00Z'"],
    "yes": ["true", "false"],
}


class Table:
    """A Delta table that changes at random, by every kind of commit."""

    def __init__(self, spark: SparkSession, path: Path, seed: int) -> None:
        print(f"the table's seed is {seed}")  # pytest shows it if the test fails
        self.spark, self.path = spark, str(path)
        self.random = random.Random(seed)
        self.next = 0
        spark.sql(
            f"CREATE TABLE delta.`{path}` ({SCHEMA}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
        )

    def value(self, column: str) -> str:
        return self.random.choice([*VALUES[column], *VALUES[column], "null"])

    def rows(self, ids: list[int]) -> str:
        return ", ".join(f"({', '.join([str(key), *map(self.value, VALUES)])})" for key in ids)

    def insert(self, n: int = 12) -> None:
        ids = list(range(self.next, self.next + n))
        self.next += n
        self.spark.sql(f"INSERT INTO delta.`{self.path}` VALUES {self.rows(ids)}")

    def update(self) -> None:
        column = self.random.choice(list(VALUES))
        where = f"id % 3 = {self.random.randrange(3)}"
        self.spark.sql(f"UPDATE delta.`{self.path}` SET {column} = {self.value(column)} WHERE {where}")

    def delete(self) -> None:
        self.spark.sql(f"DELETE FROM delta.`{self.path}` WHERE id % 7 = {self.random.randrange(7)}")

    def merge(self) -> None:
        ids = self.random.sample(range(self.next + 6), 10)
        self.next += 6
        names = ", ".join(f"col{at + 1} AS {name}" for at, name in enumerate(["id", *VALUES]))
        self.spark.sql(
            f"MERGE INTO delta.`{self.path}` t USING (SELECT {names} FROM VALUES {self.rows(ids)}) s ON t.id = s.id"
            " WHEN MATCHED AND s.b = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def rewrite(self) -> None:
        frame = self.spark.read.format("delta").load(self.path).where("id % 5 != 0").localCheckpoint()
        frame.write.format("delta").mode("overwrite").save(self.path)

    def optimize(self) -> None:
        self.spark.sql(f"OPTIMIZE delta.`{self.path}`")

    def step(self) -> None:
        self.random.choice(
            [self.insert, self.update, self.delete, self.merge, self.merge, self.rewrite, self.optimize]
        )()

    def at(self, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(self.path)


class Stream:
    """A job over the table, started as often as one likes."""

    def __init__(self, spark: SparkSession, table: Table, folder: Path, **state: Any) -> None:
        self.spark, self.table, self.folder = spark, table, folder
        options = json.dumps({"checkpoint": str(folder / "checkpoint"), "shards": 4, **state})
        text = (
            f"table: rows\nkey: id\nrules:{RULES}source: {{kind: delta, path: '{table.path}'}}\n"
            f"sinks: [{{kind: delta, path: '{folder}/out'}}]\nstate: {options}\n"
        )
        self.job = job_of(read_rules_text(text))
        self.rules = written_file(text)
        self.reports: list[Any] = []

    def run(self) -> None:
        running = start(self.spark, self.job, self.reports.append, once=True)
        running.query.awaitTermination(300)
        assert not running.query.isActive
        assert running.query.exception() is None, str(running.query.exception())[-3000:]

    def check(self) -> None:
        """`open` is the self-join at the published position, the log sums up to it, and the counts are right."""
        open_now = open_violations(self.read("open"))
        version = json.loads(self.reports[-1].position)["version"]
        expected = self_joins(self.spark, self.table.at(version), self.rules, ["id"])
        assert open_now == expected
        summed: Counter[tuple[str, str, str | None]] = Counter()
        for row in self.read("log").collect():
            summed[row.rule, row.left_key, row.right_key] += 1 if row.change == "added" else -1
        assert set(+summed) == open_now
        assert set(summed.values()) <= {0, 1}
        assert self.reports[-1].open == {rule.name: sum(v[0] == rule.name for v in expected) for rule in self.rules}

    def read(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.folder}/out/{name}")


@pytest.mark.slow
def test_the_open_table_is_the_self_join_at_the_published_position(spark: SparkSession, tmp_path: Path):
    table = Table(spark, tmp_path / "table", random.randrange(1000))
    table.insert(30)
    stream = Stream(spark, table, tmp_path, inline_bytes=4096, retain_batches=3)
    stream.run()
    stream.check()
    assert stream.reports[-1].changes == 30
    for _ in range(2):
        table.merge()
        for _ in range(2):
            table.step()
        stream.run()
        stream.check()
    assert (
        stream.read("log").where("change = 'removed'").count() == sum(report.removed for report in stream.reports) > 0
    )
    spark.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    spark.sql(f"VACUUM delta.`{table.path}` RETAIN 0 HOURS")
    table.merge()
    stream.run()
    stream.check()
