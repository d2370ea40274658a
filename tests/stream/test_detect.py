"""`detect`, for people who build their own job: a streaming frame of changes in, deltas out.

Catches: a name that cannot be imported because a module stands in its way; deltas that do not sum up to the truth in a
sink of one's own; pairs that move between shards and that `net` does not set off; errors that come only in a batch.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle import written_file
from tests.stream.jobs import COLUMNS, RULES, truth
from tests.stream.test_files_stream import SWAP_RULES, Feed, Folder, Swaps, lines_of, together
from weever_stream.errors import DataError
from weever_stream.feeds.changes import CHANGE, DROP, PUT, SEQUENCE
from weever_stream.rules import fd, read_rules_text, unique
from weever_stream.stream import detect
from weever_stream.stream.deltas import net
from weever_stream.stream.lane import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = ", ".join(f"{name} {kind}" for name, kind in {**COLUMNS, "_change_type": "string"}.items())


def rules_text(rules: dict[str, Any]) -> str:
    return json.dumps({"table": "rows", "key": "id", "rules": [{"name": name, **rule} for name, rule in rules.items()]})


def changes(spark: SparkSession, folder: Folder, each: int = 1000) -> DataFrame:
    reader = spark.readStream.schema(f"{DDL}, _commit_version bigint").option("maxFilesPerTrigger", each)
    return reader.json(str(folder.path))


def test_the_name_is_the_function_however_it_is_imported():
    import weever_stream.stream.deltas
    import weever_stream.stream.run

    assert weever_stream.stream.detect is weever_stream.stream.deltas.detect
    assert callable(detect)


@pytest.mark.slow
def test_the_deltas_in_a_memory_table_sum_up_to_the_truth(spark: SparkSession, tmp_path: Path):
    feed, folder = Feed(21), Folder(tmp_path / "feed")
    for _ in range(3):
        folder.add(together(feed.commits(10)))
    rules = read_rules_text(rules_text(RULES))
    deltas = detect(changes(spark, folder, 1), rules, store=str(tmp_path / "runs"), shards=3, spread={"spread_out": 2})
    writer = deltas.writeStream.format("memory").queryName("deltas").outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert query.exception() is None
    summed: Counter[tuple[str, str, str | None]] = Counter()
    for row in spark.table("deltas").collect():
        summed[row.rule, row.left_key, row.right_key] += 1 if row.change == "added" else -1
    assert set(summed.values()) <= {0, 1}
    assert set(+summed) == truth(spark, feed.table.values(), written_file(rules_text(RULES)))
    spark.catalog.dropTempView("deltas")


@pytest.mark.slow
def test_net_sets_off_what_only_moved_between_shards(spark: SparkSession, tmp_path: Path):
    swaps, folder = Swaps(5), Folder(tmp_path / "feed")
    folder.add(lines_of(swaps.first(), 1, images=True))
    # All rows go to another group: the pair is the same, in another shard.
    old = [swaps.row(key) for key in range(swaps.rows)]
    swaps.groups = [group + 1000 for group in swaps.groups]
    folder.add(lines_of([(one, swaps.row(one["id"])) for one in old], 2, images=True))
    told: list[list[Any]] = []
    left: list[list[Any]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batch.persist()
        told.append(batch.collect())
        left.append(net(batch).collect())
        batch.unpersist()

    rules = read_rules_text(rules_text({"dependency": SWAP_RULES["dependency"]}))
    deltas = detect(changes(spark, folder, 1), rules, store=str(tmp_path / "runs"), shards=64)
    writer = deltas.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert query.exception() is None
    assert [row.change for row in left[0]] == ["added"]
    assert left[1] == []
    assert sorted(row.change for row in told[1]) == ["added", "removed"], "both shards tell"


def test_what_cannot_run_is_told_before_a_query_starts(spark: SparkSession, tmp_path: Path):
    frame = changes(spark, Folder(tmp_path / "feed"))
    store = str(tmp_path / "runs")
    with pytest.raises(DataError, match="no key"):
        detect(frame, ["t.a = s.a and t.c != s.c"], store=store)
    with pytest.raises(DataError, match="idd"):
        detect(frame, ["t.a = s.a and t.c != s.c"], store=store, key="idd")
    with pytest.raises(DataError, match="zip"):
        detect(frame, ["t.zip = s.zip and t.c != s.c"], store=store, key="id")
    with pytest.raises(DataError, match="_commit_version"):
        detect(frame.drop("_commit_version"), ["t.a = s.a and t.c != s.c"], store=store, key="id")
    with pytest.raises(DataError, match="not a streaming one"):
        detect(spark.createDataFrame([], frame.schema), ["t.a = s.a and t.c != s.c"], store=store, key="id")


def test_rules_come_in_the_forms_that_every_entry_point_takes(spark: SparkSession, tmp_path: Path):
    frame, store = changes(spark, Folder(tmp_path / "feed")), str(tmp_path / "runs")
    path = tmp_path / "rules.yaml"
    path.write_text(rules_text(RULES))
    for rules in ("t.a = s.a and t.c != s.c", [fd("a", "c")], unique("a"), path):
        assert "violation_id" in detect(frame, rules, store=store, key="id").columns


def test_a_frame_with_a_reserved_column_is_refused(spark: SparkSession, tmp_path: Path):
    frame = changes(spark, Folder(tmp_path / "feed"))
    for name in ("_weever_change", "_WEEVER_sequence"):
        with pytest.raises(DataError, match=f"cannot be named {name}"):
            detect(frame.withColumn(name, frame.a), "t.a = s.a", store=str(tmp_path / "runs"), key="id")


def test_columns_may_have_the_names_that_backfills_once_used(spark: SparkSession):
    kinds = [(PUT, 1, 7, "old", "x"), (PUT, 2, 7, "new", "y"), (PUT, 1, 8, "gone", "z"), (DROP, 2, 8, None, None)]
    ddl = f"{CHANGE} tinyint, {SEQUENCE} bigint, _last bigint, _put string, _before string"
    rows = table_of(spark.createDataFrame(kinds, ddl), ["_last"], ["_last", "_put", "_before"]).collect()
    assert [tuple(row) for row in rows] == [(7, "new", "y", PUT, 2)]
