"""Rules that change between two starts of one checkpoint, held to Spark SQL's self-joins of the table.

Catches: a rule that is filled and lacks violations, or tells some that a later change ended; a change that overtakes the
row it changes; a rule that stays and is told anew; a rule that is gone and leaves violations open; a batch that was
planned under the old rules and is repeated under the new ones; a change of rules that was cut off half way.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.alerts.servers import serving
from tests.stream.jobs import COLUMNS, RULES, Stream, job_text, truth
from tests.stream.test_files_stream import Feed, Folder, together
from tests.stream.test_kafka_stream import Rows, Topic
from weever_stream.cli import run as cli_run
from weever_stream.errors import DataError, StateError
from weever_stream.feeds import open_feed
from weever_stream.job.options import DeltaSource
from weever_stream.rules import write_rule
from weever_stream.state.inspect import verify
from weever_stream.state.lease import Lease
from weever_stream.state.notes import Notes
from weever_stream.stream import lane, revising
from weever_stream.stream.alerting import alerting
from weever_stream.stream.places import notes_of, runs_of
from weever_stream.stream.query import open_context
from weever_stream.stream.rescaling import rescale
from weever_stream.stream.run import allow, start
from weever_stream.stream.saved import manifests, read_noted, saved_setup
from weever_stream.stream.work import ShardWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.stream.servers.kafka import Broker

pytestmark = pytest.mark.slow

BEFORE = {name: RULES[name] for name in ("dependency", "no_equality", "one_row", "spread_out")}
AFTER = {
    "dependency": RULES["dependency"],  # stays
    "no_equality": {"deny": "t.n < s.n and t.f > s.f and t.b = s.b"},  # denies something else
    "crossed": RULES["crossed"],  # new, in two shards
    "pairs": {"unique": ["c", "b"]},  # new, of a column that is no longer read otherwise
}


class Kept(list[Any]):
    """A sink that keeps what is told."""

    def write(self, batch: Any) -> None:
        self.extend(row.asDict() for row in batch.deltas.collect())


def add(folder: Path, commits: list[Any], files: int = 1) -> None:
    """Adds commits to the feed in some files, one of them a batch."""
    made, each = Folder(folder / "feed"), -(-len(commits) // files)
    for at in range(0, len(commits), each):
        made.add(together(commits[at : at + each]))


def job(folder: Path, rules: Any, **state: Any) -> str:
    source = {"kind": "files", "path": f"{folder}/feed", "options": {"maxFilesPerTrigger": 1}}
    return job_text(source, folder, rules, inline_bytes=0, **state)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    (tmp_path / "feed").mkdir()
    return Stream(spark, job(tmp_path, BEFORE))


def test_rules_that_come_go_and_change_leave_what_they_would_have_left_from_the_start(
    spark: SparkSession, tmp_path: Path, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "FILES_A_BATCH", 1)  # the fill takes several batches, and changes come in between
    feed = Feed(seed=7, keys=24)
    add(tmp_path, feed.commits(40), 4)
    stream.run()
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)
    held = {violation for violation in stream.kept.open if violation[0] == "dependency"}
    with pytest.raises(StateError, match="no_equality denies something else, one_row is gone, spread_out is gone, "):
        start(spark, Stream(spark, job(tmp_path, AFTER)).job, print, once=True)
    assert {rule for rule, _, _ in stream.kept.open} == set(BEFORE), "there is something to close under every rule"

    log = Kept()
    stream.revised(job(tmp_path, AFTER))
    add(tmp_path, feed.commits(12), 1)
    sinks = [stream.kept, log]
    start(spark, stream.job, stream.reports.append, once=True, also=sinks, approve=allow).query.awaitTermination()
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)
    assert {tuple(report.open) for report in stream.reports[-1:]} == {tuple(AFTER)}
    reasons = Counter((row["rule"], row["reason"]) for row in log if row["reason"])
    assert set(reasons) == {
        ("one_row", "rule_removed"),
        ("spread_out", "rule_removed"),
        ("no_equality", "rule_changed"),
    }
    told = Counter((row["rule"], row["left_key"], row["right_key"]) for row in log)
    assert all(told[violation] == 0 for violation in held & stream.kept.open), "what stays is not told again"

    stream.revised(job(tmp_path, BEFORE))  # rules that were there before come back as new ones
    add(tmp_path, feed.commits(8), 1)
    stream.run()
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)


def test_what_was_cut_off_is_taken_up_again(
    spark: SparkSession, tmp_path: Path, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(seed=8, keys=16)
    add(tmp_path, feed.commits(20), 1)
    stream.run()
    batches = stream.kept.last
    add(tmp_path, feed.commits(6), 1)
    with monkeypatch.context() as broken:  # a batch is planned with the old rules, and is not finished
        broken.setattr(stream.kept, "write", lambda batch: 1 / 0)
        stream.fail()
    stream.revised(job(tmp_path, AFTER))
    noting = revising.write_noted
    with monkeypatch.context() as broken:  # the fill is in the lane, and is not noted

        def only_the_end(notes: Any, noted: Any) -> None:
            if noted.generations[-1].number:
                raise KeyboardInterrupt
            noting(notes, noted)

        broken.setattr(revising, "write_noted", only_the_end)
        with pytest.raises(KeyboardInterrupt):
            stream.start()
    assert stream.kept.last > batches, "the batch was finished with the rules that it was planned with"
    assert list((tmp_path / "checkpoint/weever/lane").glob("*.parquet"))
    stream.run()
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)


def test_a_batch_under_way_still_needs_the_columns_of_a_rule_that_goes(
    tmp_path: Path, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(seed=11, keys=8)
    add(tmp_path, feed.commits(6), 1)
    stream.run()
    add(tmp_path, feed.commits(2), 1)
    with monkeypatch.context() as broken:
        broken.setattr(stream.kept, "write", lambda batch: 1 / 0)
        stream.fail()
    rules = {"dependency": RULES["dependency"]}
    without = {name: kind for name, kind in COLUMNS.items() if name != "f"}
    source = {"kind": "files", "path": f"{tmp_path}/feed", "options": {"maxFilesPerTrigger": 1}}
    stream.revised(job_text(source, tmp_path, rules, columns=without, inline_bytes=0))
    with pytest.raises(StateError, match=r"batch 1 was planned with the rules as they were, .* no column f") as refused:
        stream.start()
    assert "once more what the old rules read" in str(refused.value.hint)
    stream.revised(job(tmp_path, rules))
    stream.run()
    stream.revised(job_text(source, tmp_path, rules, columns=without, inline_bytes=0))
    add(tmp_path, feed.commits(2), 1)
    stream.run()
    assert stream.kept.open == truth(stream.spark, feed.table.values(), stream.rules)


def test_a_torn_commit_of_a_batch_that_the_lane_fed_cannot_be_done_again(tmp_path: Path, stream: Stream) -> None:
    feed = Feed(seed=12, keys=8)
    add(tmp_path, feed.commits(6), 1)
    stream.run()
    commits = tmp_path / "checkpoint/commits"
    for rules, remedy in ((BEFORE, "delete it"), (AFTER, "restore the checkpoint")):
        stream.revised(job(tmp_path, rules))
        stream.run()
        last = max((one for one in commits.iterdir() if one.name.isdecimal()), key=lambda one: int(one.name))
        whole = last.read_bytes()
        last.write_bytes(whole[:3])
        (commits / f".{last.name}.crc").unlink()
        with pytest.raises(StateError, match=rf"commits/{last.name} is torn") as refused:
            stream.start()
        assert remedy in str(refused.value.hint)
        last.write_bytes(whole)


def test_a_driver_that_lost_its_lease_writes_no_dead_letters(
    spark: SparkSession, tmp_path: Path, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "feed/0.json").write_text('{"_commit_version": 1, this is no record\n')
    with monkeypatch.context() as lost:

        def check(lease: Lease) -> None:
            raise StateError("the checkpoint belongs to another")

        lost.setattr(Lease, "check", check)
        assert "belongs to another" in str(stream.fail())
    rejects = tmp_path / "checkpoint/weever/rejects"
    assert not rejects.exists()
    stream.run()
    assert spark.read.json(str(rejects)).count() == 1


def test_rules_are_filled_from_a_delta_table_where_the_job_stands(spark: SparkSession, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    table = f"delta.`{tmp_path}/table`"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")

    def insert(first: int, last: int) -> None:
        rows = (f"({n}, {n % 3}, {n * 5 % 4}, {n * 7 % 5}, {n % 4}.5, 'c{n * 3 % 4}')" for n in range(first, last))
        spark.sql(f"INSERT INTO {table} VALUES {', '.join(rows)}")

    source = {"kind": "delta", "path": f"{tmp_path}/table"}
    insert(0, 12)
    stream = Stream(spark, job_text(source, tmp_path, {"dependency": RULES["dependency"]}))
    stream.run()
    # The job stands still while the table changes: the fill is of the version that it has read, the rest are changes.
    spark.sql(f"UPDATE {table} SET a = 1, b = 2 WHERE id < 4")
    spark.sql(f"DELETE FROM {table} WHERE id = 5")
    rules = {"dependency": RULES["dependency"], "crossed": RULES["crossed"], "spread_out": RULES["spread_out"]}
    stream.revised(job_text(source, tmp_path, rules))
    stream.run()
    rows = [row.asDict() for row in spark.table(table).collect()]
    assert stream.kept.open == truth(spark, rows, stream.rules)
    assert {rule for rule, _, _ in stream.kept.open} == set(rules)
    began_anywhere = DeltaSource(kind="delta", path=f"{tmp_path}/table", starting_version="latest")
    with pytest.raises(DataError, match="it is not known at which version the job began"):
        open_feed(spark, began_anywhere, ["id"], {}).history(["id"], {"version": 1})


def test_rules_are_filled_from_a_topic(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    topic, rows = Topic(kafka.servers, 2), Rows(5)
    topic.send(rows.messages(60))
    stream = Stream(spark, job_text(topic.source(), tmp_path, {"one_row": RULES["one_row"]}))
    stream.run()
    topic.send(rows.messages(20))
    stream.revised(job_text(topic.source(), tmp_path, {"crossed": RULES["crossed"], "dependency": RULES["dependency"]}))
    stream.run()
    assert stream.kept.open == truth(spark, rows.table.values(), stream.rules)
    assert {rule for rule, _, _ in stream.kept.open} == {"crossed", "dependency"}


def test_another_number_of_shards(spark: SparkSession, tmp_path: Path, stream: Stream) -> None:
    feed = Feed(seed=9, keys=24)
    add(tmp_path, feed.commits(40), 1)
    stream.run()
    assert stream.kept.open
    before = stream.kept.counts[-1]
    stream.revised(job(tmp_path, BEFORE, shards=7))
    with pytest.raises(StateError, match="has 4 shards, the job file asks for 7") as refused:
        stream.start()
    assert "weever state rescale" in str(refused.value.hint)
    add(tmp_path, feed.commits(3), 1)
    with Lease(notes_of(stream.job)) as lease:
        context = open_context(spark, stream.job, lease, stream.reports.append, also=[stream.kept])
        assert rescale(context, 7).shards == 7
    assert len(stream.kept.counts) > 2, "what was there was read first"
    assert stream.kept.counts[-1] == stream.kept.counts[-2], "what moves is not told"
    assert before
    found = manifests(spark, f"{tmp_path}/checkpoint")
    setup = saved_setup(stream.job, notes_of(stream.job), runs_of(stream.job))
    assert set(found) == set(range(7))
    assert list(verify(found, setup.families, ShardWork(setup).keeper)) == []
    add(tmp_path, feed.commits(6), 1)
    stream.run()
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)
    assert sum(stream.reports[-1].open.values()) == len(stream.kept.open)


def test_a_rule_that_is_built_again_stays_open_and_only_the_difference_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lane, "FILES_A_BATCH", 1)  # the backfill takes several batches, and changes come in between
    monkeypatch.setattr(lane, "_MESSAGES_A_FILE", 2)
    (tmp_path / "feed").mkdir()
    feed, path, log = Feed(seed=7, keys=24), tmp_path / "job.yaml", Kept()
    with serving() as server:
        target = {"kind": "webhook", "url": server.url(), "allow_hosts": ["127.0.0.1"], "quiet": "0 seconds"}
        text = json.dumps({**json.loads(job(tmp_path, RULES)), "alerts": [target]})
        path.write_text(text)
        stream = Stream(spark, text)

        def run() -> None:
            with alerting(stream.job, lambda: True) as alerts:
                also = [stream.kept, log, *alerts]
                start(spark, stream.job, stream.reports.append, once=True, also=also).query.awaitTermination()

        add(tmp_path, feed.commits(40), 2)
        run()
        held = stream.kept.counts[-1]
        assert set(held) == set(RULES), "there is something to lose under every rule"
        opened = len(server.requests)
        page = (Path(__file__).parents[2] / "docs/alert-targets.md").read_text(encoding="utf-8")
        (documented,) = re.findall(r"^<!-- sent: webhook -->\n+```json\n(.*?)^```", page, re.S | re.M)
        for request in server.requests:  # what a job really sends is what the docs show
            assert {name: type(value) for name, value in request.json.items() if value is not None}.items() <= {
                **{name: type(value) for name, value in json.loads(documented).items()},
                **dict.fromkeys(("description", "owner", "runbook", "group_id"), str),
            }.items()
            assert request.json["expression"] == write_rule(stream.job.file.select([request.json["rule"]]).rules[0])
            assert request.json["source_position"] in {report.position for report in stream.reports}
        log.clear()
        with Lease(notes_of(stream.job)) as lease:
            context = open_context(spark, stream.job, lease, stream.reports.append, also=[stream.kept, log])
            revising.agreed(context, allow, list(RULES))
        assert cli_run(["plan", str(path), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["backfilling"] == dict.fromkeys(RULES, 0)
        begun = len(stream.reports)
        assert cli_run(["plan", str(path)]) == 0
        assert capsys.readouterr().out.count("is being backfilled: 0 % are done") == len(RULES)
        add(tmp_path, feed.commits(6), 2)
        run()
        truly = truth(spark, feed.table.values(), stream.rules)
        assert stream.kept.open == truly
        assert [row for row in log if row["reason"]] == [], "no state was wrong, so nothing is put right"
        changes = sum(report.changes for report in stream.reports[begun:])
        assert changes, "changes came in between"
        shares = [report.backfilling for report in stream.reports[begun:]]
        assert set(shares[0]) == set(RULES)
        assert shares[-1] == {}
        assert len(shares) > 5
        still = {rule for rule, _, _ in truly}
        sent = [request.json for request in server.requests[opened:]]
        assert [one for one in sent if one["event"] == "resolve" and one["rule"] in still] == []

    run_again = Stream(spark, text)
    run_again.kept = stream.kept
    noted = read_noted(Notes(notes_of(stream.job)), "")
    assert noted is not None
    assert noted.rebuilding
    add(tmp_path, feed.commits(3), 1)
    run_again.run()  # the old state is ended by this start, and dropped
    noted = read_noted(Notes(notes_of(stream.job)), "")
    assert noted is not None
    assert not noted.rebuilding
    assert run_again.kept.open == truth(spark, feed.table.values(), stream.rules)
    setup, found = (
        saved_setup(stream.job, notes_of(stream.job), runs_of(stream.job)),
        manifests(spark, f"{tmp_path}/checkpoint"),
    )
    living = {family.identity for family in setup.living}
    assert any(set(manifest.families) <= living for manifest in found.values())
    assert list(verify(found, setup.families, ShardWork(setup).keeper)) == []
    with Lease(notes_of(stream.job)) as lease:  # and the rows of rules that were built again can be moved
        context = open_context(spark, stream.job, lease, stream.reports.append, also=[stream.kept])
        assert rescale(context, 3).shards == 3
    assert run_again.kept.open == truth(spark, feed.table.values(), stream.rules)
