"""What every sink keeps: its content is that of the story so far, also when a batch is written again.

Catches a sink that loses or doubles something on replay, mixes up rules, or does not survive what values look like.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.batches import NASTY, Pair, Story, time_of
from weever_stream.errors import OutputError
from weever_stream.job.options import DeltaSink, FilesSink
from weever_stream.sinks import Sink, open_dead_letters, open_sinks
from weever_stream.sinks.reading import read_sink

A, B, C = Pair("zip_city", "1", "2"), Pair("zip_city", "1", "3"), Pair("price", "7", None, "warning")
NASTY_PAIR = Pair('it\'s "ß" = 漢/字 %', NASTY, f"{NASTY}!", city=NASTY)


class Written:
    """A sink and how to read back what it holds."""

    def __init__(self, spark: Any, path: Path, kind: str) -> None:
        self.spark, self.path, self.kind = spark, str(path / "viol ations"), kind

    def sink(self, *, take_over: bool = False) -> Sink:
        if self.kind == "delta":
            options: Any = DeltaSink(kind="delta", path=self.path)
        else:
            options = FilesSink(kind="files", path=self.path, format=self.kind)
        return open_sinks(self.spark, [options], take_over=take_over)[0]

    def log(self) -> list[Any]:
        if self.kind == "delta":
            return list(self.spark.read.format("delta").load(f"{self.path}/log").collect())
        if not Path(self.path).exists():
            return []
        return list(self.spark.read.format(self.kind).load(self.path).collect())


@pytest.fixture(params=["delta", "json", "parquet"])
def written(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Written]:
    return Written(spark, tmp_path, request.param)


def check(written: Written, story: Story) -> None:
    """The log is the story's, and summed it is what is open; `open` says the same."""
    log = written.log()
    assert sorted((row.batch_id, row.change, row.violation_id) for row in log) == sorted(story.log)
    sums: dict[str, int] = {}
    for row in log:
        sums[row.violation_id] = sums.get(row.violation_id, 0) + (1 if row.change == "added" else -1)
    assert {found for found, total in sums.items() if total} == set(story.open)
    for row in log:
        if row.violation_id in story.open and row.batch_id == story.opened[row.violation_id]:
            pair = story.open[row.violation_id]
            assert (row.rule, row.severity, row.left_key, row.right_key) == (
                pair.rule,
                pair.severity,
                pair.left,
                pair.right,
            )
            assert json.loads(row.left_values)["city"] == pair.city
            assert (row.right_values is None) == (pair.right is None)
    if written.kind == "delta":
        rows = written.spark.read.format("delta").load(f"{written.path}/open").collect()
        assert sorted(row.violation_id for row in rows) == sorted(story.open)
        instants = {row.violation_id: row.opened_at.astimezone() for row in rows}
        assert instants == {found: time_of(number).astimezone() for found, number in story.opened.items()}


def test_a_story_of_batches(written: Written, spark: Any) -> None:
    story, sink = Story(spark), written.sink()
    steps = [
        ([A, B, C, NASTY_PAIR], []),
        ([], []),
        ([], [A, C]),
        ([A, Pair("price", "8")], [B, NASTY_PAIR]),
        ([C, NASTY_PAIR], []),
    ]
    for number, (added, removed) in enumerate(steps):
        batch = story.batch(number, added, removed)
        sink.write(batch)
        if number in (0, 3):
            check(written, story)
            written.sink().write(batch)  # after a restart: a new object, the same batch
    check(written, story)


def test_an_empty_batch_writes_nothing(written: Written, spark: Any) -> None:
    sink = written.sink()
    sink.write(Story(spark).batch(0))
    assert written.log() == []


def test_another_checkpoint_is_refused_until_it_takes_over(written: Written, spark: Any) -> None:
    first, second = Story(spark), Story(spark, query="query-2")
    for number, added in enumerate([[A], [B], [C]]):
        written.sink().write(first.batch(number, added))
    before = written.log()
    later = second.batch(0, [B])
    for refused in (later, second.batch(0)):
        with pytest.raises(OutputError, match="holds the violations of another run") as raised:
            written.sink().write(refused)
        assert "--take-over" in str(raised.value.hint)
    with pytest.raises(OutputError, match="is ahead of the checkpoint: it holds batch 2, this would be 1"):
        written.sink().write(Story(spark).batch(1, [C]))
    assert written.log() == before, "what is refused changes nothing"
    for _ in range(2):
        written.sink(take_over=True).write(later)
    sums: dict[str, int] = {}
    for row in written.log():
        sums[row.violation_id] = sums.get(row.violation_id, 0) + (1 if row.change == "added" else -1)
    assert {found for found, total in sums.items() if total} == {B.id}
    with pytest.raises(OutputError, match="holds the violations of another run"):
        written.sink().write(first.batch(3, [A]))
    if written.kind != "delta":
        earlier = spark.read.format(written.kind).load(f"{written.path}/_earlier/query-1").collect()
        assert {row.violation_id for row in earlier} == {A.id, B.id, C.id}, "nothing is deleted"


