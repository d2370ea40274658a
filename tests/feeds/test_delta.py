"""A Delta table's change feed, streamed for real."""

from __future__ import annotations

import json

import pytest

from weever_stream.errors import DataError
from weever_stream.feeds import open_feed
from weever_stream.feeds.changes import BATCH_BYTES, DROP, PUT, REJECT
from weever_stream.feeds.delta import read_commits, reader_options
from weever_stream.feeds.types import schema_of_spark
from weever_stream.job.options import DeltaSource
from weever_stream.rules.types import ColumnType, type_of_name
from weever_stream.state.store import StoreOptions


def table(spark, path, columns, *properties):
    given = ", ".join(("delta.enableChangeDataFeed = true", *properties))
    spark.sql(f"create table delta.`{path}` ({columns}) using delta tblproperties ({given})")
    return f"delta.`{path}`"


def streamed(spark, path, names, checkpoint, columns=None, **options):
    """What a stream reads of the table that it has not read before: names, change and sequence."""
    tracking = StoreOptions(str(checkpoint / "_schema"))
    feed = open_feed(
        spark, DeltaSource(kind="delta", path=str(path), **options), ["id"], columns or {}, tracking=tracking
    )
    rows = []
    query = (
        feed.changes(names).writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return sorted((row["_weever_sequence"], row["_weever_change"], *(row[name] for name in names)) for row in rows)


def test_a_batch_is_bounded_by_bytes_unless_the_user_says_otherwise():
    assert reader_options(DeltaSource(kind="delta", path="t"))["maxBytesPerTrigger"] == BATCH_BYTES
    said = reader_options(DeltaSource(kind="delta", path="t", options={"maxBytesPerTrigger": "7"}))
    assert said["maxBytesPerTrigger"] == "7"


@pytest.mark.slow
def test_a_snapshot_and_every_change_come_with_their_versions(spark, tmp_path):
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    name = table(spark, path, "id int, s string")
    spark.sql(f"insert into {name} values (1, 'a'), (2, 'b')")
    assert streamed(spark, path, ["id", "s"], checkpoint) == [(1, PUT, 1, "a"), (1, PUT, 2, "b")]
    spark.sql(f"update {name} set s = 'c' where id = 1")
    spark.sql(f"delete from {name} where id = 2")
    assert streamed(spark, path, ["s", "id"], checkpoint) == [(2, DROP, "a", 1), (2, PUT, "c", 1), (3, DROP, "b", 2)]
    assert streamed(spark, path, ["id"], tmp_path / "later", starting_version=3) == [(3, DROP, 2)]


@pytest.mark.slow
def test_other_columns_may_come_and_go(spark, tmp_path):
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    name = table(spark, path, "id int, `a.b c` string, n int", "delta.columnMapping.mode = 'name'")
    spark.sql(f"insert into {name} values (1, 'a', 1)")
    assert streamed(spark, path, ["id", "a.b c"], checkpoint) == [(1, PUT, 1, "a")]
    for change in ("add column m int", "rename column n to k", "drop column k"):
        spark.sql(f"alter table {name} {change}")
    spark.sql(f"insert into {name} (id, `a.b c`) values (2, 'b')")
    with pytest.raises(Exception, match="DELTA_STREAMING_METADATA_EVOLUTION"):
        streamed(spark, path, ["id", "a.b c"], checkpoint)
    assert [row[1:] for row in streamed(spark, path, ["id", "a.b c"], checkpoint)] == [(PUT, 2, "b")]


def test_a_table_without_a_change_feed_is_refused_with_the_cure(spark, tmp_path):
    spark.sql(f"create table delta.`{tmp_path}/t` (id int) using delta")
    with pytest.raises(DataError, match="is off") as error:
        open_feed(spark, DeltaSource(kind="delta", path=f"{tmp_path}/t"), ["id"], {})
    assert f"ALTER TABLE delta.`{tmp_path}/t` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" in error.value.hint


def test_what_is_no_table_is_refused(spark, tmp_path):
    for given in ({"path": str(tmp_path)}, {"table": "no_such_table"}):
        with pytest.raises(DataError, match="there is no Delta table"):
            open_feed(spark, DeltaSource(kind="delta", **given), ["id"], {})
    with pytest.raises(DataError, match="a path or a table"):
        open_feed(spark, DeltaSource(kind="delta"), ["id"], {})


def test_columns_that_are_not_there_are_refused(spark, tmp_path):
    table(spark, tmp_path / "t", "id int, b binary")
    feed = open_feed(spark, DeltaSource(kind="delta", path=f"{tmp_path}/t"), ["id"], {})
    assert feed.schema == {"id": ColumnType("integer"), "b": "binary"}
    with pytest.raises(DataError, match="has no column idd"):
        feed.changes(["idd"])
    with pytest.raises(DataError, match="has no column key"):
        open_feed(spark, DeltaSource(kind="delta", path=f"{tmp_path}/t"), ["key"], {})
    with pytest.raises(DataError, match="cannot become a bigint"):
        open_feed(spark, DeltaSource(kind="delta", path=f"{tmp_path}/t"), ["id"], {"b": type_of_name("int")}).changes(
            ["b"]
        )


def test_commits_that_make_no_sense_are_rejected_with_their_version(spark):
    rows = spark.createDataFrame(
        [(1, "1.5", "insert", 1), (None, "1", "insert", 2), (3, "x", "insert", 3), (4, "1", "what", 4),
         (5, "1", None, 5), (6, "1", "insert", None), (7, "1", "insert", -1)],
        "id int, s string, _change_type string, _commit_version long",
    )  # fmt: skip
    declared = {"s": type_of_name("decimal(3,1)")}
    found = [
        row.asDict() for row in read_commits(rows, ["s"], ["id"], schema_of_spark(rows.schema), declared).collect()
    ]
    assert list(found[0]) == ["s", *(name for name in found[0] if name.startswith("_weever"))]
    assert [(row["_weever_change"], row["_weever_reason"]) for row in found] == [
        (PUT, None),
        (REJECT, "key column id is null or missing"),
        (REJECT, "column s: the value is not a decimal(3,1)"),
        (REJECT, "the change is none that is known"),
        (REJECT, "the change is none that is known"),
        (REJECT, "the sequence is missing or not a whole number"),
        (REJECT, "the sequence is negative or too large"),
    ]
    assert json.loads(found[2]["_weever_origin"]) == {"version": 3}
    assert found[2]["_weever_record"] is None
