"""The Delta sink's own promises: one commit a batch, positions published, foreign tables refused, other work survived."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from delta import exceptions as delta_exceptions
from deltalake import DeltaTable as Reader

from tests.sinks.batches import NASTY, Pair, Story, position
from weever_stream.errors import OutputError
from weever_stream.job.options import DeltaSink
from weever_stream.sinks import Sink, open_sinks
from weever_stream.sinks.delta import retried
from weever_stream.sinks.reading import read_sink
from weever_stream.storage import locate, scan_delta

PAIRS = [Pair(f"rule {number % 3}", str(number), f"{number}'s") for number in range(12)]


def delta(spark: Any, path: Path, **options: Any) -> Sink:
    take_over = options.pop("take_over", False)
    return open_sinks(spark, [DeltaSink(kind="delta", path=str(path), **options)], take_over=take_over)[0]


def commits(path: Path) -> list[tuple[str, Any]]:
    """Operation and published batch of every commit, oldest first, read without Spark."""
    history = sorted(Reader(str(path)).history(), key=lambda commit: commit["version"])
    return [
        (commit["operation"], json.loads(said)["batch_id"] if (said := commit.get("userMetadata")) else None)
        for commit in history
    ]


def settings(spark: Any) -> dict[str, str]:
    return {name: value for name, value in spark.conf.getAll.items() if not name.endswith("lastCommitVersionInSession")}


def rows(path: Path) -> Any:
    return scan_delta(Reader(str(path)), locate(path)).to_table()


def open_ids(path: Path) -> list[str]:
    return sorted(rows(path / "open")["violation_id"].to_pylist())


def test_each_batch_is_one_commit_that_tells_its_position(spark: Any, tmp_path: Path) -> None:
    story, sink = Story(spark), delta(spark, tmp_path)
    before = settings(spark)
    batches = [
        story.batch(0, PAIRS[:6]),
        story.batch(1),
        story.batch(2, PAIRS[6:8], PAIRS[:2]),
        story.batch(3, [], PAIRS[2:4]),
    ]
    for batch in batches:
        sink.write(batch)
    sink.write(batches[-1])
    begun = [("CREATE TABLE", None), ("SET TBLPROPERTIES", None)]
    assert commits(tmp_path / "log") == [*begun, ("WRITE", 0), ("WRITE", 2), ("WRITE", 3)]
    assert commits(tmp_path / "open") == [*begun, ("WRITE", 0), ("MERGE", 2), ("MERGE", 3)]
    assert open_ids(tmp_path) == sorted(story.open)
    assert settings(spark) == before
    assert read_sink(str(tmp_path)).position == position(3)
    # what others see of it: openings and closings through the change feed, comments, and no feature they may lack
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    changes = feed.load(str(tmp_path / "open")).groupBy("_commit_version", "_change_type").count().collect()
    assert {(row[0], row[1], row[2]) for row in changes} == {
        (2, "insert", 6), (3, "insert", 2), (3, "delete", 2), (4, "delete", 2),
    }  # fmt: skip
    described = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE delta.`{tmp_path}/open`").collect()}
    assert described["opened_at"].startswith("When the batch that added")


def test_a_batch_of_many_rules_is_one_file_a_table(spark: Any, tmp_path: Path) -> None:
    """Not one for each rule: hundreds of rules would be as many files to write, to read and to compact."""
    story, sink = Story(spark), delta(spark, tmp_path)
    pairs = [Pair(f"rule {number:03}", str(number), f"{number}'s") for number in range(400)]
    sink.write(story.batch(0, pairs[:300]))
    assert [len(Reader(str(tmp_path / name)).file_uris()) for name in ("log", "open")] == [1, 1]
    sink.write(story.batch(1, pairs[300:], pairs[:300:2]))
    assert len(Reader(str(tmp_path / "open")).file_uris()) <= 2
    assert open_ids(tmp_path) == sorted(story.open)


def test_a_table_with_other_columns_is_refused(spark: Any, tmp_path: Path) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "log"))
    with pytest.raises(OutputError, match=r"other columns: rule, .* missing; id unknown"):
        delta(spark, tmp_path)
    (tmp_path / "x" / "open").mkdir(parents=True)
    (tmp_path / "x" / "open" / "somebody's.parquet").touch()
    with pytest.raises(OutputError, match=r"x/open cannot be written: DELTA_"):
        delta(spark, tmp_path / "x", tables=["open"])
    with pytest.raises(OutputError, match=r"parquet/y/log cannot be written: ") as refused:
        delta(spark, tmp_path / "x" / "open" / "somebody's.parquet" / "y")
    assert "folder cannot be made" in str(refused.value.hint)


def test_another_checkpoint_is_refused_or_takes_over(spark: Any, tmp_path: Path) -> None:
    first = Story(spark)
    delta(spark, tmp_path).write(first.batch(0, PAIRS[:3]))
    delta(spark, tmp_path).write(first.batch(5, PAIRS[3:4]))
    with pytest.raises(OutputError, match="ahead of the checkpoint: it holds batch 5, this would be 2"):
        delta(spark, tmp_path).write(Story(spark).batch(2, PAIRS[4:5]))
    second = Story(spark, query="query-2")
    batch = second.batch(0, PAIRS[1:5])
    with pytest.raises(OutputError, match="holds the violations of another run") as refused:
        delta(spark, tmp_path).write(batch)
    assert "--take-over" in str(refused.value.hint)
    for _ in range(2):
        delta(spark, tmp_path, take_over=True).write(batch)
    assert open_ids(tmp_path) == sorted(second.open)
    log_only = read_sink(str(tmp_path))
    summed = type(log_only)(str(tmp_path), None, log_only.log_rows).open_index()
    assert sorted(summed["violation_id"].to_pylist()) == sorted(second.open)


def test_the_owner_of_a_table_outlives_other_commits_and_the_clean_up_of_its_log(spark: Any, tmp_path: Path) -> None:
    delta(spark, tmp_path, tables=["log"]).write(Story(spark).batch(5, PAIRS[:3]))
    log = Reader(str(tmp_path / "log"))
    for number in range(101):  # more commits than anybody searches; OPTIMIZE makes such ones
        log.alter.set_table_properties({"delta.logRetentionDuration": f"interval {number} seconds"})
    log.create_checkpoint()
    for commit in sorted((tmp_path / "log" / "_delta_log").glob("*.json"))[:50]:
        commit.unlink()  # what the clean-up of the log does
    with pytest.raises(OutputError, match="holds the violations of another run"):
        delta(spark, tmp_path, tables=["log"]).write(Story(spark, query="query-2").batch(0, PAIRS[4:]))
    with pytest.raises(OutputError, match="ahead of the checkpoint: it holds batch 5, this would be 2"):
        delta(spark, tmp_path, tables=["log"]).write(Story(spark).batch(2, PAIRS[4:5]))
    delta(spark, tmp_path, tables=["log"]).write(Story(spark).batch(6, PAIRS[3:4]))
    assert rows(tmp_path / "log").num_rows == 4


def test_rows_that_nobody_has_claimed_are_not_continued(spark: Any, tmp_path: Path) -> None:
    delta(spark, tmp_path / "one", tables=["log"]).write(Story(spark).batch(0, PAIRS[:3]))
    spark.read.format("delta").load(f"{tmp_path}/one/log").write.format("delta").save(f"{tmp_path}/copy/log")
    with pytest.raises(OutputError, match="holds the violations of another run"):
        delta(spark, tmp_path / "copy", tables=["log"]).write(Story(spark).batch(1, PAIRS[3:4]))


def test_what_spark_cannot_write_is_told_without_values(spark: Any, tmp_path: Path) -> None:
    sink = delta(spark, tmp_path, tables=["log"])
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/log` ADD CONSTRAINT short CHECK (length(left_key) < 3)")
    with pytest.raises(OutputError, match="log cannot be written: ") as raised:
        sink.write(Story(spark).batch(0, [Pair("rule", "SECRET-KEY")]))
    assert "SECRET" not in raised.value.render()
    assert "DELTA_VIOLATE_CONSTRAINT" in raised.value.render()


@pytest.mark.slow
def test_optimize_and_vacuum_at_any_time_change_nothing(spark: Any, tmp_path: Path) -> None:
    story, sink = Story(spark), delta(spark, tmp_path)
    pairs = [Pair(f"rule {number % 2}", str(number), NASTY) for number in range(400)]
    sink.write(story.batch(0, pairs[:200]))
    done, failed = threading.Event(), []

    def maintain() -> None:
        while not done.is_set():
            try:
                for table in ("open", "log"):
                    spark.sql(f"OPTIMIZE delta.`{tmp_path}/{table}`")
                    spark.sql(f"VACUUM delta.`{tmp_path}/{table}`")
            except Exception as error:  # it may lose against a batch; a batch may not lose against it
                failed.append(error)
            done.wait(1)

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        for number in range(1, 4):
            batch = story.batch(
                number, pairs[200 + number * 20 : 220 + number * 20], pairs[number * 20 : number * 20 + 10]
            )
            sink.write(batch)
            sink.write(batch)
    finally:
        done.set()
        thread.join()
    assert open_ids(tmp_path) == sorted(story.open)
    log = rows(tmp_path / "log").to_pylist()
    assert sorted((row["batch_id"], row["change"], row["violation_id"]) for row in log) == sorted(story.log)


CONFLICTS = [one for name, one in vars(delta_exceptions).items() if name.endswith("Exception")]


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_every_conflict_with_another_commit_is_tried_again(
    conflict: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weever_stream.sinks.delta._FIRST_WAIT", 0.0)
    calls = []

    def action() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise conflict("another commit")

    retried(action)
    assert len(calls) == 3
    calls.clear()
    monkeypatch.setattr("weever_stream.sinks.delta._TRIES", 2)
    with pytest.raises(conflict):
        retried(action)
    assert len(CONFLICTS) == 8


@pytest.mark.slow
def test_many_small_batches_are_compacted(spark: Any, tmp_path: Path) -> None:
    story, sink = Story(spark), delta(spark, tmp_path)
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")  # Delta's default is 50
    try:
        for number in range(9):
            sink.write(story.batch(number, [Pair("rule", str(number))]))
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")
    assert len(Reader(str(tmp_path / "log")).file_uris()) < 7
    assert len(Reader(str(tmp_path / "open")).file_uris()) < 7
    assert open_ids(tmp_path) == sorted(story.open)
    assert read_sink(str(tmp_path)).position == position(8)
