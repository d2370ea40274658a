"""The query that learns rules, held to `discover` on the table as it is after every batch.

Catches: changes that the learner misses, takes twice or takes in the wrong order, in one run or across restarts; a crash
between what is saved and what is told; a torn file; events that do not add up to the rules that hold; numbers that pass
through floats; a learner that goes on with other settings than it was made with; learning that stops detection.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tests.conftest import SETTINGS
from tests.stream.jobs import Stream
from weever_stream.cli import run
from weever_stream.discover import discover
from weever_stream.errors import StateError, WeeverError
from weever_stream.feeds.changes import CLEAR, DROP, DROP_ANYWHERE, PUT, REJECT
from weever_stream.job.job import job_of
from weever_stream.learn.events import RuleEvent
from weever_stream.learn.holding import HOLDING, Holding
from weever_stream.rules import read_rules, read_rules_text
from weever_stream.state.notes import Notes
from weever_stream.stream.beside import Beside
from weever_stream.stream.collecting import collected
from weever_stream.stream.deltas import stored_columns
from weever_stream.stream.learning import start_learning
from weever_stream.stream.places import journal_of, learn_notes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.stream.lessons import LearnReport

COLUMNS = {"id": "bigint", "zip": "bigint", "city": "string", "rate": "double", "at": "timestamp"}
TYPES = pa.schema(
    [("id", pa.int64()), ("zip", pa.int64()), ("city", pa.string()), ("rate", pa.float64()), ("at", pa.int64())]
)
ROOT = Path(__file__).parents[2]
BIG = 9007199254740992
"""The first whole number after which doubles skip one."""


class Crash(Exception):
    """A driver that dies."""


class Dies:
    """A driver that dies where it is told to: with the changes applied, with them saved, with all told and noted.

    Events must come in the session of their query: what another one sets for a commit of its own would show in theirs.
    """

    def __init__(self, shared: SparkSession) -> None:
        self._shared = shared
        self.applied = self.saved = self.noted = False
        self.reports: list[LearnReport] = []

    def write(self, batch: Any) -> None:
        assert batch.spark._jsparkSession != self._shared._jsparkSession
        if self.saved:
            raise Crash

    def observe(self, report: LearnReport) -> None:
        if self.noted:
            raise Crash
        self.reports.append(report)


class Counting:
    """A companion that counts the changes of its life and tells the sum: one taken twice, or none, is seen."""

    name = "counting"

    def __init__(self, dies: Dies) -> None:
        self.dies, self.sum = dies, 0

    def build(self, rows: pa.Table) -> list[RuleEvent]:
        return self.apply(rows)

    def apply(self, changes: pa.Table) -> list[RuleEvent]:
        if self.dies.applied:
            raise Crash
        self.sum += changes.num_rows
        return [RuleEvent("error", "counted", "counted", "", "", float(self.sum))]

    def dump(self, path: Path) -> None:
        path.write_text(str(self.sum))

    def load(self, path: Path) -> None:
        self.sum = int(path.read_text())


class Learning:
    """A job that learns, started as often as one likes, over a folder of change files and a table in memory."""

    def __init__(self, spark: SparkSession, folder: Path, **learn: Any) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir(exist_ok=True)
        self.events = str(folder / "events")
        self.dies = Dies(spark)
        self.reports = self.dies.reports
        self.records = 0
        self.table: dict[int, dict[str, Any]] = {}
        self.settings(**learn)
        self.files = 0

    def settings(self, **learn: Any) -> None:
        learn = {"sinks": [{"kind": "delta", "path": self.events}], **learn}
        self.text = json.dumps(
            {
                "table": "rows",
                "key": "id",
                "columns": COLUMNS,
                "rules": [{"name": "one", "unique": ["id"]}],
                "source": {
                    "kind": "files",
                    "path": str(self.folder / "in"),
                    "options": {"maxFilesPerTrigger": 1, "latestFirst": "false"},
                },
                "state": {"checkpoint": str(self.folder / "checkpoint")},
                "learn": learn,
            }
        )
        self.job = job_of(read_rules_text(self.text))

    def put(self, *rows: dict[str, Any], version: int, late: bool = False) -> list[dict[str, Any]]:
        if not late:
            self.table |= {row["id"]: row for row in rows}
        return [{**row, "_change_type": "upsert", "_commit_version": version} for row in rows]

    def drop(self, *keys: int, version: int) -> list[dict[str, Any]]:
        for key in keys:
            self.table.pop(key, None)
        return [{"id": key, "_change_type": "delete", "_commit_version": version} for key in keys]

    def send(self, changes: list[dict[str, Any]]) -> None:
        """A file of changes. Spark takes files by their time."""
        path = self.folder / "in" / f"{self.files:04d}.json"
        path.write_text("".join(json.dumps(change) + "\n" for change in changes))
        self.records += len(changes)
        os.utime(path, (1_700_000_000 + self.files, 1_700_000_000 + self.files))
        self.files += 1

    def run(self, *, anew: bool = False) -> None:
        query = start_learning(
            self.spark,
            self.job,
            self.dies.observe,
            once=True,
            anew=anew,
            also=[self.dies],
            companions=lambda: [Counting(self.dies)],
        )
        query.awaitTermination(300)
        assert query.exception() is None, str(query.exception())[-3000:]

    def die(self, **where: bool) -> None:
        vars(self.dies).update(where)
        with pytest.raises(Exception, match="Crash"):
            self.run()
        vars(self.dies).update(dict.fromkeys(where, False))

    @property
    def holding(self) -> Holding:
        noted = Notes(learn_notes_of(self.job)).read(HOLDING)
        assert noted is not None
        return Holding.of_json(noted, "here")

    def check(self) -> None:
        """The rules that hold are those of `discover`, and the events add up to them."""
        learn = self.job.learn
        assert learn is not None
        rows = [{**row, "at": micros(row["at"])} for row in self.table.values()]
        table = pa.Table.from_pylist(rows, TYPES)
        chosen = [name for name in COLUMNS if name != "id"] if learn.columns is None else learn.columns
        found = discover(
            table, columns=chosen, cross=False, max_predicates=learn.max_predicates, top=None, seconds=None
        )
        assert found.exact
        wanted = {one.rule.fingerprint for one in found.rules}
        assert {one.fingerprint for one in self.holding.rules} == wanted
        assert self.summed() == Counter(wanted)
        assert self.reports[-1].events[-1].error == self.records, "companions take every change once"

    def summed(self) -> Counter[str]:
        told = Counter[str]()
        for row in self.spark.read.format("delta").load(self.events).where("event != 'error'").collect():
            told[row.rule_fingerprint] += 1 if row.event == "added" else -1
        return +told


def micros(text: str | None) -> int | None:
    from datetime import datetime

    return None if text is None else round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def row(key: int, source: random.Random) -> dict[str, Any]:
    zip_code = source.randrange(6)
    return {
        "id": key,
        "zip": source.choice([BIG + zip_code, BIG + zip_code, None]),
        "city": f"city {zip_code // 2}" if source.random() < 0.95 else source.choice(["", "elsewhere", None]),
        "rate": source.choice([zip_code * 1.5, None, 0.0]),
        "at": source.choice([f"2024-11-03T0{zip_code}:30:00Z", "9999-12-31T00:00:00Z", None]),
    }


def test_after_every_batch_the_rules_are_those_of_discover(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"the seed is {seed}")  # pytest shows it if the test fails
    source = random.Random(seed)
    it = Learning(spark, tmp_path)
    it.send(it.put(*(row(key, source) for key in range(25)), version=1))
    it.run()
    it.check()
    first = it.reports[-1]
    assert first.first
    assert all(event.event == "added" and event.left_key is None for event in first.events[:-1])
    for version in range(2, 5):  # a start each: the learner comes back from the journal
        keys = source.sample(range(40), 7)  # of one version each key changes once
        it.send(it.put(*(row(key, source) for key in keys[:4]), version=version) + it.drop(*keys[4:], version=version))
        # A change that comes after a newer one of its key does nothing.
        stale = max(it.table)
        it.send(it.put({**row(stale, source), "city": "late"}, version=0, late=True))
        it.run()  # two batches in one run: the second finds the learner in memory
        it.check()
    assert [report.batch for report in it.reports] == list(range(7))
    assert any(event.left_key is not None for report in it.reports[1:] for event in report.events)


def test_a_batch_that_was_cut_off_is_told_once_and_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    source = random.Random(7)
    it = Learning(spark, tmp_path, max_predicates=3, columns=["zip", "city"], error=0.05)
    it.send(
        it.put(
            *({"id": key, "zip": key % 5, "city": f"c{key % 5}", "rate": None, "at": None} for key in range(20)),
            version=1,
        )
    )
    it.die(noted=True)
    it.run()
    it.check()
    for version, harm in enumerate(("applied", "saved", "noted"), 2):
        it.send(
            it.put(
                {"id": 100 + version, "zip": version, "city": source.choice("xy"), "rate": None, "at": None},
                version=version,
            )
        )
        it.die(**{harm: True})
        torn = Path(journal_of(it.job).uri, f"changes-{version - 1}")
        assert torn.exists() is (harm != "applied")
        torn.write_bytes(torn.read_bytes()[:-5] if torn.exists() else b"")  # its batch is not done, and is done again
        it.run()
        it.check()
    (tmp_path / "checkpoint/weever/learn/weever/journal/dump-0").write_bytes(b"torn")
    it.send(it.put({"id": 200, "zip": 1, "city": "z", "rate": None, "at": None}, version=9))
    with pytest.raises(Exception, match="dump-0") as caught:
        it.run()
    assert "--anew" in str(caught.value) or "delete" in str(caught.value) or "copy" in str(caught.value)


def test_other_settings_are_refused_and_begun_anew_on_request(spark: SparkSession, tmp_path: Path) -> None:
    it = Learning(spark, tmp_path, columns=["zip", "city"])
    rows = [{"id": key, "zip": key % 5, "city": f"c{key % 5}", "rate": float(key), "at": None} for key in range(12)]
    it.send(it.put(*rows, version=1))
    it.run()
    it.check()
    it.settings(columns=["zip", "city", "rate"])
    with pytest.raises(StateError, match=r"columns.*zip") as caught:
        it.run()
    assert "--anew" in str(caught.value)
    it.run(anew=True)
    it.check()
    it.settings(columns=["zip", "city_name"])
    with pytest.raises(WeeverError, match="city_name"):
        it.run(anew=True)


def test_a_delta_table_is_learned_and_an_adopted_rule_is_kept_by_the_job(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table, job = tmp_path / "table", tmp_path / "job.yaml"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id bigint, zip bigint, city string) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, id % 4, concat('c', id % 4) FROM range(20)")
    job.write_text(
        "# packages\ntable: packages\nkey: id\nrules:\n  - {name: ids, unique: [id]}\n"
        f"source: {{kind: delta, path: {table}}}\nstate: {{checkpoint: {tmp_path}/checkpoint, shards: 2}}\n"
        f"learn:\n  sinks: [{{kind: delta, path: {tmp_path}/events}}]\n"
    )

    def learn() -> list[LearnReport]:
        reports: list[LearnReport] = []
        query = start_learning(spark, job_of(read_rules(job)), reports.append, once=True)
        query.awaitTermination(300)
        assert query.exception() is None, str(query.exception())[-3000:]
        return reports

    stream = Stream(spark, job.read_text())
    stream.run()
    learn()
    assert run(["rules", "review", str(job), "--adopt", "zip_determines_city"]) == 0
    assert "--rule-changes allow" in capfd.readouterr().out
    stream.revised(job.read_text())
    stream.run()
    spark.sql(f"UPDATE delta.`{table}` SET city = 'other' WHERE id = 7")
    stream.run()
    assert {rule for rule, _, _ in stream.kept.open} == {"zip_determines_city"}
    assert len(stream.kept.open) == 4
    (report,) = learn()
    (gone,) = [event for event in report.events if event.rule == "zip_determines_city"]
    assert gone.event == "dropped"
    assert "7" in (gone.left_key, gone.right_key)
    assert (report.changes, report.rows) == (2, 20)
    assert run(["rules", "review", str(job), "--list"]) == 0
    said = capfd.readouterr().out
    assert "no longer true of the table:\n  - zip_determines_city" in said
    table_rows = spark.read.format("delta").load(f"{tmp_path}/events").where("rule = 'zip_determines_city'")
    assert [row.event for row in table_rows.orderBy("batch_id").collect()] == ["added", "dropped"]
    (query,) = re.findall(
        r"```\n(SELECT rule_fingerprint.*?)```", (ROOT / "docs" / "tables.md").read_text("utf-8"), re.S
    )
    holding = spark.sql(query.replace("/lake/packages_rule_events", f"{tmp_path}/events")).collect()
    assert len(holding) == report.rules
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 7")
    (report,) = learn()
    assert "zip_determines_city" in {event.rule for event in report.events if event.event == "added"}


def test_a_failure_of_learning_is_told_and_counted_and_is_not_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    it = Learning(spark, tmp_path, columns=["zip", "nowhere"])
    failures: list[WeeverError] = []
    ended = threading.Event()
    beside = Beside(lambda: start_learning(spark, it.job, it.reports.append, once=True), failures.append)
    beside.start()
    beside.finish(ended)
    assert [error.message for error in failures] == ["the column nowhere is not in the source"]
    it.settings(columns=["zip"])
    it.send(it.put({"id": 1, "zip": 1}, {"id": 2, "zip": 1}, version=1))
    it.dies.noted = True  # fails inside of a batch
    again = Beside(lambda: start_learning(spark, it.job, it.dies.observe, once=True), failures.append)
    again.start()
    again.finish(ended)
    assert len(failures) == 2
    running = Beside(lambda: start_learning(spark, it.job, it.reports.append, every="100 ms"), failures.append)
    running.start()
    while not it.reports:
        time.sleep(0.05)
    running.stop()
    assert (len(failures), it.reports[-1].rows) == (2, 2), "an end that was asked for is no failure"


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    program = [sys.executable, "-m", "weever_stream.cli", *arguments]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_commands_learn(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [
        {"id": key, "zip": key % 3, "city": f"c{key % 3}", "_change_type": "upsert", "_commit_version": 1}
        for key in range(9)
    ]
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps(one) + "\n" for one in rows))
    job = {
        "table": "rows",
        "key": "id",
        "columns": {"id": "bigint", "zip": "bigint", "city": "string"},
        "rules": [{"name": "one", "fd": "city -> zip"}],
        "source": {"kind": "files", "path": str(tmp_path / "in")},
        "state": {"checkpoint": str(tmp_path / "checkpoint"), "shards": 2},
        "spark": {"spark.driver.extraJavaOptions": SETTINGS["spark.driver.extraJavaOptions"]},
        "learn": {},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = command("run", "job.json", "--once", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "learned from batch 0" in done.stderr, done.stderr
    assert "batch 0" in done.stdout
    (tmp_path / "in" / "1.json").write_text(json.dumps({**rows[0], "city": "x", "_commit_version": 2}) + "\n")
    done = command("learn", "job.json", "--once", "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (told,) = map(json.loads, done.stdout.splitlines())
    (gone,) = [one for one in told["events"] if one["rule"] == "zip_determines_city"]
    assert (gone["event"], told["changes"], told["rows"]) == ("dropped", 1, 9)
    assert "0" in (gone["left_key"], gone["right_key"])
    del job["learn"]
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = command("learn", "job.json", "--once", folder=tmp_path)
    assert done.returncode == 3
    assert "has no `learn`" in done.stderr


def test_changes_come_to_the_driver_exact_and_net(spark: SparkSession) -> None:
    from decimal import Decimal

    schema = (
        "id bigint, n bigint, d decimal(10,2), at timestamp, s string, "
        "_weever_change tinyint, _weever_sequence bigint, _weever_reason string"
    )
    put, drop, anywhere, clear, reject = PUT, DROP, DROP_ANYWHERE, CLEAR, REJECT
    end, none = "9999-12-31 00:00:00Z", (None,) * 4
    told = [
        (1, BIG + 1, "1.20", end, "", put, 1, None),  # before the table was emptied
        (None, *none, clear, 2, None),
        (2, BIG, None, None, "x", put, 2, None),
        (3, None, "0.10", end, None, put, 3, None),
        (3, None, "0.10", end, None, drop, 4, None),
        (3, BIG + 1, "2.00", end, "\x00", put, 4, None),  # of one sequence the put comes last
        (4, 1, None, None, "y", put, 3, None),
        (4, *none, anywhere, 5, None),
        (None, *none, reject, 6, "no key"),
    ]
    frame = spark.createDataFrame(
        [(*row[:2], row[2] and Decimal(row[2]), None, *row[4:]) for row in told], schema
    ).withColumn(
        "at", F.when(F.col("_weever_change").isin(put, drop) & F.col("d").isNotNull(), F.lit(end).cast("timestamp"))
    )
    columns = stored_columns(frame.drop("_weever_change", "_weever_sequence", "_weever_reason"))
    found = collected(frame.repartition(3), ["id"], columns)
    assert (found.cleared, found.records, found.rejected) == (2, 8, 1)
    by_key = {row["id"]: row for row in found.changes.to_pylist()}
    assert [(key, row["_change_type"]) for key, row in sorted(by_key.items())] == [
        (2, "upsert"),
        (3, "upsert"),
        (4, "delete"),
    ]
    assert (by_key[2]["n"], by_key[3]["n"], by_key[3]["d"], by_key[3]["s"]) == (BIG, BIG + 1, Decimal("2.00"), "\x00")
    assert by_key[3]["at"].isoformat() == "9999-12-31T00:00:00+00:00"
    held = pa.table({"id": pa.array([1, 2], pa.int64())})
    after = {row["id"]: row["_change_type"] for row in found.after_clearing(held).to_pylist()}
    assert after == {1: "delete", 2: "upsert", 3: "upsert", 4: "delete"}
