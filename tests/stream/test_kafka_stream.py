"""The whole job over Kafka topics: rows with tombstones, Debezium's events, and a real Debezium on PostgreSQL.

Catches: a row that stays behind when its key moves to another shard and nobody tells its old values; tombstones and
deletes that are lost or done twice; a restart that skips or repeats messages; a changed primary key that leaves two
rows; a sink topic whose compacted reading is not the open set.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.stream.jobs import COLUMNS, RULES, Stream, job_text, truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.stream.servers.debezium import Debezium
    from tests.stream.servers.kafka import Broker

pytestmark = pytest.mark.slow

VALUES: dict[str, list[Any]] = {
    "a": [0, 1, 2, 2**53 + 1, None],
    "b": [0, 1, 2],
    "n": [0, 1, 2**53, 2**53 + 1, None],
    "f": [-0.0, 0.0, 1.5, None],
    "c": ["", "x", "Ä"],
}
Messages = Iterable[tuple[str, str | None]]


class Topic:
    """A topic of its own for a test."""

    def __init__(self, servers: str, partitions: int = 1, **config: str) -> None:
        self.servers, self.partitions = servers, partitions
        self.name = f"t{uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[self.name].result(60)

    def send(self, messages: Messages) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for key, value in messages:
            producer.produce(self.name, key=key, value=value)
        assert producer.flush(60) == 0

    def source(self, **more: Any) -> dict[str, Any]:
        return {"kind": "kafka", "servers": self.servers, "topic": self.name, **more}


def messages_of(servers: str, topic: str, partitions: int = 1) -> list[Any]:
    """All that is in a topic now, each partition in its order."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid4().hex, "enable.auto.commit": False})
    found = []
    for partition in range(partitions):
        where = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(where, 60)
        consumer.assign([where])
        while consumer.position([where])[0].offset < end:
            for message in consumer.consume(500, 5):
                assert message.error() is None
                found.append(message)
    consumer.close()
    return found


def compacted(servers: str, topic: str, partitions: int = 1) -> dict[str, Any]:
    """What compaction leaves of a topic."""
    last = {message.key().decode(): message.value() for message in messages_of(servers, topic, partitions)}
    return {key: json.loads(value) for key, value in last.items() if value is not None}


class Rows:
    """A table that changes at random, told by its new rows alone."""

    def __init__(self, seed: int, keys: int = 16) -> None:
        self.random = random.Random(seed)
        self.keys = keys
        self.table: dict[int, dict[str, Any]] = {}

    def messages(self, n: int) -> Messages:
        for _ in range(n):
            key = self.random.randrange(self.keys)
            if key in self.table and self.random.random() < 0.25:
                del self.table[key]
                yield str(key), None
            else:
                row = {"id": key, **{name: self.random.choice(values) for name, values in VALUES.items()}}
                self.table[key] = row
                yield str(key), json.dumps(row)


def test_rows_and_tombstones_lead_to_the_truth_over_a_restart(spark: SparkSession, kafka: Broker, tmp_path: Path):
    topic, found = Topic(kafka.servers, 3), Topic(kafka.servers, 2)
    rows = Rows(3)
    source = topic.source(options={"maxOffsetsPerTrigger": 40})
    sink = {"kind": "kafka", "servers": kafka.servers, "topic": found.name}
    stream = Stream(spark, job_text(source, tmp_path, sinks=[sink]))
    for at, count in enumerate((80, 50)):
        topic.send(rows.messages(count))
        stream.run()
        expected = truth(spark, rows.table.values(), stream.rules)
        assert stream.kept.open == expected
        assert len({rule for rule, _, _ in expected}) > 2
        read = compacted(kafka.servers, found.name, 2)
        assert {(one["rule"], one["left_key"], one["right_key"]) for one in read.values()} == expected
        assert {one["violation_id"] for one in read.values()} == set(read)
        assert len(stream.reports) > at + 1, "the feed came in several batches"
    assert sum(report.changes for report in stream.reports) == 130
    told = json.loads(stream.reports[-1].position)
    assert sum(told[topic.name].values()) == 130


