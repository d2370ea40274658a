"""Batches that are cut, or too large for one process. Catches: answers that depend on where a batch was cut; violations
and rejects that get lost on the way that only large batches take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stream.jobs import Stream, job_text, truth
from tests.stream.truth import self_joins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

RULES = {"same_city": {"fd": "zip -> city"}, "weights": {"deny": "t.zip = s.zip and t.weight < s.weight"}}


def test_an_overwrite_that_is_cut_into_batches_ends_as_the_table(spark: SparkSession, tmp_path: Path):
    """The new rows come first: pairs move to other shards while the old rows are still there."""
    path = tmp_path / "table"
    spark.sql(
        f"create table delta.`{path}` (id int, zip string, city string, weight int) using delta "
        "tblproperties (delta.enableChangeDataFeed = true)"
    )

    def write(zips: str) -> None:
        rows = spark.range(12, numPartitions=4).selectExpr(
            "cast(id as int) id", f"{zips} zip", "cast(id % 5 as string) city", "cast(id % 2 as int) weight"
        )
        rows.write.format("delta").mode("overwrite").save(str(path))

    write("concat('z', id % 3)")
    source = {"kind": "delta", "path": str(path), "options": {"maxFilesPerTrigger": 1}}
    stream = Stream(spark, job_text(source, tmp_path, RULES, columns={}, shards=16))
    stream.run()
    snapshot = len(stream.reports)
    before = set(stream.kept.open)
    assert before == self_joins(spark, spark.read.format("delta").load(str(path)), stream.rules, ["id"])
    write("concat('y', id % 3)")  # the same pairs, all of them in other groups
    stream.run()
    assert len(stream.reports) - snapshot >= 8, "each file of the commit came in a batch of its own"
    assert stream.kept.open == before
    write("concat('x', id % 4)")
    stream.run()
    assert stream.kept.open == self_joins(spark, spark.read.format("delta").load(str(path)), stream.rules, ["id"])


def test_more_violations_than_the_driver_collects_and_rejects_in_many_pieces(spark: SparkSession, tmp_path: Path):
    """Under 4,096 shards the share of one is 8 KiB. A megabyte a reject fills several pieces, and so several groups."""
    folder, letters = tmp_path / "feed", tmp_path / "letters"
    folder.mkdir()
    rows = [
        {"id": key, "a": key // 40, "b": key, "n": key, "f": 0.0, "c": f"c{key % 7}", "_change_type": "upsert",
         "_commit_version": 1}
        for key in range(200)
    ]  # fmt: skip
    bad = [json.dumps({"id": key, "a": f"no number {'x' * (1 << 20)}"}) for key in range(20)]
    (folder / "1.json").write_text("\n".join([*map(json.dumps, rows), *bad]))
    rejects = {"max_share": 0.5, "sink": {"kind": "files", "path": str(letters)}}
    rules = {"dependency": {"fd": "a -> c"}}
    source = {"kind": "files", "path": str(folder), "rejects": rejects, "remember_drops": 0}
    stream = Stream(spark, job_text(source, tmp_path, rules, shards=4096))
    stream.run()
    assert stream.kept.open == truth(spark, rows, stream.rules)
    assert len(stream.kept.open) > 2000
    (report,) = stream.reports
    assert (report.changes, report.rejected) == (200, 20)
    found = [json.loads(line) for file in letters.glob("batch_id=*/*.json") for line in file.read_text().splitlines()]
    assert len(found) == 20
    assert all(len(one["record"]) > 1 << 20 for one in found)
