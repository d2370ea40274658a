"""Topics that misbehave, on a real broker: lost messages, another topic of the same name, Debezium's traps, poison.

Catches: a job that goes on over a hole; offsets of a topic that was made anew taken for those of the old one; keys that
moved to new partitions; changes put in the order of their LSN; a snapshot row in mid-stream that leaves the old row
behind; one record in a thousand that stops the job, or is lost, or whose row is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.stream.jobs import COLUMNS, RULES, Stream, job_text, truth
from tests.stream.test_kafka_stream import Topic
from weever_stream.errors import DataError, StateError, WeeverError
from weever_stream.feeds.topics import look
from weever_stream.stream.failures import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.stream.servers.kafka import Broker

pytestmark = pytest.mark.slow

Row = dict[str, Any]
DEPENDENCY = {"dependency": RULES["dependency"]}


def row(key: int, **more: Any) -> Row:
    return {"id": key, "a": key % 3, "b": 1, "n": 1, "f": 1.0, "c": f"c{key}", **more}


def puts(*rows: Row) -> list[tuple[str, str]]:
    return [(str(one["id"]), json.dumps(one)) for one in rows]


def refusal(stream: Stream) -> WeeverError:
    """What a job says that refuses to start."""
    with pytest.raises(WeeverError) as refused:
        stream.start()
    return refused.value


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)


def made_anew(admin: AdminClient, name: str) -> None:
    """Deletes a topic and makes one of the same name."""
    admin.delete_topics([name])[name].result(60)
    until(lambda: name not in admin.list_topics(timeout=30).topics)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)


def test_a_job_refuses_a_topic_that_is_not_what_it_was(
    spark: SparkSession, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    topic = Topic(kafka.servers)
    topic.send(puts(*(row(key) for key in range(6))))
    stream = Stream(spark, job_text(topic.source(), tmp_path, DEPENDENCY))
    stream.run()
    before = set(stream.kept.open)

    topic.send(puts(*(row(key, c="x") for key in range(6))))
    admin.delete_records([TopicPartition(topic.name, 0, 9)])[TopicPartition(topic.name, 0)].result(60)
    lost = refusal(stream)
    assert isinstance(lost, StateError)
    assert f"{topic.name} no longer holds the offsets 6 to 8 of partition 0" in lost.message
    with monkeypatch.context() as blind:  # as where they are lost while the job runs
        blind.setattr("weever_stream.feeds.kafka.recognize", lambda *_, **__: None)
        assert told([str(stream.fail())]).message == "the topic no longer holds changes that the job has not read"

    made_anew(admin, topic.name)
    topic.send(puts(*(row(key) for key in range(2))))
    assert "was deleted and made anew: its id was" in refusal(stream).message
    topic.send(
        puts(*(row(key) for key in range(20)))
    )  # more than were read before: the offsets look as if all were well
    assert "was deleted and made anew: its id was" in refusal(stream).message

    admin.delete_topics([topic.name])[topic.name].result(60)
    until(lambda: topic.name not in admin.list_topics(timeout=30).topics)
    assert refusal(stream).message == f"there is no topic {topic.name}"
    assert stream.kept.open == before
    assert len(stream.reports) == 1, "nothing was read of any of it"


def test_a_topic_that_gets_more_partitions_stops_the_job(spark: SparkSession, kafka: Broker, tmp_path: Path):
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    topic = Topic(kafka.servers)
    topic.send(puts(*(row(key) for key in range(6))))
    stream = Stream(spark, job_text(topic.source(options={"kafka.metadata.max.age.ms": 500}), tmp_path, DEPENDENCY))
    query = stream.start(once=False)
    try:
        until(lambda: bool(stream.reports))
        admin.create_partitions([NewPartitions(topic.name, 3)])[topic.name].result(60)
        until(lambda: len(look(spark, {"kafka.bootstrap.servers": kafka.servers}, topic.name).end) == 3)
        topic.send(puts(*(row(key, c="x") for key in range(20))))
        until(lambda: not query.isActive)
    finally:
        query.stop()
    said = "had 1 partition when the checkpoint was begun"
    while_running = told([str(query.exception())])
    assert isinstance(while_running, StateError)
    assert while_running.message == f"the topic {topic.name} {said}, now it has more"
    assert refusal(stream).message == f"the topic {topic.name} {said}, now it has 3"


def event(op: str, key: int, *, lsn: int, before: Row | None = None, after: Row | None = None, snapshot: str = "false"):
    """An event with a key, as Debezium writes it."""
    source = {"lsn": lsn, "snapshot": snapshot, "txId": lsn, "ts_ms": 1_700_000_000_000 - lsn}
    return json.dumps({"id": key}), json.dumps({"op": op, "before": before, "after": after, "source": source})


class Debezium:
    """The events of a table, and the table that they lead to: by the order in which they stand in the topic."""

    def __init__(self, full: bool) -> None:
        self.full = full
        self.table: dict[int, Row] = {}
        self.events: list[tuple[str, str | None]] = []

    def put(self, op: str, new: Row, lsn: int, snapshot: str = "false") -> None:
        """`before` of an update is the old row, or nothing, as PostgreSQL sends it without FULL."""
        key = new["id"]
        before = self.table.get(key) if self.full and op == "u" else None
        self.events.append(event(op, key, lsn=lsn, before=before, after=new, snapshot=snapshot))
        self.table[key] = new

    def delete(self, key: int, lsn: int) -> None:
        """Without FULL all of `before` but the key is made up. A tombstone follows."""
        old = self.table.pop(key, None)
        made_up = {**dict.fromkeys(COLUMNS), "id": key, "a": 0, "b": 0, "n": 0, "c": ""}
        self.events += [
            event("d", key, lsn=lsn, before=old if self.full and old else made_up),
            (f'{{"id":{key}}}', None),
        ]


@pytest.mark.parametrize("before", ["key", "full"])
def test_events_count_in_the_order_of_the_topic_whatever_else_they_say(
    spark: SparkSession, kafka: Broker, tmp_path: Path, before: str
):
    told_of = Debezium(before == "full")
    for key in range(8):
        told_of.put("r", row(key), lsn=100, snapshot="true")
    told_of.put("u", row(0, a=1), lsn=200)
    told_of.put("u", row(0, a=2), lsn=200)  # the same LSN twice
    told_of.put("u", row(1, a=2), lsn=300)
    told_of.put("u", row(1, a=0), lsn=250)  # committed later, with a smaller LSN
    told_of.put("r", row(2), lsn=260, snapshot="incremental")  # what is held already
    told_of.put("r", row(3, a=1), lsn=90, snapshot="incremental")
    told_of.put("r", row(4, a=2), lsn=90, snapshot="true")  # a connector that begins again, and has missed an update
    told_of.delete(5, lsn=310)
    told_of.delete(77, lsn=311)  # never there
    told_of.put("u", row(88), lsn=312)  # an update of a row that was never told
    told_of.delete(6, lsn=313)  # a primary key that changes
    told_of.put("c", row(60, a=0), lsn=313)
    told_of.put("c", row(60, a=0), lsn=313)  # told twice
    if before == "key":
        told_of.put("c", row(7, a=0), lsn=314)  # an insert of a row that is there
    topic = Topic(kafka.servers)
    topic.send(told_of.events)
    source = topic.source(format="debezium", before=before, options={"maxOffsetsPerTrigger": 20})
    stream = Stream(spark, job_text(source, tmp_path, {name: RULES[name] for name in ("dependency", "crossed")}))
    stream.run()
    expected = truth(spark, told_of.table.values(), stream.rules)
    assert expected
    assert stream.kept.open == expected
    told_again = told_of.events[8:]
    topic.send(told_again)  # a connector that died before it noted how far it was
    stream.run()
    assert stream.kept.open == expected
    assert sum(report.rejected for report in stream.reports) == 0


DEEP = '{"id": 1, "x": ' + "[" * 10_000 + "]" * 10_000 + "}"
POISON: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"PRIVATE", "is not one JSON document"),
    "cut short": (b'{"id": 1, "c": "PRI', "is not one JSON document"),
    "ten million bytes": (b'{"id": 1, "c": "' + b"x" * 10_000_000, "is not one JSON document"),
    "ten thousand levels": (DEEP.encode(), "is not one JSON document"),
    "NaN": (b'{"id": 1, "f": NaN}', "is not one JSON document"),
    "half of a surrogate pair": (rb'{"id": 1, "c": "\ud800"}', "is not one JSON document"),
    "not UTF-8": (b'{"id": 1, "c": "\xff\xfe"}', "is not UTF-8 text"),
    "a wrong type": (b'{"id": 1, "a": "PRIVATE"}', "column a: the value is not a bigint"),
    "a number beyond all doubles": (b'{"id": 1, "f": 1e400}', "column f: the value is not a double"),
    "a number beyond a bigint": (b'{"id": 1, "a": 9223372036854775808}', "column a: the value is not a bigint"),
    "no key": (b'{"a": 1}', "key column id is null or missing"),
    "a null key": (b'{"id": null, "a": 1}', "key column id is null or missing"),
}
NASTY = [
    row(1, f="NaN", c="a\0b"), row(2, f="Infinity", c=" trailing "), row(3, f=-0.0, c="\u00e9"),
    row(4, f=5e-324, c="e\u0301", a=2**63 - 1), row(5, f=0.0, c="", a=None), row(6, c="😀", note="x" * 2_000_000),
]  # fmt: skip
POISON_RULES = {**DEPENDENCY, "order": {"deny": "t.b = s.b and t.f > s.f and t.c < s.c"}}


def table_of(rows: list[Row]) -> list[Row]:
    """Rows as Spark is to have them."""
    return [{name: float(one[name]) if name == "f" else one[name] for name in COLUMNS} for one in rows]


def letters_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.rglob("*.json")) for line in file.read_text().splitlines()]


def test_one_poisoned_message_in_many_is_set_aside_and_the_job_goes_on(
    spark: SparkSession, kafka: Broker, tmp_path: Path
):
    topic = Topic(kafka.servers, **{"max.message.bytes": "20000000"})
    rows = [*NASTY, *(row(key, a=key // 2, b=key) for key in range(100, 5100))]
    producer = Producer({"bootstrap.servers": kafka.servers, "message.max.bytes": 20_000_000})
    producer.produce(topic.name, key=None, value=None)  # neither key nor value
    for at, one in enumerate(rows):
        if at % 400 == 0 and at // 400 < len(POISON):
            producer.produce(topic.name, key=b"k", value=list(POISON.values())[at // 400][0])
        producer.produce(topic.name, key=str(one["id"]), value=json.dumps(one, ensure_ascii=True).encode())
        producer.poll(0)
    assert producer.flush(60) == 0
    letters = tmp_path / "letters"
    source = topic.source(rejects={"max_share": 0.01, "sink": {"kind": "files", "path": str(letters)}})
    stream = Stream(spark, job_text(source, tmp_path, POISON_RULES))
    stream.run()
    assert sum(report.rejected for report in stream.reports) == len(POISON) + 1
    found = letters_in(letters)
    assert {letter["reason"] for letter in found} >= {"the message has neither key nor value"}
    for name, (record, reason) in POISON.items():
        text = record.decode(errors="replace")
        assert any(reason in one["reason"] and one["record"] == text for one in found), name
    offsets = sorted(json.loads(letter["origin"])["offset"] for letter in found)
    assert offsets == [0, *(1 + at * 401 for at in range(len(POISON)))]
    assert not any("PRIVATE" in letter["reason"] for letter in found)
    assert stream.kept.open == truth(spark, table_of(rows), stream.rules)


def test_poisoned_lines_of_files_are_set_aside(spark: SparkSession, tmp_path: Path):
    folder = tmp_path / "feed"
    folder.mkdir()
    rows = [*NASTY, *(row(key, a=key // 2, b=key) for key in range(100, 400))]
    lines = [json.dumps({**one, "_change_type": "upsert", "_commit_version": 1}).encode() for one in rows]
    version = b'{"_change_type": "upsert", "_commit_version": 1, '
    versioned = [record.replace(b"{", version, 1) for record, _ in POISON.values()]
    for at, record in enumerate(versioned):
        lines.insert(25 * at, record)
    letters = tmp_path / "letters"
    rejects = {"max_share": 0.1, "sink": {"kind": "files", "path": str(letters)}}
    stream = Stream(spark, job_text({"kind": "files", "path": str(folder), "rejects": rejects}, tmp_path, POISON_RULES))
    stream.run()
    assert not stream.kept.open, "an empty feed has nothing to say"
    (folder / "1.json").write_bytes(b"\n".join(lines))
    stream.run()
    found = letters_in(letters)
    assert {letter["record"] for letter in found} == {record.decode(errors="replace") for record in versioned}
    assert stream.kept.open == truth(spark, table_of(rows), stream.rules)
    too_many = {"max_share": 0.01, "sink": {"kind": "files", "path": str(tmp_path / "again")}}
    strict = {"kind": "files", "path": str(folder), "rejects": too_many}
    error = told([str(Stream(spark, job_text(strict, tmp_path / "strict", POISON_RULES)).fail())])
    assert isinstance(error, DataError)
    assert error.message == "12 of 318 records cannot be read, more than a share of 0.01"