def test_a_row_that_moves_takes_its_violations_with_it(spark: SparkSession, kafka: Broker, tmp_path: Path):
    topic = Topic(kafka.servers)
    stream = Stream(spark, job_text(topic.source(), tmp_path, {"dependency": RULES["dependency"]}, shards=16))

    def put(key: int, a: int | None) -> tuple[str, str]:
        return str(key), json.dumps({**dict.fromkeys(COLUMNS), "id": key, "a": a, "c": f"c{key}"})

    stays = [put(key, key % 4) for key in range(1, 9)]
    topic.send([*stays, put(0, 0)])
    stream.run()
    for where in (1, 3, None, 2):
        topic.send([put(0, where)])
        stream.run()
        of_0 = {violation for violation in stream.kept.open if "0" in violation[1:]}
        expected = [] if where is None else [key for key in range(1, 9) if key % 4 == where]
        assert of_0 == {("dependency", "0", str(key)) for key in expected}
    topic.send([("0", None), ("77", None)])
    stream.run()
    assert not {violation for violation in stream.kept.open if "0" in violation[1:]}
    assert stream.kept.counts[-1]["dependency"] == 4


def test_a_backfill_rejects_what_it_cannot_read_and_shows_no_older_row(
    spark: SparkSession, kafka: Broker, tmp_path: Path
):
    """Records that fit the old rules' columns and not those of a new rule: no silence, and no row that is gone."""
    topic, letters = Topic(kafka.servers), tmp_path / "letters"
    source = topic.source(rejects={"sink": {"kind": "files", "path": str(letters)}})

    def put(key: int, n: Any, c: str = "x") -> tuple[str, str]:
        return str(key), json.dumps({"id": key, "a": 1, "c": c, "n": n})

    def rejected() -> list[tuple[str, int]]:
        rows = [json.loads(line) for file in letters.rglob("*.json") for line in file.read_text().splitlines()]
        return sorted((row["reason"], json.loads(row["origin"])["offset"]) for row in rows)

    old, more = {"dependency": RULES["dependency"]}, {"n_is_small": {"deny": "t.n > 3"}}
    stream = Stream(spark, job_text(source, tmp_path, old))
    topic.send(
        [
            put(1, 4),
            put(2, 5),
            put(3, "five", "y"),  # offset 2: replaced by one that can be read
            put(2, "six", "y"),  # offset 3: replaces one that could be read
            put(3, 6),
            ("4", json.dumps({"id": 4, "a": "?", "c": "x", "n": 7})),  # offset 5: rejected as it came
            ("5", "no document"),
        ]
    )
    stream.run()
    assert stream.kept.open == {("dependency", "1", "2"), ("dependency", "2", "3")}, "under the old rule row 2 is y"
    assert [offset for _, offset in rejected()] == [5, 6]
    stream.revised(job_text(source, tmp_path, {**old, **more}))
    stream.run()
    assert {one for one in stream.kept.open if one[0] == "n_is_small"} == {
        ("n_is_small", "1", None),
        ("n_is_small", "3", None),
    }, "row 2 is not as it was in an older record"
    misfit = "column n: the value is not a bigint"
    assert [(reason, offset) for reason, offset in rejected() if offset not in (5, 6)] == [(misfit, 2), (misfit, 3)]
    assert sum(report.rejected for report in stream.reports) == 4, "each is counted once"
    topic.send([put(2, 7, "y")])
    stream.run()
    assert ("n_is_small", "2", None) in stream.kept.open
    # What was rejected as it came changes nothing under a later rule either.
    stream.revised(job_text(source, tmp_path, {**old, **more, "n_again": {"deny": "t.n > 2"}}))
    stream.run()
    assert {one[1] for one in stream.kept.open if one[0] == "n_again"} == {"1", "2", "3"}
    assert sum(report.rejected for report in stream.reports) == 4


ORDERS = {"id": "int", "customer": "string", "amount": "decimal(12,2)"}
ORDER_RULES = {"by_name": {"deny": "t.customer < s.customer"}, "by_amount": {"deny": "t.amount < s.amount"}}
SAMPLES = Path(__file__).parents[1] / "feeds" / "debezium.jsonl"


