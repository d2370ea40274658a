"""How a topic is subscribed to. Reading from a broker is tested with the stream."""

from __future__ import annotations

import pytest

from weever_stream.errors import DataError
from weever_stream.feeds import open_feed
from weever_stream.feeds.changes import CONTROL
from weever_stream.feeds.kafka import reader_options
from weever_stream.job.options import KafkaSource
from weever_stream.rules.references import Secret
from weever_stream.rules.types import type_of_name

COLUMNS = {"id": type_of_name("int"), "at": type_of_name("timestamp")}


def test_options_of_the_user_come_last_and_secrets_are_handed_over():
    source = KafkaSource(
        kind="kafka", servers=Secret("one:9092"), topic="t", starting="latest",
        options={"kafka.sasl.jaas.config": Secret("s"), "failOnDataLoss": False, "maxOffsetsPerTrigger": 10},
    )  # fmt: skip
    assert reader_options(source) == {
        "kafka.bootstrap.servers": "one:9092", "subscribe": "t", "startingOffsets": "latest", "failOnDataLoss": "false",
        "kafka.fetch.max.wait.ms": "10", "kafka.sasl.jaas.config": "s", "maxOffsetsPerTrigger": "10",
    }  # fmt: skip
    assert reader_options(KafkaSource(kind="kafka", servers="x:1", topic="t"))["failOnDataLoss"] == "true"


@pytest.mark.parametrize("given", [{}, {"format": "debezium"}, {"format": "debezium", "before": "full"}])
def test_a_topic_becomes_a_streaming_change_frame(spark, given):
    feed = open_feed(spark, KafkaSource(kind="kafka", servers="localhost:1", topic="t", **given), ["id"], COLUMNS)
    changes = feed.changes(["at"])
    assert changes.isStreaming
    assert changes.columns == ["at", *CONTROL]
    assert [field.dataType.simpleString() for field in changes.schema] == [
        "timestamp", "tinyint", "bigint", "string", "string", "string",
    ]  # fmt: skip


def test_columns_without_a_declared_type_are_refused_by_name(spark):
    source = KafkaSource(kind="kafka", servers="localhost:1", topic="t")
    with pytest.raises(DataError, match="no type is declared for a, b"):
        open_feed(spark, source, ["id"], COLUMNS).changes(["a", "id", "b"])
    with pytest.raises(DataError, match="no type is declared for key"):
        open_feed(spark, source, ["key"], COLUMNS)
    with pytest.raises(DataError, match="needs a key"):
        open_feed(spark, source, [], COLUMNS)
    with pytest.raises(DataError, match="cannot read columns of type time"):
        open_feed(spark, source, ["id"], {**COLUMNS, "t": type_of_name("time")})
