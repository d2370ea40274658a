"""The query of a job: its source and the lane, through the shards, into the sinks.

What it is planned from is the note beside the checkpoint (`state.noted`); the job file adds how it runs: sinks,
trigger, sizes. Nothing that a restart needs is kept in memory: Spark's checkpoint has offsets and manifests, the folder
`weever` in it has run files, the lane and notes.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from weever_stream.feeds import open_feed
from weever_stream.job.options import duration
from weever_stream.sinks import open_dead_letters, open_sinks
from weever_stream.state.backfills import pending_backfills
from weever_stream.state.notes import Notes
from weever_stream.stream.batches import Batches
from weever_stream.stream.columns import key_types, needed, refuse_types
from weever_stream.stream.deltas import applied, in_any_order, stored_columns
from weever_stream.stream.lane import Lane
from weever_stream.stream.logbook import Logbook
from weever_stream.stream.owner import StillOurs
from weever_stream.stream.places import folder, notes_of, runs_of, schemas_of
from weever_stream.stream.position import exists
from weever_stream.stream.preflight import SOURCE
from weever_stream.stream.progress import PROGRESS, Ledger, trends_of
from weever_stream.stream.saved import setup_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from weever_stream.feeds import Feed
    from weever_stream.job.job import Job
    from weever_stream.learn.drift import Drift
    from weever_stream.rules.model import Rule
    from weever_stream.sinks.batch import Sink
    from weever_stream.state.lease import Lease
    from weever_stream.state.noted import Noted
    from weever_stream.stream.progress import BatchReport
    from weever_stream.stream.setup import Setup

__all__ = ["ONE_BATCH", "WHAT_IS_THERE", "Context", "Running", "open_context"]

ONE_BATCH, WHAT_IS_THERE = "one batch", "what is there"
"""Triggers: the batch that was planned and not finished; all that the source has now."""
_DEFAULT_TRIGGER = "1 second"


@dataclass
class Running:
    """A query and what it was started with."""

    query: StreamingQuery
    setup: Setup
    batches: Batches

    def stop(self, after: int | None = None, patience: float = 30.0) -> None:
        """Stops the query. `after`: a batch that has been written; Spark commits it first, or it would be repeated."""
        until = time.monotonic() + patience
        while after is not None and self.query.isActive and time.monotonic() < until:
            progress = self.query.lastProgress
            if progress is not None and progress["batchId"] >= after:
                break
            time.sleep(0.02)
        self.query.stop()


@dataclass(frozen=True)
class Context:
    """A job with its source opened."""

    spark: SparkSession
    job: Job
    feed: Feed
    notes: Notes
    lane: Lane
    lease: Lease
    observe: Callable[[BatchReport], None]
    also: Sequence[Sink] = ()
    """Further sinks."""
    take_over: bool = False

    @property
    def checkpoint(self) -> str:
        """Where it is."""
        return self.job.state.checkpoint.rstrip("/")

    def columns(self, rules: Sequence[Rule]) -> pa.Schema:
        """Key and columns that rules read, in the types in which they are stored."""
        return stored_columns(self.feed.changes(needed(rules, self.job.file.key)))

    def setup(self, noted: Noted) -> Setup:
        """The setup of a note."""
        return setup_of(noted, self.job, runs_of(self.job))

    def start(self, noted: Noted, trigger: str | None = None) -> Running:
        """Starts the query of a note. `trigger`: a duration, `ONE_BATCH` or `WHAT_IS_THERE`."""
        setup, job = self.setup(noted), self.job
        written = replace(job, file=replace(job.file, rules=noted.oriented(job.file.rules)))
        self.lane.tidy(noted.revision)
        batches = Batches(
            spark=self.spark,
            setup=setup,
            checkpoint=self.checkpoint,
            guard=StillOurs(self.lease),
            sinks=[
                Logbook(self.spark, self.checkpoint, self.notes),
                *open_sinks(self.spark, job.sinks, job=written, take_over=self.take_over),
                *self.also,
            ],
            dead_letters=open_dead_letters(
                self.spark, job.source.rejects, f"{folder(self.checkpoint)}/rejects", take_over=self.take_over
            ),
            rejects=job.source.rejects,
            locate=self.feed.locate,
            ledger=Ledger(
                self.notes,
                [None if rule.ended else rule.name for rule in noted.rules],
                noted.numbering,
                partial(pending_backfills, noted),
            ),
            drift=self._drift(noted),
            observe=self.observe,
        )
        output = applied(self._frame(noted, setup), setup, self.lane.messages())
        writer = output.writeStream.queryName(f"weever {job.file.table}").foreachBatch(batches)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if trigger == WHAT_IS_THERE:
            writer = writer.trigger(availableNow=True)
        elif trigger == ONE_BATCH:
            writer = writer.trigger(once=True)
        else:
            seconds = duration(trigger or job.trigger or _DEFAULT_TRIGGER)
            writer = writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
        return Running(writer.start(), setup, batches)

    def _drift(self, noted: Noted) -> Drift:
        """How the rules of a note have been doing; those that it knows by another definition begin anew."""
        drift = trends_of(self.notes.read(PROGRESS))
        drift.adopt({rule.name: rule.fingerprint for rule in noted.rules if not rule.ended})
        return drift

    def _frame(self, noted: Noted, setup: Setup) -> DataFrame:
        """The change frame. Columns that only ended rules have read are null: they may be gone from the source."""
        living = [bound.rule for number, bound in enumerate(setup.rules) if number not in setup.ended]
        frame = self.feed.changes(needed(living, setup.key_names))
        refuse_types(stored_columns(frame), noted.columns, living, self.checkpoint)
        there = set(frame.columns)
        absent = {
            field.name: F.lit(None).cast(from_arrow_type(field.type))
            for field in noted.columns
            if field.name not in there
        }
        frame = frame.withColumns(absent) if absent else frame
        return in_any_order(frame) if self.job.remember_drops else frame


def open_context(
    spark: SparkSession,
    job: Job,
    lease: Lease,
    observe: Callable[[BatchReport], None],
    *,
    also: Sequence[Sink] = (),
    take_over: bool = False,
) -> Context:
    """Opens a job's source. Notes which source it is, if nothing was read of it yet, and refuses another later."""
    file, notes = job.file, Notes(notes_of(job))
    Logbook(spark, job.state.checkpoint.rstrip("/"), notes).check()
    feed = open_feed(spark, job.source, file.key, file.columns, tracking=schemas_of(job))
    found = file.schema(feed.schema)
    file.bind(found)  # first, because it says in which rule and line a column is missing
    key_types(file.key, found)
    begun = exists(spark, f"{job.state.checkpoint.rstrip('/')}/offsets")
    done: Any = json.loads((notes.read(PROGRESS) or {}).get("position", "null")) if begun else None
    noted = notes.read(SOURCE) if begun else None
    source = feed.recognize(noted, done)
    if noted is None:
        notes.write(SOURCE, source)
    lane = Lane(spark, folder(job.state.checkpoint), notes_of(job))
    return Context(spark, job, feed, notes, lane, lease, observe, also, take_over)
