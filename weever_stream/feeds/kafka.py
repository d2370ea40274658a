"""A Kafka topic: how it is subscribed to, and which decoder reads its messages.

Types come from the rule file's `columns:`, for JSON has none that can be trusted; a column that is read and not
declared is an error at the start. Lost offsets stop the stream (`failOnDataLoss`), and so does a topic that is not the
one that the checkpoint was begun with (see `topics`). A poll waits at most 10 ms (`kafka.fetch.max.wait.ms`; Kafka's
500 is the largest part of the delay of a quiet topic). `options` come last and may say otherwise.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weever_stream.errors import DataError, StateError
from weever_stream.feeds.debezium import read_events
from weever_stream.feeds.messages import read_messages
from weever_stream.feeds.readings import check_names
from weever_stream.feeds.topics import ANEW, MOVED, look, more_partitions, recognize
from weever_stream.feeds.types import spark_type
from weever_stream.job.options import revealed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from weever_stream.job.options import KafkaSource
    from weever_stream.rules.types import ColumnType

__all__ = ["KafkaFeed", "reader_options"]


def reader_options(source: KafkaSource) -> dict[str, str]:
    """What Spark's Kafka reader is told. Secrets are in the clear: hand it over at once."""
    return {
        "failOnDataLoss": "true",
        # A topic that is read from its beginning must not come in one batch.
        "maxOffsetsPerTrigger": "1000000",
        "kafka.fetch.max.wait.ms": "10",
        **revealed({"kafka.bootstrap.servers": source.servers}),
        "subscribe": source.topic,
        "startingOffsets": source.starting,
        **revealed(source.options),
    }


class KafkaFeed:
    """A topic of rows or of Debezium's change events."""

    replays = True

    def __init__(
        self, spark: SparkSession, source: KafkaSource, key: Sequence[str], columns: Mapping[str, ColumnType]
    ) -> None:
        self._spark, self._source, self._key, self._columns = spark, source, key, columns
        if not key:
            raise DataError("a Kafka source needs a key", hint="`key:` names the columns that the message key holds")
        self._partitions: int | None = None
        self._check(key)
        for wanted in columns.values():
            spark_type(wanted)

    @property
    def schema(self) -> dict[str, ColumnType | str]:
        """The declared columns."""
        return dict(self._columns)

    def recognize(self, noted: Mapping[str, Any] | None, position: Mapping[str, Any] | None) -> dict[str, Any]:
        """Refuses a topic that was made anew, got more partitions, or lost what comes behind the position."""
        options, name = reader_options(self._source), self._source.topic
        topic = look(self._spark, options, name)
        if noted is not None and "topic" in noted:  # else it is the checkpoint of another kind of source
            strict = options["failOnDataLoss"].lower() != "false"
            recognize(topic, noted, (position or {}).get(name, {}), lost_is_an_error=strict)
        self._partitions = len(topic.end)
        return topic.noted

    def changes(self, names: Sequence[str]) -> DataFrame:
        """The streaming change frame."""
        messages = self._spark.readStream.format("kafka").options(**reader_options(self._source)).load()
        if self._partitions is not None:
            messages = _of_partitions(messages, self._partitions, self._source.topic)
        return self._read(messages, names)

    def history(
        self, names: Sequence[str], position: Mapping[str, Any], since: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """The messages up to a position, from the beginning of the topic or from another position."""
        options, name = reader_options(self._source), self._source.topic
        topic = look(self._spark, options, name)
        if options["startingOffsets"] != "earliest" or any(topic.first.values()):
            raise DataError(
                f"the topic {name} no longer holds all that the job was built from, so rules cannot be filled from it",
                hint=f"{ANEW}; a compacted topic keeps the last message of every key",
            )
        first = json.dumps({name: since[name]}) if since else "earliest"
        part = {**options, "startingOffsets": first, "endingOffsets": json.dumps({name: position[name]})}
        part.pop("maxOffsetsPerTrigger", None)
        return self._read(self._spark.read.format("kafka").options(**part).load(), names)

    def locate(self, rejects: DataFrame) -> DataFrame:
        """As they are: an offset says all."""
        return rejects

    def _read(self, messages: DataFrame, names: Sequence[str]) -> DataFrame:
        """The change frame of messages, streaming or not."""
        self._check(names)
        if self._source.format == "json":
            return read_messages(messages, names, self._key, self._columns)
        return read_events(
            messages,
            names,
            self._key,
            self._columns,
            full_before=self._source.before == "full",
            clear=self._source.truncate == "clear",
        )

    def _check(self, names: Sequence[str]) -> None:
        missing = [name for name in dict.fromkeys(names) if name not in self._columns]
        if missing:
            raise DataError(
                f"no type is declared for {', '.join(missing)}",
                hint=f"messages carry no types: columns: {{{missing[0]}: string, …}} names that of every column used",
            )
        check_names(names, self._columns, f"the topic {self._source.topic}")


def _of_partitions(messages: DataFrame, known: int, topic: str) -> DataFrame:
    """The messages of a topic with so many partitions. Spark reads new ones, too: a message of one fails the query."""
    error = StateError(f"{more_partitions(topic, known)}, now it has more", hint=MOVED)
    # `stream.failures` finds it again in what Spark says of the failure.
    raised = F.raise_error(F.lit(f"weever: {error}\n")).cast("bigint")
    offset = F.when(F.col("partition") < known, F.col("offset")).otherwise(raised)
    return messages.withColumn("offset", offset)
