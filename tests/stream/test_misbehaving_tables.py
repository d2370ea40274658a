"""Delta tables that misbehave: history that is gone, another table in the same place, columns that come, go and grow.

Catches: a job that goes on over a hole, or stops without saying what is lost; state that is thrown away because a whole
number became wider; a column that a rule reads and that is gone, noticed by nobody or told without the rule's name.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stream.jobs import Stream, job_text
from tests.stream.truth import self_joins
from weever_stream.errors import RuleError, StateError, WeeverError
from weever_stream.feeds.delta import DeltaFeed
from weever_stream.stream.failures import schema_changed, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

RULES = {"same_city": {"fd": "zip -> city"}, "weights": {"deny": "t.zip = s.zip and t.weight < s.weight"}}


def made(spark: SparkSession, path: Path, columns: str, *properties: str) -> str:
    given = ", ".join(("delta.enableChangeDataFeed = true", *properties))
    spark.sql(f"create table delta.`{path}` ({columns}) using delta tblproperties ({given})")
    return f"delta.`{path}`"


def stream_of(spark: SparkSession, table: Path, job: Path, rules: Any = RULES, **columns: str) -> Stream:
    return Stream(spark, job_text({"kind": "delta", "path": str(table)}, job, rules, columns=columns))


def refusal(stream: Stream) -> WeeverError:
    with pytest.raises(WeeverError) as refused:
        stream.start()
    return refused.value


def test_history_that_is_gone_stops_the_job_and_it_says_what_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "table"
    columns = "id int, zip string, city string, weight int"
    name = made(spark, path, columns, "delta.checkpointInterval = 1")
    spark.sql(f"insert into {name} values (1, 'z', 'a', 1), (2, 'z', 'b', 1)")
    stream = stream_of(spark, path, tmp_path)
    stream.run()
    for city in "cde":
        spark.sql(f"update {name} set city = '{city}' where id = 1")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"vacuum {name} retain 0 hours")
    error = told([str(stream.fail())])
    assert error.message.startswith("a file with changes that the job has not read is gone")
    assert "--take-over" in str(error.hint)

    for version in (0, 1, 2, 3):  # as Delta itself cuts its log
        (path / "_delta_log" / f"{version:020}.json").unlink()
    lost = refusal(stream)
    assert isinstance(lost, StateError)
    assert lost.message == f"the log of {path} no longer has the versions 2 to 3, which the job has not read"
    with monkeypatch.context() as blind:  # as where it is cut while the job runs
        blind.setattr(DeltaFeed, "_first_version", lambda _: None)
        assert "no longer holds changes that the job has not read" in told([str(stream.fail())]).message

    shutil.rmtree(path)
    name = made(spark, path, columns)
    spark.sql(f"insert into {name} values (1, 'z', 'a', 1)")
    assert refusal(stream).message == f"the table {path} was deleted and created again: its id has changed"
    assert len(stream.reports) == 1, "nothing was read of any of it"


def run_through_changes(stream: Stream) -> None:
    """Runs a job as `weever run` does: again where only the schema has changed."""
    for _ in range(3):
        query = stream.start()
        with suppress(Exception):
            query.awaitTermination(300)
        failure = query.exception()
        if failure is None:
            return
        assert schema_changed([str(failure)]), str(failure)[:2000]
    raise AssertionError("the schema has not settled")


def test_columns_may_grow_and_come_and_are_missed_when_they_go(spark: SparkSession, tmp_path: Path):
    path = tmp_path / "table"
    name = made(
        spark, path, "id int, zip string not null, city string, weight smallint, price decimal(6,2)",
        "delta.enableTypeWidening = true", "delta.columnMapping.mode = 'name'",
    )  # fmt: skip
    spark.sql(f"insert into {name} values (1, 'z', 'a', 1, 1), (2, 'z', 'b', 2, 1), (3, 'y', 'b', 300, 1)")
    rules = {**RULES, "prices": {"deny": "t.city = s.city and t.price < s.price"}}
    stream = stream_of(spark, path, tmp_path, rules)

    def agreed() -> None:
        run_through_changes(stream)
        assert stream.kept.open == self_joins(spark, spark.table(name), stream.rules, ["id"])

    agreed()
    spark.sql(f"alter table {name} alter column weight type int")
    spark.sql(f"alter table {name} alter column id type bigint")
    spark.sql(f"alter table {name} alter column zip drop not null")
    spark.sql(f"alter table {name} add column note string")
    spark.sql(f"insert into {name} values (5000000000, 'z', 'b', 70000, 2, 'x'), (4, null, 'b', null, 1, 'y')")
    spark.sql(f"update {name} set weight = 3, zip = 'y' where id = 1")
    agreed()
    assert len(stream.kept.open) >= 5

    spark.sql(f"alter table {name} alter column price type decimal(10,2)")
    spark.sql(f"insert into {name} values (6, 'z', 'q', 1, 12345678.00, 'x')")
    with pytest.raises(StateError) as wider:
        run_through_changes(stream)
    assert "changes the column price from decimal(6,2) to decimal(10,2)" in wider.value.message
    assert "--take-over" in str(wider.value.hint)

    spark.sql(f"alter table {name} rename column city to town")
    gone = refusal(stream)
    assert isinstance(gone, RuleError)
    assert "there is no column city" in str(gone)
    assert "same_city" in str(gone)


def test_a_key_that_is_not_unique_is_counted(spark: SparkSession, tmp_path: Path):
    path = tmp_path / "table"
    name = made(spark, path, "id int, zip string, city string, weight int")
    spark.sql(f"insert into {name} values (1, 'z', 'a', 1), (1, 'z', 'b', 1), (2, 'y', 'b', 2)")
    stream = stream_of(spark, path, tmp_path)
    stream.run()
    assert [report.duplicates for report in stream.reports] == [1]
    spark.sql(f"insert into {name} values (2, 'y', 'c', 3), (3, 'y', 'c', 3)")
    stream.run()
    assert stream.reports[-1].duplicates == 1
    spark.sql(f"update {name} set weight = 4 where id = 3")
    stream.run()
    assert stream.reports[-1].duplicates == 0
