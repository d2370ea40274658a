"""A Kafka topic whose key is the violation's id: its JSON while it is there, a tombstone once it is over.

At least once: a batch that is written again repeats itself under the same keys, so a reader that keeps the last message
of a key is right, and so is a compacted topic, which then is the set of open violations. Messages of one key are in one
partition and in the order of the batches. Nothing is kept in memory: rows go from the executors to the brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from weever_stream.job.options import revealed
from weever_stream.sinks.batch import ADDED, DELTA_COLUMNS
from weever_stream.sinks.failures import writing
from weever_stream.sinks.files import AS_JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from weever_stream.job.options import KafkaSink
    from weever_stream.sinks.batch import Batch

__all__ = ["Topic", "as_json", "send"]


class Topic:
    """The sink of kind `kafka`."""

    def __init__(self, options: KafkaSink) -> None:
        self._options = options

    def write(self, batch: Batch) -> None:
        """Sends a message for each addition and a tombstone for each removal."""
        if batch.added or batch.removed:
            value = fn.when(fn.col("change") == ADDED, as_json(DELTA_COLUMNS))
            send(batch.deltas.select(fn.col("violation_id").alias("key"), value.alias("value")), self._options)


def as_json(columns: tuple[str, ...]) -> Column:
    """Columns as one JSON object, nulls included."""
    return fn.to_json(fn.struct(*columns), AS_JSON)


def send(messages: DataFrame, options: KafkaSink) -> None:
    """Sends rows of `key` and `value`. The options are in the clear only within this call."""
    with writing(f"the topic {options.topic}"):
        (
            messages.write.format("kafka")
            .options(**revealed({**options.options, "kafka.bootstrap.servers": options.servers}))
            .option("topic", options.topic)
            .save()
        )
