"""Where events of learned rules go: a Delta table that is appended to, exactly once, and a Kafka topic, at least once.

Each batch of events is one commit with the transaction id of its query and batch, so one that is written again changes
nothing; in Kafka it repeats itself under the same keys, the fingerprints of the rules. A table that another query has
written is refused: additions and drops would not add up to the rules that hold. One that was begun anew goes on with
the table of its predecessor. Events are few: they come as one Arrow table and are one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as fn

from weever_stream.sinks.batch import EVENT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from weever_stream.job.learning import EventsTable
    from weever_stream.job.options import KafkaSink

__all__ = ["EventSink", "RuleEvents", "open_event_sinks"]

_TABLE = "rule_events"


@dataclass(frozen=True)
class RuleEvents:
    """The events of one micro-batch."""

    id: int
    query_id: str
    position: str
    detected_at: datetime
    events: pa.Table
    """`EVENT_COLUMNS` but the last three."""
    spark: SparkSession

    def frame(self) -> DataFrame:
        """As rows with `EVENT_COLUMNS`."""
        stamps = {
            "source_position": fn.lit(self.position),
            "batch_id": fn.lit(self.id).cast("bigint"),
            "detected_at": fn.lit(self.detected_at),
        }
        return self.spark.createDataFrame(self.events).withColumns(stamps).select(*EVENT_COLUMNS).coalesce(1)


class EventSink(Protocol):
    """Takes the events of batches in their order; may be given the same ones again."""

    def write(self, batch: RuleEvents) -> None:
        """Writes them."""
        ...


def open_event_sinks(
    spark: SparkSession, sinks: Sequence[Any], *, predecessors: Collection[str] = ()
) -> list[EventSink]:
    """The sinks that a job names under `learn`. Makes and checks Delta tables; writes nothing.

    `predecessors`: the ids of queries whose tables are continued.
    """
    return [_Table(spark, sink, predecessors) if sink.kind == "delta" else _Topic(sink) for sink in sinks]


class _Table:
    """A Delta table."""

    def __init__(self, spark: SparkSession, options: EventsTable, predecessors: Collection[str]) -> None:
        from weever_stream.sinks.tables import EVENTS, make_table

        self._path, self._predecessors, self._first = options.path, predecessors, True
        make_table(spark, options.path, EVENTS)

    def write(self, batch: RuleEvents) -> None:
        from weever_stream.errors import OutputError
        from weever_stream.sinks.delta import append, writer_of

        ours = (None, batch.query_id, *self._predecessors)
        if self._first and writer_of(batch.spark, self._path, batch) not in ours:
            raise OutputError(
                f"{self._path} holds the rule events of another run, whose checkpoint is not this one",
                hint="go on with that checkpoint, or name another path under `learn.sinks`",
            )
        self._first = False
        if batch.events.num_rows:
            append(batch.frame(), self._path, batch, _TABLE)


class _Topic:
    """A Kafka topic."""

    def __init__(self, options: KafkaSink) -> None:
        self._options = options

    def write(self, batch: RuleEvents) -> None:
        from weever_stream.sinks.kafka import as_json, send

        if batch.events.num_rows:
            value = as_json(EVENT_COLUMNS).alias("value")
            send(batch.frame().select(fn.col("rule_fingerprint").alias("key"), value), self._options)