def test_a_place_that_was_taken_over_with_nothing_to_write_is_no_longer_the_first_ones(
    written: Written, spark: Any
) -> None:
    first, second = Story(spark), Story(spark, query="query-2")
    written.sink().write(first.batch(0, [A]))
    written.sink(take_over=True).write(second.batch(0))
    with pytest.raises(OutputError, match="holds the violations of another run"):
        written.sink().write(first.batch(1, [B]))
    written.sink().write(second.batch(1, [C]))
    if written.kind != "delta":
        assert {row.violation_id for row in written.log()} == {C.id}
        shown = read_sink(written.path).open_index()
        assert shown.column("violation_id").to_pylist() == [C.id], "what was moved away is not shown"


def test_a_job_whose_place_was_taken_over_while_it_runs_stops_at_its_next_write(written: Written, spark: Any) -> None:
    first, second, running = Story(spark), Story(spark, query="query-2"), written.sink()
    running.write(first.batch(0, [A]))
    written.sink(take_over=True).write(second.batch(0, [B]))
    before = written.log()
    with pytest.raises(OutputError, match="holds the violations of another run"):
        running.write(first.batch(1, [C]))
    assert written.log() == before


def test_a_checkpoint_with_open_violations_cannot_take_over(written: Written, spark: Any) -> None:
    written.sink().write(Story(spark).batch(0, [A]))
    second, before = Story(spark, query="query-2"), written.log()
    second.batch(0, [B])
    with pytest.raises(OutputError, match="this checkpoint is not empty"):
        written.sink(take_over=True).write(second.batch(1, [C]))
    assert written.log() == before


def test_a_folder_of_the_same_number_is_refused_where_the_batch_finds_nothing(spark: Any, tmp_path: Path) -> None:
    """A checkpoint that was restored from a copy, and a source that is another since."""
    written = Written(spark, tmp_path, "json")
    for number in range(2):
        written.sink().write(Story(spark).batch(number, [A]))
    with pytest.raises(OutputError, match="is ahead of the checkpoint: it holds batch 1, this would be 1"):
        written.sink().write(Story(spark).batch(1))


def test_an_owner_that_was_cut_off_while_it_was_written_owns_nothing(spark: Any, tmp_path: Path) -> None:
    written = Written(spark, tmp_path, "json")
    Path(written.path).mkdir()
    (Path(written.path) / "_owner").write_text('{"query')
    story = Story(spark)
    written.sink().write(story.batch(0, [A]))
    check(written, story)
    (Path(written.path) / "_owner").write_text('{"query')
    with pytest.raises(OutputError, match="holds the violations of another run"):
        written.sink().write(story.batch(1, [B]))


def test_rejects_of_another_run_are_not_overwritten(spark: Any, tmp_path: Path) -> None:
    from weever_stream.job.options import Rejects

    chosen = Rejects(sink=FilesSink(kind="files", path=str(tmp_path / "rejects")))
    open_dead_letters(spark, chosen, "unused").write(Story(spark).batch(0, rejected=["{"]))
    other = Story(spark, query="query-2").batch(0, rejected=["["])
    with pytest.raises(OutputError, match="holds the rejected records of another run"):
        open_dead_letters(spark, chosen, "unused").write(other)
    open_dead_letters(spark, chosen, "unused", take_over=True).write(other)
    assert [row.record for row in spark.read.json(str(tmp_path / "rejects")).collect()] == ["["]


@pytest.mark.parametrize("kind", ["delta", "json"])
def test_rejects_are_written_once(spark: Any, tmp_path: Path, kind: str) -> None:
    from weever_stream.job.options import Rejects

    path = str(tmp_path / "rejects")
    chosen = DeltaSink(kind="delta", path=path) if kind == "delta" else None
    for number in (0, 1, 1):
        letters = open_dead_letters(spark, Rejects(sink=chosen), path)
        letters.write(Story(spark).batch(number, rejected=[NASTY, "{"] if number else []))
    rows = spark.read.format(kind).load(f"{path}/rejects" if kind == "delta" else path).collect()
    assert sorted(row.record for row in rows) == sorted([NASTY, "{"])
    assert {(row.reason, row.batch_id) for row in rows} == {("no key", 1)}
