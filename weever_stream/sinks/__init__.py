"""Where violations go: Delta tables, Kafka, files, the terminal. See docs/sinks.md.

A sink takes a `Batch` and may be given the same one again; `batch.py` says what that must do. Each sink reads the
batch's frame once. Nothing here is loaded before a job opens its sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weever_stream.sinks.batch import ADDED, DELTA_COLUMNS, REJECT_COLUMNS, REMOVED, Batch, Sink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from weever_stream.job.job import Job
    from weever_stream.job.options import Rejects

__all__ = [
    "ADDED",
    "DELTA_COLUMNS",
    "REJECT_COLUMNS",
    "REMOVED",
    "Batch",
    "Sink",
    "open_dead_letters",
    "open_sinks",
]


def open_sinks(
    spark: SparkSession, sinks: Sequence[Any], *, job: Job | None = None, take_over: bool = False
) -> list[Sink]:
    """The sinks that a job names, each a model of `job.options`. Makes and checks Delta tables; writes no rows.

    With `take_over`, tables and folders of another query are continued: what it left open is closed or moved away
    first. `job` is needed by a quarantine that splits the job's table, and gives the console its rules' operators.
    """
    return [_open(spark, options, job, take_over) for options in sinks]


def _open(spark: SparkSession, options: Any, job: Job | None, take_over: bool) -> Sink:
    if options.kind == "delta":
        from weever_stream.sinks.delta import DeltaTables

        return DeltaTables(spark, options, take_over=take_over)
    if options.kind == "kafka":
        from weever_stream.sinks.kafka import Topic

        return Topic(spark, options)
    if options.kind == "files":
        from weever_stream.sinks.files import Files

        return Files(options, take_over=take_over)
    if options.kind == "quarantine":
        from weever_stream.sinks.quarantine import Quarantine
        from weever_stream.sinks.split import Split

        split = Split(spark, options.path, job) if options.tables == "split" and job is not None else None
        return Quarantine(spark, options, split, take_over=take_over)
    from weever_stream.sinks.console import Terminal

    return Terminal(options, None if job is None else job.file)


def open_dead_letters(spark: SparkSession, rejects: Rejects, default_path: str, *, take_over: bool = False) -> Sink:
    """Where a job's rejected records go: its own choice, else JSON files under `default_path`, in its checkpoint."""
    from weever_stream.job.options import FilesSink
    from weever_stream.sinks.deadletters import DeadLetters

    if rejects.sink is not None:
        return DeadLetters(spark, rejects.sink, take_over=take_over)
    # Whoever holds the lease of the checkpoint owns what is in it.
    return DeadLetters(spark, FilesSink(kind="files", path=default_path), take_over=True)
