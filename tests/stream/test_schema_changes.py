"""Changes of a Delta table's schema, written by Spark and by `deltalake`, while a job is stopped and while it runs.

Catches: a job that a change stops although no rule reads the column; a job that starts again and again without
progress; rows that are lost or counted twice around a change; a change that a job cannot follow and that it does not
refuse by version and column.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.stream.jobs import Stream, job_text
from tests.stream.truth import self_joins
from weever_stream.errors import StateError
from weever_stream.stream.failures import schema_changed
from weever_stream.stream.restarts import Restarts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

RULES = {"same_city": {"fd": "zip -> city"}, "weights": {"deny": "t.zip = s.zip and t.weight < s.weight"}}


def rows(first: int, **columns: Any) -> pa.Table:
    """Four rows; a column that is None is left out."""
    known = {
        "id": pa.array(range(first, first + 4), pa.int32()),
        "zip": ["a", "a", "b", "b"],
        "city": ["x", "y", "z", "z"],
        "weight": pa.array([first, 2, 3, 4], pa.int32()),
        "extra": pa.array([1, 2, 3, 4], pa.int32()),
    }
    return pa.table({name: values for name, values in {**known, **columns}.items() if values is not None})


def overwrite(path: Path, table: pa.Table) -> None:
    write_deltalake(path, table, mode="overwrite", schema_mode="overwrite")


def follow(stream: Stream, restarts: int = 20) -> None:
    """Runs a job as `weever run --once` does: again where only the schema has changed."""
    counted = Restarts()
    for _ in range(restarts):
        query = stream.start()
        with suppress(Exception):
            query.awaitTermination(300)
        failure = query.exception()
        if failure is None:
            return
        assert schema_changed([str(failure)]), str(failure)[:2000]
        counted.add(query)
    raise AssertionError("the schema has not settled")


def stream_of(spark: SparkSession, path: Path, folder: Path) -> Stream:
    return Stream(spark, job_text({"kind": "delta", "path": str(path)}, folder, RULES, columns={}))


def test_changes_that_no_rule_cares_about_are_followed(spark: SparkSession, tmp_path: Path):
    path = tmp_path / "table"
    write_deltalake(path, rows(1), configuration={"delta.enableChangeDataFeed": "true"})
    stream = stream_of(spark, path, tmp_path)

    def agreed() -> None:
        follow(stream)
        assert version_read(stream) == DeltaTable(path).version()
        assert stream.kept.open == self_joins(spark, spark.read.format("delta").load(str(path)), stream.rules, ["id"])

    agreed()
    # All while the job is stopped: dropped, back in another type, in a third one, and back; a wider key and column.
    overwrite(path, rows(11, extra=None))
    overwrite(path, rows(21, extra=["q", "r", "s", "t"]))
    overwrite(path, rows(31))
    agreed()
    wide = {name: pa.array([5, 2, 3, 4], pa.int64()) for name in ("id", "weight")}
    write_deltalake(path, rows(41, new=["n"] * 4), mode="append", schema_mode="merge")
    overwrite(path, rows(51, **wide))
    agreed()
    # Written by Spark: an overwrite with a column less, a new column, an update and a delete.
    frame = spark.read.format("delta").load(str(path)).drop("extra")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(path))
    spark.sql(f"alter table delta.`{path}` add column more string")
    spark.sql(f"update delta.`{path}` set city = 'w', more = 'm' where id = 3")
    spark.sql(f"delete from delta.`{path}` where id = 2")
    agreed()


def version_read(stream: Stream) -> int:
    return int(json.loads(stream.reports[-1].position)["version"])


def test_changes_while_the_job_runs_stop_it_once_each(spark: SparkSession, tmp_path: Path):
    path = tmp_path / "table"
    write_deltalake(path, rows(1), configuration={"delta.enableChangeDataFeed": "true"})
    stream = stream_of(spark, path, tmp_path)
    follow(stream)
    query = stream.start(once=False)
    try:
        write_deltalake(path, rows(11, extra=["q"] * 4), mode="overwrite", schema_mode="overwrite")
        with pytest.raises(Exception, match="DELTA_STREAMING_METADATA_EVOLUTION"):
            query.awaitTermination(120)
    finally:
        query.stop()
    follow(stream)
    assert version_read(stream) == 1
    # Rows of a column that is read change their type: refused at once, also after it was changed back.
    overwrite(path, rows(21, weight=["1", "2", "3", "4"]))
    overwrite(path, rows(31))
    for _ in range(2):
        with pytest.raises(StateError) as refused:
            follow(stream)
        assert refused.value.message == (
            f"version 2 of {path} changes the column weight from int to string; it is read by the job"
        )
        assert "--take-over" in str(refused.value.hint)
