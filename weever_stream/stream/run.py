"""The job: from a job file to a running query, and an orderly end.

`start` makes feed, setup and sinks, compares them with what the checkpoint was made for, and starts the query. Nothing
that a restart needs is kept in memory: Spark's checkpoint has offsets and manifests, the folder `weever` in it has run
files and notes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weever_stream.errors import StateError
from weever_stream.feeds import open_feed
from weever_stream.job.options import duration
from weever_stream.sinks import open_dead_letters, open_sinks
from weever_stream.state.notes import Notes
from weever_stream.state.store import StoreOptions
from weever_stream.stream.batches import Batches
from weever_stream.stream.deltas import applied, in_any_order, needed, setup_for
from weever_stream.stream.position import exists
from weever_stream.stream.progress import Ledger
from weever_stream.stream.saved import ABOUT, about

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from weever_stream.job.job import Job
    from weever_stream.sinks.batch import Sink
    from weever_stream.stream.progress import BatchReport
    from weever_stream.stream.setup import Setup

__all__ = ["Running", "folder", "notes_of", "runs_of", "set_up", "start"]

_DEFAULT_TRIGGER = "1 second"
_RESTART = "start with an empty checkpoint to build the state anew, or go back to what it was made for"


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


def folder(checkpoint: str) -> str:
    """Our own folder in a checkpoint."""
    return f"{checkpoint.rstrip('/')}/weever"


def start(
    spark: SparkSession,
    job: Job,
    observe: Callable[[BatchReport], None],
    *,
    once: bool = False,
    every: str | None = None,
    also: Sequence[Sink] = (),
) -> Running:
    """Starts the job's query. `once`: what is there now is processed, and the query ends. `also`: further sinks."""
    checkpoint = job.state.checkpoint.rstrip("/")
    setup, frame = set_up(spark, job)
    notes = Notes(notes_of(job))
    _guard(spark, notes, setup, job)
    names = [bound.rule.name for bound in setup.rules]
    batches = Batches(
        spark=spark,
        setup=setup,
        checkpoint=checkpoint,
        sinks=[*open_sinks(spark, job.sinks), *also],
        dead_letters=open_dead_letters(spark, job.source.rejects, f"{folder(checkpoint)}/rejects"),
        rejects=job.source.rejects,
        ledger=Ledger(notes, names),
        observe=observe,
    )
    notes.write(ABOUT, about(setup, job))
    writer = applied(frame, setup).writeStream.queryName(f"weever {job.file.table}").foreachBatch(batches)
    writer = writer.option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        seconds = duration(every or job.trigger or _DEFAULT_TRIGGER)
        writer = writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
    return Running(writer.start(), setup, batches)


def set_up(spark: SparkSession, job: Job) -> tuple[Setup, Any]:
    """The setup of a job, and the change frame of its feed."""
    file = job.file
    tracking = f"{folder(job.state.checkpoint)}/schema"
    feed = open_feed(spark, job.source, file.key, file.columns, tracking=tracking)
    file.bind(file.schema(feed.schema))  # first, because it says in which rule and line a column is missing
    frame = feed.changes(needed(file, file.key))
    if job.remember_drops:
        frame = in_any_order(frame)
    setup = setup_for(
        file,
        file.key,
        file.schema(feed.schema),
        frame,
        runs_of(job),
        shards=job.state.shards,
        spread={rule.name: rule.spread for rule in file.rules if rule.spread > 1},
        inline_bytes=job.state.inline_bytes,
        retain_batches=job.state.retain_batches,
        remember_drops=job.remember_drops,
    )
    return setup, frame


def notes_of(job: Job) -> StoreOptions:
    """Where the notes are."""
    return _store(job, folder(job.state.checkpoint))


def runs_of(job: Job) -> StoreOptions:
    """Where the run files are."""
    return _store(job, f"{folder(job.state.checkpoint)}/runs")


def _store(job: Job, uri: str) -> StoreOptions:
    plain = {
        name: getattr(value, "reveal", lambda value=value: value)() for name, value in job.state.filesystem.items()
    }
    return StoreOptions(uri, plain, job.state.cache)


def _guard(spark: SparkSession, notes: Notes, setup: Setup, job: Job) -> None:
    """Refuses a checkpoint that was made for something else. One without any batch was made for nothing yet."""
    before, now = notes.read(ABOUT), about(setup, job)
    begun = exists(spark, f"{job.state.checkpoint.rstrip('/')}/offsets")
    if before is None or not begun:
        return
    for name, what in _WORDS.items():
        if before.get(name) != now[name]:
            told = _difference(before.get(name), now[name])
            raise StateError(f"the checkpoint {job.state.checkpoint} was made for {what}: {told}", hint=_RESTART)


_WORDS = {
    "format": "another release",
    "source": "another kind of source",
    "key": "another key",
    "shards": "another number of shards",
    "rules": "other rules",
    "state": "other rules or column types",
}


def _difference(old: Any, new: Any) -> str:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{_listed(old)}, now {_listed(new)}"
    changed = [f"{name} is another rule" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    gone = [f"{name} is gone" for name in sorted(old.keys() - new.keys())]
    return ", ".join([*changed, *gone, *(f"{name} is new" for name in sorted(new.keys() - old.keys()))])


def _listed(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
