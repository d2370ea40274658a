"""Where events of learned rules go: a Delta table that is appended to, exactly once, and a Kafka topic, at least once.

Each batch of events is one commit with the transaction id of its query and batch, so one that is written again changes
nothing; in Kafka it repeats itself under the same keys, the fingerprints of the rules. A table that another query owns
is refused: additions and drops would not add up to the rules that hold. `take_over` drops the rules that it still has
and continues with it. A learner that was restarted from scratch continues with the table of its predecessor. Events are
few: they come as one Arrow table and are one file.
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
    spark: SparkSession, sinks: Sequence[Any], *, predecessors: Collection[str] = (), take_over: bool = False
) -> list[EventSink]:
    """The sinks that a job names under `learn`. Makes and checks Delta tables; writes nothing.

    `predecessors`: the ids of queries whose tables are continued. `take_over`: so are those of any other query.
    """
    return [
        _Table(spark, sink, predecessors, take_over=take_over) if sink.kind == "delta" else _Topic(spark, sink)
        for sink in sinks
    ]


class _Table:
    """A Delta table."""

    def __init__(
        self, spark: SparkSession, options: EventsTable, predecessors: Collection[str], *, take_over: bool
    ) -> None:
        from weever_stream.sinks.tables import EVENTS, make_table

        self._path, self._predecessors, self._take_over = options.path, predecessors, take_over
        self._first = True
        make_table(spark, options.path, EVENTS)

    def write(self, batch: RuleEvents) -> None:
        from weever_stream.sinks.delta import append
        from weever_stream.sinks.ownership import refuse_lost

        if self._first:
            self._begin(batch)
            self._first = False
        if batch.events.num_rows:
            refuse_lost(batch.spark, self._path, batch, "rule events")
            append(batch.frame(), self._path, batch, _TABLE)

    def _begin(self, batch: RuleEvents) -> None:
        """Makes sure that the events of the table are those of this query or its predecessors."""
        from weever_stream.sinks.ownership import claim, owner_of, refuse_ahead
        from weever_stream.state.owners import not_ours

        owner = owner_of(batch.spark, self._path)
        if owner == batch.query_id:
            refuse_ahead(batch.spark, self._path, batch, _TABLE)
            return
        if owner is not None and owner not in self._predecessors:
            if not self._take_over:
                raise not_ours(self._path, "rule events")
            self._drop_all(batch)
        claim(batch.spark, self._path, batch.query_id)  # last: a take-over that was cut off is repeated

    def _drop_all(self, batch: RuleEvents) -> None:
        """Drops the rules that hold by the events of an earlier query."""
        from weever_stream.sinks.delta import append

        sign = fn.when(fn.col("event") == "added", 1).when(fn.col("event") == "dropped", -1).otherwise(0)
        kept = ("rule", "deny", "words")
        last = fn.max_by(fn.struct(*kept), fn.struct("detected_at", "batch_id"))
        events = batch.spark.read.format("delta").load(self._path)
        holding = events.groupBy("rule_fingerprint").agg(fn.sum(sign).alias("holds"), last.alias("last"))
        dropped = holding.where("holds > 0").select("rule_fingerprint", *(f"last.{name}" for name in kept))
        stamps = {"source_position": fn.lit(batch.position), "batch_id": fn.lit(batch.id).cast("bigint")}
        filled = dropped.withColumns({**stamps, "event": fn.lit("dropped"), "detected_at": fn.lit(batch.detected_at)})
        absent = [fn.lit(None).alias(name) for name in EVENT_COLUMNS if name not in filled.columns]
        types = {field.name: field.dataType for field in events.schema}
        row = filled.select("*", *absent).select(*(fn.col(name).cast(types[name]) for name in EVENT_COLUMNS))
        append(row.coalesce(1), self._path, batch, f"{_TABLE}/take-over")


class _Topic:
    """A Kafka topic."""

    def __init__(self, spark: SparkSession, options: KafkaSink) -> None:
        from weever_stream.sinks.brokers import require_brokers

        self._options = options
        require_brokers(spark, options)

    def write(self, batch: RuleEvents) -> None:
        from weever_stream.sinks.kafka import as_json, send

        if batch.events.num_rows:
            value = as_json(EVENT_COLUMNS).alias("value")
            send(batch.frame().select(fn.col("rule_fingerprint").alias("key"), value), self._options)
