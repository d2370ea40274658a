"""The query that learns rules: the job's source once more, through a learner in the driver, into rule events.

It has a checkpoint of its own in the folder of the job's (`weever/learn`) and a lease of its own, so it can run beside
the job's query in one process, or alone in another, and neither waits for the other or fails with it. The source is
read twice. The learner holds the key and the learned columns of every row in the driver's memory.

What it was made for is noted at the first start (`learn.about`); what has changed since is refused, or with `anew`
forgotten: then the source is read from its beginning, and the first batch tells what became of the rules that held.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weever_stream.errors import DataError, RuleError, did_you_mean
from weever_stream.feeds import open_feed
from weever_stream.job.options import duration
from weever_stream.learn.about import ABOUT, About
from weever_stream.learn.holding import HOLDING
from weever_stream.rules.types import ColumnType
from weever_stream.sinks.ruleevents import open_event_sinks
from weever_stream.state.journal import Journal
from weever_stream.state.lease import Lease
from weever_stream.state.notes import Notes
from weever_stream.state.store import opened
from weever_stream.stream.columns import key_types
from weever_stream.stream.deltas import stored_columns
from weever_stream.stream.lessons import BEFORE, BEGUN, Lessons
from weever_stream.stream.logbook import LOGBOOK, Logbook
from weever_stream.stream.owner import locked_by_jvm, released_with
from weever_stream.stream.places import journal_of, learn_checkpoint, learn_notes_of, schemas_of
from weever_stream.stream.position import exists
from weever_stream.stream.progress import PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from weever_stream.feeds import Feed
    from weever_stream.job.job import Job
    from weever_stream.learn.together import Companion
    from weever_stream.sinks.ruleevents import EventSink
    from weever_stream.stream.lessons import LearnReport

__all__ = ["start_learning"]

_SOURCE = "source.json"
_DEFAULT_TRIGGER = "1 second"


def start_learning(
    spark: SparkSession,
    job: Job,
    observe: Callable[[LearnReport], None],
    *,
    once: bool = False,
    every: str | None = None,
    anew: bool = False,
    take_over: bool = False,
    also: Sequence[EventSink] = (),
    companions: Callable[[], Sequence[Companion]] = tuple,
) -> StreamingQuery:
    """Starts the query. `once`: what is there now is learned from, and the query ends.

    `take_over`: tables of rule events that another learner owns are continued. `also`: further sinks, before those of
    the job file. `companions` makes what is kept beside the learner.
    """
    if job.learn is None:
        raise RuleError(
            "the job file has no `learn`", hint="add `learn: {}` to it; docs/learn-on-the-stream.md tells more"
        )
    lease = Lease(learn_notes_of(job), "weever learn").take()
    try:
        locked_by_jvm(spark, lease)
        if anew:
            _forget(spark, job)
        query = _Opening(spark, job, lease, take_over).start(observe, once, every, also, companions)
    except BaseException:
        lease.release()
        raise
    released_with(query, lease)
    return query


@dataclass(frozen=True)
class _Opening:
    """A job whose rules are to be learned."""

    spark: SparkSession
    job: Job
    lease: Lease
    take_over: bool

    def start(
        self,
        observe: Callable[[LearnReport], None],
        once: bool,
        every: str | None,
        also: Sequence[EventSink],
        companions: Callable[[], Sequence[Companion]],
    ) -> StreamingQuery:
        job, learn = self.job, self.job.learn
        assert learn is not None
        checkpoint, notes = learn_checkpoint(job), Notes(learn_notes_of(job))
        logbook = Logbook(self.spark, checkpoint, notes)
        logbook.check()
        tracking = schemas_of(job, checkpoint)
        feed = open_feed(self.spark, job.source, job.file.key, job.file.columns, tracking=tracking)
        self._recognize(feed, checkpoint, notes)
        about = self._agreed(feed, checkpoint, notes)
        predecessors = (notes.read(BEFORE) or {}).get("predecessors", ())
        lessons = Lessons(
            spark=self.spark,
            checkpoint=checkpoint,
            about=about,
            notes=notes,
            journal=Journal(journal_of(job)),
            logbook=logbook,
            lease=self.lease,
            sinks=[
                *also,
                *open_event_sinks(self.spark, learn.sinks, predecessors=predecessors, take_over=self.take_over),
            ],
            observe=observe,
            settings={
                "columns": learn.columns,
                "cross": learn.cross,
                "order_text": learn.order_text,
                "max_predicates": learn.max_predicates,
            },
            companions=lambda: [*_almost(job), *companions()],
        )
        writer = feed.changes(about.columns.names).writeStream.queryName(f"weever learn {job.file.table}")
        writer = writer.foreachBatch(lessons).option("checkpointLocation", checkpoint)
        if once:
            return writer.trigger(availableNow=True).start()
        seconds = duration(every or learn.every or job.trigger or _DEFAULT_TRIGGER)
        return writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds").start()

    def _recognize(self, feed: Feed, checkpoint: str, notes: Notes) -> None:
        """Notes which topic or table it is, and refuses another one later."""
        begun = exists(self.spark, f"{checkpoint}/offsets")
        done: Any = json.loads((notes.read(PROGRESS) or {}).get("position", "null")) if begun else None
        noted = notes.read(_SOURCE) if begun else None
        source = feed.recognize(noted, done)
        if noted is None:
            notes.write(_SOURCE, source)

    def _agreed(self, feed: Feed, checkpoint: str, notes: Notes) -> About:
        """What the learner was made for, noted now if it is new."""
        job, learn = self.job, self.job.learn
        assert learn is not None
        noted = notes.read(ABOUT) if exists(self.spark, f"{checkpoint}/offsets") else None
        before = None if noted is None else About.of_json(noted, checkpoint)
        names = _names(job, feed, before)
        columns = stored_columns(feed.changes(names))
        now = About(job.file.table, job.source.kind, tuple(job.file.key), learn.space, columns)
        if before is None:
            notes.write(ABOUT, now.to_json())
            return now
        before.refuse(now)
        return before


def _names(job: Job, feed: Feed, before: About | None) -> list[str]:
    """The key and the columns to learn from: those of the first start, those that are named, or all."""
    found, key = job.file.schema(feed.schema), tuple(job.file.key)
    key_types(key, found)
    asked = job.learn.columns if job.learn is not None else None
    if asked is not None:
        for name in asked:
            kind = found.get(name)
            if not isinstance(kind, ColumnType):
                problem = f"is of type {kind}, which cannot be compared" if kind else "is not in the source"
                place = node.place_of(name) if (node := _columns_node(job)) is not None else None
                raise DataError(f"the column {name} {problem}", hint=did_you_mean(name, found), place=place)
        return [*key, *(name for name in asked if name not in key)]
    if before is not None and before.settings.get("columns") is None:
        # A column that came later is left out; one that is gone is refused by its name, see `About.refuse`.
        return [name for name in before.columns.names if isinstance(found.get(name), ColumnType)]
    return [*key, *(name for name, kind in found.items() if isinstance(kind, ColumnType) and name not in key)]


def _almost(job: Job) -> list[Companion]:
    """What watches rules that almost hold, if the job asks for it."""
    learn = job.learn
    if learn is None or learn.error is None:
        return []
    from weever_stream.learn.almost import AlmostRules

    options = {name: getattr(learn, name) for name in ("columns", "cross", "order_text", "max_predicates")}
    return [AlmostRules(job.file.key, learn.error, **options)]


def _columns_node(job: Job) -> Any:
    node = job.file.node("learn")
    return node.child("columns") if node is not None else None


def _forget(spark: SparkSession, job: Job) -> None:
    """Deletes all that was learned but the decisions of people, and the rules that held, to say what became of them."""
    notes, (_, files, root) = Notes(learn_notes_of(job)), opened(learn_notes_of(job))
    held, before = notes.read(HOLDING), notes.read(BEFORE) or {}
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path
    checkpoint = path(learn_checkpoint(job))
    system = checkpoint.getFileSystem(spark._jsc.hadoopConfiguration())
    if held is not None:  # first, so that a crash in between loses nothing of it
        lineage = [*before.get("predecessors", ()), held.get("query_id")]
        notes.write(BEFORE, {**held, "predecessors": lineage}, compact=True)
    for name in ("offsets", "commits", "sources", "metadata", "state"):
        system.delete(path(checkpoint, name), True)
    with suppress(FileNotFoundError):
        files.delete_dir_contents(f"{root}/journal")
    with suppress(FileNotFoundError):
        files.delete_dir(f"{root}/schema")
    for name in (HOLDING, ABOUT, PROGRESS, LOGBOOK, BEGUN, _SOURCE):
        with suppress(FileNotFoundError):
            files.delete_file(f"{root}/{name}")
