"""Where records go that could not be read: a Delta table, a topic, or folders of files.

They are written before the batch is committed, so no record is lost, and as often as violations are: exactly once in a
Delta table (`rejects` under the path) and in files, at least once in Kafka, where a record's origin is the key. Costs
nothing in a batch without rejects.

Folders of files belong to one query, because their names would collide. The Delta table and the topic have no owner:
every record stands for itself and names its origin, nothing is summed up, so several jobs may share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from weever_stream.job.options import DeltaSink, FilesSink, KafkaSink
from weever_stream.sinks.batch import REJECT_COLUMNS
from weever_stream.sinks.brokers import require_brokers
from weever_stream.sinks.delta import append, child, one_file_if_small
from weever_stream.sinks.files import write_folder
from weever_stream.sinks.folders import BatchFolders
from weever_stream.sinks.kafka import as_json, send
from weever_stream.sinks.tables import REJECTS, make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Batch

__all__ = ["DeadLetters"]


class DeadLetters:
    """Takes the rejects of batches and nothing else."""

    def __init__(
        self, spark: SparkSession, options: DeltaSink | KafkaSink | FilesSink, *, take_over: bool = False
    ) -> None:
        self._options = options
        self._folders = (
            BatchFolders(options.path, "rejected records", sums=False, take_over=take_over)
            if isinstance(options, FilesSink)
            else None
        )
        if isinstance(options, DeltaSink):
            make_table(spark, child(options.path, "rejects"), REJECTS)
        elif isinstance(options, KafkaSink):
            require_brokers(spark, options)

    def write(self, batch: Batch) -> None:
        """Writes what a batch rejected."""
        if self._folders is not None:
            self._folders.check(batch.rejects.sparkSession, batch)
        if not batch.rejected:
            if self._folders is not None:
                self._folders.refuse_other(batch)
            return
        rejects, options = batch.rejects.select(*REJECT_COLUMNS), self._options
        if isinstance(options, DeltaSink):
            append(one_file_if_small(rejects, batch), child(options.path, "rejects"), batch, "rejects")
        elif isinstance(options, KafkaSink):
            send(rejects.select(fn.col("origin").alias("key"), as_json(REJECT_COLUMNS).alias("value")), options)
        elif self._folders is not None:
            path = self._folders.folder(rejects.sparkSession, batch)
            write_folder(rejects, REJECT_COLUMNS, options, batch, path)
