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
from weever_stream.stream.deltas import applied, needed, setup_for
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
    _guard(notes, setup, job)
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
    frame = feed.changes(needed(file, file.key))
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


def _guard(notes: Notes, setup: Setup, job: Job) -> None:
    """Refuses a checkpoint that was made for something else; notes what a new one is made for."""
    now = about(setup, job)
    before = notes.read(ABOUT)
    if before is None:
        notes.write(ABOUT, now)
        return
    for name in ("format", "source", "key", "shards", "rules", "state"):
        if before.get(name) != now[name]:
            old, new = (_shown(name, one.get(name)) for one in (before, now))
            raise StateError(
                f"the checkpoint {job.state.checkpoint} was made for other {_WORDS.get(name, name)}: {old}, now {new}",
                hint=_RESTART,
            )


_WORDS = {"format": "releases", "state": "rules or column types", "source": "kinds of source", "key": "keys"}


def _shown(name: str, value: Any) -> str:
    if name == "rules" and isinstance(value, dict):
        return ", ".join(sorted(value)) or "none"
    return ", ".join(value) if isinstance(value, list) else str(value)
