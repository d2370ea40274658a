"""Rules that come later judge each record as it was judged when it arrived.

Catches: a backfill that takes a record for applied which was rejected on arrival, or the other way round, because a
column was not read then, was read only later, or because the shards were rescaled in between.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stream.jobs import Stream, job_text
from tests.stream.test_files_stream import Folder
from weever_stream.errors import DataError, EngineError
from weever_stream.state.lease import Lease
from weever_stream.stream import revising
from weever_stream.stream.places import notes_of
from weever_stream.stream.query import open_context
from weever_stream.stream.rescaling import rescale
from weever_stream.stream.run import allow

A, N, AGAIN = {"a": {"deny": "t.a > 0"}}, {"n": {"deny": "t.n > 3"}}, {"a_again": {"deny": "t.a >= 1"}}
MISFIT = "column n: the value is not a bigint"


def put(key: int, version: int, **row: Any) -> dict[str, Any]:
    return {"id": key, **row, "_change_type": "upsert", "_commit_version": version}


class Trial:
    """A folder of JSON files, and a job over it with dead letters."""

    def __init__(self, spark: SparkSession, folder: Path, rules: dict[str, Any], **rejects: Any) -> None:
        self.spark, self.folder, self.letters = spark, folder, folder / "letters"
        self.feed = Folder(folder / "feed")
        sink = {"kind": "files", "path": str(self.letters)}
        self.source = {"kind": "files", "path": str(folder / "feed"), "rejects": {"sink": sink, **rejects}}
        self.stream = Stream(spark, job_text(self.source, folder, rules))

    def revise(self, rules: dict[str, Any], **state: Any) -> None:
        self.stream.revised(job_text(self.source, self.folder, rules, **state))

    def keys(self, rule: str) -> set[str]:
        return {left for name, left, _ in self.stream.kept.open if name == rule}

    def reasons(self) -> list[str]:
        files = sorted(self.letters.rglob("batch_id=*/*.json"))
        return [json.loads(line)["reason"] for file in files for line in file.read_text().splitlines()]

    def context(self, lease: Lease) -> Any:
        return open_context(self.spark, self.stream.job, lease, self.stream.reports.append, also=[self.stream.kept])


def test_a_record_is_judged_by_the_columns_that_were_read_when_it_arrived(spark: SparkSession, tmp_path: Path):
    trial = Trial(spark, tmp_path, A)
    trial.feed.add([put(1, 1, a=1, n=5), put(2, 1, a=1, n="bad")])
    trial.stream.run()
    trial.revise({**A, **N})
    trial.stream.run()
    assert (trial.keys("a"), trial.keys("n"), trial.reasons()) == ({"1", "2"}, {"1"}, [MISFIT])
    trial.feed.add([put(1, 2, a=1, n="bad")])
    trial.stream.run()
    assert trial.keys("n") == {"1"}, "what is rejected on arrival changes nothing"
    assert trial.reasons() == [MISFIT] * 2
    with Lease(notes_of(trial.stream.job)) as lease:
        revising.agreed(trial.context(lease), allow, ["n"])
    trial.stream.run()
    assert trial.keys("n") == {"1"}, "nor does it when the rule is built again"
    trial.revise({**A, **N, **AGAIN})
    trial.stream.run()
    assert trial.keys("a_again") == {"1", "2"}, "the record of 2 was applied: nobody read n then"
    assert trial.reasons() == [MISFIT] * 2, "no record is a dead letter twice"


def test_a_column_that_is_no_longer_read_rejects_nothing(spark: SparkSession, tmp_path: Path):
    trial = Trial(spark, tmp_path, {**A, **N})
    trial.feed.add([put(1, 1, a=1, n=5), put(2, 1, a=1, n=5)])
    trial.stream.run()
    trial.feed.add([put(1, 2, a=2, n="bad")])  # rejected
    trial.stream.run()
    trial.revise(A)
    trial.stream.run()
    trial.feed.add([put(2, 3, a=2, n="bad")])  # applied
    trial.stream.run()
    later = {"a_is_2": {"deny": "t.a = 2"}}
    trial.revise({**A, **later})
    trial.stream.run()
    assert trial.keys("a_is_2") == {"2"}
    trial.revise({**A, **later, **N})
    trial.stream.run()
    assert trial.keys("n") == {"1"}


def test_a_backfill_reads_all_files_of_a_compacted_log(spark: SparkSession, tmp_path: Path):
    settings = {"fileSource.log.compactInterval": "2", "fileSource.log.cleanupDelay": "0", "minBatchesToRetain": "1"}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.streaming.{name}", value)
    try:
        trial = Trial(spark, tmp_path, A)
        trial.feed.add([put(1, 1, a=1), put(2, 1, a=1)])
        trial.stream.run()
        trial.feed.add([put(2, 2, a=0, n="bad")])  # applied: nobody reads n
        trial.stream.run()
        trial.revise({**A, **N})
        for version in range(3, 8):
            trial.feed.add([put(3, version, a=0, n=0)])
            trial.stream.run()
        log = tmp_path / "checkpoint" / "sources" / "0"
        assert not any((log / name).exists() for name in ("0", "1", "1.compact")), "only later entries are left"
        trial.revise({**A, **N, **AGAIN})
        trial.stream.run()
    finally:
        for name in settings:
            spark.conf.unset(f"spark.sql.streaming.{name}")
    assert trial.keys("a") == trial.keys("a_again") == {"1"}


def test_a_rule_that_goes_and_returns_makes_no_second_dead_letter(spark: SparkSession, tmp_path: Path):
    trial = Trial(spark, tmp_path, A)
    trial.feed.add([put(1, 1, a=1, n=5), put(2, 1, a=1, n="bad")])
    trial.stream.run()
    for rules in ({**A, **N}, A, {**A, **N}):  # the source does not move
        trial.revise(rules)
        trial.stream.run()
    assert trial.keys("n") == {"1"}
    assert trial.reasons() == [MISFIT]


def test_what_was_rejected_on_arrival_stays_so_after_a_rescale(spark: SparkSession, tmp_path: Path):
    trial = Trial(spark, tmp_path, {**A, **N})
    trial.feed.add([put(3, 1, a=1, n=5)])
    trial.feed.add([put(3, 2, a=1, n="bad")])
    trial.stream.run()
    trial.revise({**A, **N}, shards=3)
    with Lease(notes_of(trial.stream.job)) as lease:
        rescale(trial.context(lease), 3)
    trial.revise({**A, **N, **AGAIN}, shards=3)
    trial.stream.run()
    assert trial.keys("a_again") == trial.keys("n") == {"3"}


def test_a_change_with_too_many_rejects_is_refused_before_anything_ends(spark: SparkSession, tmp_path: Path):
    trial = Trial(spark, tmp_path, {"r": {"deny": "t.a > 0"}}, max_share=0)
    trial.feed.add([put(1, 1, a=1, n=5), put(2, 1, a=1, n="bad")])
    trial.stream.run()
    trial.revise({"r": {"deny": "t.n > 3"}})
    with pytest.raises(DataError, match="1 of 2 records do not fit the columns that the new rules read"):
        trial.stream.run()
    trial.revise({"r": {"deny": "t.a > 0"}})
    trial.stream.run()
    assert trial.keys("r") == {"1", "2"}
    assert [counts["r"] for counts in trial.stream.kept.counts] == [2], "nothing was closed, and nothing opened again"


def test_text_that_is_not_utf8_is_a_misfit_of_its_column(spark: SparkSession, tmp_path: Path):
    feed, letters = tmp_path / "feed", tmp_path / "letters"
    feed.mkdir()
    head = b"id,a,c,_change_type,_commit_version\n"
    for at, rows in enumerate([b"1,1,x,upsert,1\n2,1,y,upsert,1\n", b"1,1,\xff\xfe,upsert,2\n"]):
        (feed / f"{at}.csv").write_bytes(head + rows)
        os.utime(feed / f"{at}.csv", (at, at))
    rejects = {"sink": {"kind": "files", "path": str(letters)}}
    source = {"kind": "files", "format": "csv", "path": str(feed), "rejects": rejects}
    columns = {"id": "bigint", "a": "bigint", "c": "string"}
    stream = Stream(spark, job_text(source, tmp_path, A, columns=columns))
    stream.run()
    stream.revised(job_text(source, tmp_path, {**A, "c": {"deny": "t.c = 'x'"}}, columns=columns))
    stream.run()
    assert {left for rule, left, _ in stream.kept.open if rule == "c"} == set(), "the row with x is gone"
    found = [json.loads(line) for file in letters.rglob("*.json") for line in file.read_text().splitlines()]
    assert [one["reason"] for one in found] == ["column c: the text is not UTF-8"]
    assert sum(report.rejected for report in stream.reports) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", EngineError),
        ("java.io.IOException: No space left on device", EngineError),
        ("[DELTA_LOG_FILE_NOT_FOUND] x", DataError),
        ("[DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE] x", DataError),
        ("[UNRESOLVED_COLUMN] x", DataError),
    ],
)
def test_only_what_the_source_lacks_is_blamed_on_the_source(text: str, expected: type[Exception]):
    with pytest.raises(expected) as raised, revising._unreadable():
        raise RuntimeError(text)
    assert ("cannot be read as it was" in str(raised.value)) == (expected is DataError)
    assert ("a column that is newer" in str(raised.value)) == ("UNRESOLVED" in text)