@pytest.mark.parametrize(("kind", "truncate"), [("plain", "reject"), ("schema", "clear")])
def test_debeziums_own_events_go_through_a_topic(
    spark: SparkSession, kafka: Broker, tmp_path: Path, kind: str, truncate: str
):
    samples = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
    events = sorted(
        (one for one in samples if one["topic"].endswith(".orders") and one["sample"].endswith(f"_{kind}")),
        key=lambda one: one["offset"],
    )
    topic = Topic(kafka.servers)
    topic.send((one["key"], one["value"]) for one in events if not one["sample"].startswith("default"))
    source = topic.source(format="debezium", truncate=truncate, rejects={"max_share": 0.5})
    stream = Stream(spark, job_text(source, tmp_path, ORDER_RULES, columns=ORDERS))
    stream.run()
    if truncate == "clear":
        assert not stream.kept.open
        assert sum(report.rejected for report in stream.reports) == 0
        return
    names = {("by_name", left, right) for left, right in (("100", "5"), ("100", "6"), ("5", "6"))}
    assert stream.kept.open == names | {("by_amount", "6", "100")}
    assert sum(report.rejected for report in stream.reports) == 1, "the truncation"


PARCELS = {"id": "int", "zip": "string", "city": "string", "price": "decimal(10,2)"}
PARCEL_RULES = {
    "city": {"fd": "zip -> city"},
    "price": {"deny": "t.city = s.city and t.zip < s.zip and t.price > s.price"},
    "free": {"deny": "t.price <= 0"},
}
MARK = 100_000


@pytest.mark.parametrize("before", ["key", "full"])
def test_a_table_in_postgresql_is_watched_through_debezium(
    spark: SparkSession, debezium: Debezium, tmp_path: Path, before: str
):
    postgres, servers = debezium.postgres, debezium.broker.servers
    draw, table = random.Random(before), f"parcels_{before}"
    postgres.run(f"create table {table} (id int primary key, zip text, city text, price decimal(10,2))")
    if before == "full":
        postgres.run(f"alter table {table} replica identity full")

    def values() -> tuple[str, str, str]:
        return draw.choice(["'1'", "'2'", "'3'", "null"]), draw.choice(["'A'", "'B'", "'Å'"]), draw.choice(
            ["0", "1.50", "1.05", "20", "null"]
        )  # fmt: skip

    def insert(keys: Iterable[int]) -> str:
        return f"insert into {table} values " + ", ".join(f"({key}, {', '.join(values())})" for key in keys)

    def update(key: int) -> str:
        zip_, city, price = values()
        return f"update {table} set zip = {zip_}, city = {city}, price = {price} where id = {key}"

    postgres.run(insert(range(8)))
    (topic,) = debezium.watch(f"job_{before}", f"public.{table}", decimal_handling_mode="string")
    source = {"kind": "kafka", "servers": servers, "topic": topic, "format": "debezium", "before": before}
    stream = Stream(spark, job_text(source, tmp_path, PARCEL_RULES, columns=PARCELS))

    def agreed(mark: int) -> None:
        """Waits until all of it is on the topic, which the last row tells, and compares."""
        postgres.run(f"insert into {table} values ({MARK + mark}, 'mark', 'mark', 1)")
        end = time.monotonic() + 60
        while not any(f'"id":{MARK + mark}' in str(one.key()) for one in messages_of(servers, topic)):
            assert time.monotonic() < end, "the changes do not arrive"
            time.sleep(0.2)
        stream.run()
        listed = [line.split("|") for line in postgres.run(f"select * from {table}").splitlines()]
        rows = [
            {"id": int(key), "zip": zip_ or None, "city": city, "price": Decimal(price) if price else None}
            for key, zip_, city, price in listed
        ]
        expected = truth(spark, rows, stream.rules, PARCELS)
        assert stream.kept.open == expected
        assert expected

    try:
        agreed(0)
        postgres.run(insert(range(8, 16)))
        for key in draw.sample(range(16), 8):
            postgres.run(update(key))
        postgres.run(f"delete from {table} where id in (1, 9)")
        postgres.run(f"update {table} set id = 50 where id = 2")
        postgres.run(f"update {table} set id = id + 20 where id between 3 and 6")
        postgres.run(f"begin; {update(50)}; {update(50)}; delete from {table} where id = 50; {insert([50])}; commit")
        postgres.run(f"update {table} set price = price + 1 where id % 2 = 0")
        agreed(1)
        assert all(report.rejected == 0 for report in stream.reports)
    finally:
        debezium.forget(f"job_{before}")
