"""A Kafka topic whose key is the violation's id: its JSON while it is there, a tombstone once it is over.

At least once: a batch that is written again repeats itself under the same keys, so a reader that keeps the last message
of a key is right, and so is a compacted topic, which then is the set of open violations. Messages of one key are in one
partition and in the order of the batches. Nothing is kept in memory: rows go from the executors to the brokers.

A topic has no owner: it has no place to name one that would not look like a violation to its readers. Keys are the same
whatever query sends them, so a second query repeats what it finds again; what ended in between gets no tombstone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from weever_stream.errors import OutputError
from weever_stream.sinks.batch import ADDED, DELTA_COLUMNS
from weever_stream.sinks.brokers import client_options, require_brokers
from weever_stream.sinks.failures import writing
from weever_stream.sinks.files import AS_JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from weever_stream.job.options import KafkaSink
    from weever_stream.sinks.batch import Batch

__all__ = ["Topic", "as_json", "send"]

_NO_METADATA = "not present in metadata"
"""What a producer says of a topic that is missing, and of any topic when it reaches no broker."""


class Topic:
    """The sink of kind `kafka`."""

    def __init__(self, spark: SparkSession, options: KafkaSink) -> None:
        self._options = options
        require_brokers(spark, options)

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
    try:
        with writing(f"the topic {options.topic}"):
            messages.write.format("kafka").options(**client_options(options)).option("topic", options.topic).save()
    except OutputError as error:
        if _NO_METADATA in str(error.__cause__):
            require_brokers(messages.sparkSession, options)
        raise
