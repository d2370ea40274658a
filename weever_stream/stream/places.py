"""Where a job keeps its own things: in the folder `weever` of its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weever_stream.state.store import StoreOptions

if TYPE_CHECKING:
    from weever_stream.job.job import Job
    from weever_stream.job.options import State

__all__ = [
    "checkpoint_of",
    "dead_letters_of",
    "folder",
    "journal_of",
    "learn_checkpoint",
    "learn_notes_of",
    "log_of",
    "notes_of",
    "notes_of_state",
    "offsets_of",
    "runs_of",
    "schemas_of",
]


def folder(checkpoint: str) -> str:
    """Our own folder in a checkpoint."""
    return f"{checkpoint.rstrip('/')}/weever"


def notes_of(job: Job) -> StoreOptions:
    """Where the notes are."""
    return notes_of_state(job.state)


def notes_of_state(state: State) -> StoreOptions:
    """The same, where only the part `state` of a job file is known."""
    return _store_of(state, folder(state.checkpoint))


def runs_of(job: Job) -> StoreOptions:
    """Where the run files are."""
    return _store(job, f"{folder(job.state.checkpoint)}/runs")


def dead_letters_of(job: Job) -> str:
    """Where rejected records are: a path, or a Kafka topic."""
    sink = job.source.rejects.sink
    if sink is None:
        return f"{folder(job.state.checkpoint)}/rejects"
    return f"topic {sink.topic}" if sink.kind == "kafka" else sink.path


def offsets_of(job: Job) -> StoreOptions:
    """Where Spark's log of offsets is."""
    return _store(job, f"{job.state.checkpoint.rstrip('/')}/offsets")


def checkpoint_of(job: Job) -> StoreOptions:
    """Spark's own folder."""
    return _store(job, job.state.checkpoint.rstrip("/"))


def schemas_of(job: Job, checkpoint: str | None = None) -> StoreOptions:
    """Where the stream of a Delta source logs the schemas that it reads."""
    return _store(job, f"{folder(checkpoint or job.state.checkpoint)}/schema")


def log_of(checkpoint: str) -> Path | None:
    """Where Java's stack traces go while a query uses a checkpoint; None if that is not on a local disk."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    return Path(folder(parts.path if parts.scheme else checkpoint), "logs", "spark.log")


def learn_checkpoint(job: Job) -> str:
    """The checkpoint of the query that learns rules: in our folder, and with one like it inside."""
    return f"{folder(job.state.checkpoint)}/learn"


def learn_notes_of(job: Job) -> StoreOptions:
    """Where the notes of learned rules are."""
    return _store(job, folder(learn_checkpoint(job)))


def journal_of(job: Job) -> StoreOptions:
    """Where dumps of the learner and the changes since are."""
    return _store(job, f"{folder(learn_checkpoint(job))}/journal")


def _store(job: Job, uri: str) -> StoreOptions:
    return _store_of(job.state, uri)


def _store_of(state: State, uri: str) -> StoreOptions:
    plain = {name: getattr(value, "reveal", lambda value=value: value)() for name, value in state.filesystem.items()}
    return StoreOptions(uri, plain, state.cache)
