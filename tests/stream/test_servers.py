"""The servers of this folder do what the other tests take for granted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession

from tests.stream.servers.debezium import Debezium
from tests.stream.servers.kafka import Broker
from tests.stream.servers.s3 import ObjectStore


def consumed(servers: str, topic: str, count: int) -> list[Any]:
    """So many messages of a topic from its start, or those that came within a minute."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


def test_a_delta_table_is_written_and_read_with_its_changes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    written = spark.range(3).write.format("delta").option("delta.enableChangeDataFeed", "true")
    written.save(path)
    spark.sql(f"delete from delta.`{path}` where id = 1")
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 2]
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    assert [(row.id, row._change_type) for row in changes.collect()] == [(1, "delete")]


def test_messages_go_through_sparks_kafka_source_and_sink(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers})
    for i in range(10):
        producer.produce("servers-in", key=str(i), value=f"value {i}")
    assert producer.flush(30) == 0
    seen: list[Any] = []

    def keep(frame: DataFrame, _: int) -> None:
        seen.extend(frame.selectExpr("cast(key as string) k", "cast(value as string) v").collect())
        frame.selectExpr("key", "value").write.format("kafka").options(**to).option("topic", "servers-out").save()

    to = {"kafka.bootstrap.servers": kafka.servers}
    source = spark.readStream.format("kafka").options(**to, subscribe="servers-in", startingOffsets="earliest")
    query = source.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted((row.k, row.v) for row in seen) == [(str(i), f"value {i}") for i in range(10)]
    assert {message.key() for message in consumed(kafka.servers, "servers-out", 10)} == {
        str(i).encode() for i in range(10)
    }


@pytest.mark.slow
def test_inserts_updates_and_deletes_of_a_table_arrive_on_its_topic(debezium: Debezium) -> None:
    postgres = debezium.postgres
    postgres.run("create table seen (id int primary key, city text); insert into seen values (1, 'Ghent')")
    (topic,) = debezium.watch("servers", "public.seen")
    postgres.run("insert into seen values (2, 'Paris')")
    postgres.run("update seen set city = 'Lyon' where id = 2")
    postgres.run("delete from seen where id = 1")
    messages = consumed(debezium.broker.servers, topic, 5)
    events = [json.loads(message.value()) if message.value() else None for message in messages]
    assert [event and event["op"] for event in events] == ["r", "c", "u", "d", None]
    assert events[2]["after"] == {"id": 2, "city": "Lyon"}
    debezium.forget("servers")


@pytest.mark.slow
def test_the_object_store_keeps_what_is_written() -> None:
    with ObjectStore() as store:
        files = store.filesystem()
        with files.open_output_stream(f"{store.bucket}/runs/one") as out:
            out.write(b"x" * 100_000)
        with files.open_input_file(f"{store.bucket}/runs/one") as back:
            assert back.read() == b"x" * 100_000
        from pyarrow.fs import FileSelector

        assert [file.path for file in files.get_file_info(FileSelector(f"{store.bucket}/runs"))] == ["weever/runs/one"]
        files.delete_file(f"{store.bucket}/runs/one")
