"""Debezium's events: samples of a real connector on PostgreSQL, with and without schemas, and made-up nasty ones."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest

from weever_stream.feeds.changes import CLEAR, DROP, DROP_ANYWHERE, PUT, PUT_ANYWHERE, REJECT
from weever_stream.feeds.debezium import UNAVAILABLE, read_events
from weever_stream.rules.types import type_of_name

SAMPLES = [json.loads(line) for line in Path(__file__).with_name("debezium.jsonl").read_text().splitlines()]
ORDERS = {
    "id": "int", "customer": "string", "amount": "decimal(12,2)", "qty": "int", "note": "string", "d": "date",
    "created": "timestamp", "flags": "boolean",
}  # fmt: skip
ITEMS = {"order_id": "int", "line": "int", "sku": "string"}
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint"


def typed(spellings):
    return {name: type_of_name(spelling) for name, spelling in spellings.items()}


def frame(spark, records):
    rows = [(r["key"] and r["key"].encode(), r["value"] and r["value"].encode(), r["topic"], 0, r["offset"])
            for r in records]  # fmt: skip
    return spark.createDataFrame(rows, SCHEMA).orderBy("offset")


def events(spark, records, columns, key, full=False, clear=False):
    from pyspark.sql import functions as F

    changes = read_events(frame(spark, records), list(columns), key, typed(columns), full_before=full, clear=clear)
    for name, spelling in columns.items():
        if spelling == "timestamp":
            changes = changes.withColumn(name, F.unix_micros(name))
    return [row.asDict() for row in changes.collect()]


def orders_of(kind):
    names = ("snapshot_read", "insert", "update", "update_unchanged_toast", "primary_key_change", "delete", "tombstone",
             "truncate")  # fmt: skip
    found = [s for s in SAMPLES if s["sample"].removesuffix(f"_{kind}") in names and s["topic"].endswith("orders")]
    return sorted((s for s in found if s["sample"].endswith(kind)), key=lambda s: s["offset"])


def record(value, key='{"id": 1}', offset=0):
    return {"key": key, "value": value if value is None else json.dumps(value), "topic": "t", "offset": offset}


@pytest.fixture(scope="module")
def orders(spark):
    return {kind: events(spark, orders_of(kind), ORDERS, ["id"]) for kind in ("plain", "schema")}


@pytest.mark.parametrize("kind", ["plain", "schema"])
def test_real_events_become_changes_in_the_order_of_their_offsets(orders, kind):
    found = [(row["_weever_sequence"], row["_weever_change"], row["id"]) for row in orders[kind]]
    assert found == [
        (0, PUT_ANYWHERE, 1), (1, PUT_ANYWHERE, 2), (2, PUT_ANYWHERE, 1), (3, REJECT, 2), (4, DROP_ANYWHERE, 1),
        (6, PUT_ANYWHERE, 100), (7, DROP_ANYWHERE, 2), (9, PUT_ANYWHERE, 5), (10, PUT_ANYWHERE, 6), (11, REJECT, None),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "schema"])
def test_values_of_real_events_are_exact(orders, kind):
    row = orders[kind][2]
    assert (row["customer"], row["amount"], row["qty"], row["note"]) == ("ann", Decimal("11.75"), 1, None)
    assert (row["d"], row["flags"]) == (dt.date(2026, 1, 2), True)
    assert row["created"] == 1794789440258021


@pytest.mark.parametrize("kind", ["plain", "schema"])
def test_what_a_delete_makes_up_is_not_read(orders, kind):
    row = next(row for row in orders[kind] if row["_weever_sequence"] == 7)
    assert {name: row[name] for name in ORDERS if row[name] is not None} == {"id": 2}


@pytest.mark.parametrize("kind", ["plain", "schema"])
def test_a_value_that_was_not_sent_is_rejected_with_the_cure(orders, kind):
    assert orders[kind][3]["_weever_reason"] == (
        "column note was not sent: set REPLICA IDENTITY FULL on the table and `before: full` in the source"
    )
    assert json.loads(orders[kind][3]["_weever_origin"])["offset"] == 3


def test_a_column_that_was_not_sent_and_is_not_asked_for_is_no_matter(spark):
    columns = {name: ORDERS[name] for name in ("id", "qty")}
    changes = [row["_weever_change"] for row in events(spark, orders_of("plain"), columns, ["id"], clear=True)]
    assert REJECT not in changes
    assert changes[-1] == CLEAR


def test_truncate_clears_only_where_that_was_asked_for(orders, spark):
    assert orders["plain"][-1]["_weever_reason"].startswith("the table was truncated")
    (row,) = events(spark, orders_of("schema")[-1:], ORDERS, ["id"], clear=True)
    assert (row["_weever_change"], row["_weever_sequence"], row["id"]) == (CLEAR, 11, None)


@pytest.mark.parametrize("kind", ["plain", "schema"])
def test_a_full_before_is_dropped_and_the_new_row_put(spark, kind):
    samples = [s for s in SAMPLES if s["topic"].endswith("items") and s["sample"].endswith(kind)]
    samples.sort(key=lambda s: s["offset"])
    rows = events(spark, samples, ITEMS, ["order_id", "line"], full=True)
    assert [(r["_weever_sequence"], r["_weever_change"], r["order_id"], r["line"], r["sku"]) for r in rows] == [
        (0, PUT_ANYWHERE, 1, 1, "sku-1"), (1, DROP, 1, 1, "sku-1"), (1, PUT, 1, 1, "sku-1b"), (2, DROP, 1, 1, "sku-1b"),
        (4, PUT, 5, 1, "s5"), (5, PUT, 5, 2, "s6"),
    ]  # fmt: skip


def test_transactions_are_no_changes_of_rows(spark):
    samples = [s for s in SAMPLES if s["sample"].startswith("transaction")]
    rows = events(spark, samples, {"id": "string"}, ["id"])
    assert {row["_weever_change"] for row in rows} == {REJECT}
    assert {row["_weever_reason"].partition(":")[0] for row in rows} == {"there is no op"}


def test_decimals_of_the_default_mode_are_read_by_their_schema(spark):
    samples = [s for s in SAMPLES if s["sample"] == "default_modes_schema"]
    (row,) = events(spark, samples, ORDERS, ["id"])
    assert (row["id"], row["amount"], row["_weever_reason"]) == (7, Decimal("-123.45"), None)


def envelope(fields, after, op="c", before=None):
    part = {"type": "struct", "fields": fields, "field": "after"}
    other = {"type": "struct", "fields": fields, "field": "before"}
    return {"schema": {"type": "struct", "fields": [other, part]},
            "payload": {"op": op, "before": before, "after": after}}  # fmt: skip


def encoded(unscaled):
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


UNSCALED = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**31, -(2**63), 2**63, 10**37, -(10**37), 10**38 - 1, 1 - 10**38]


def test_base64_decimals_of_every_length_are_exact(spark):
    field = {
        "type": "bytes",
        "field": "a",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "3"},
    }
    records = [
        record(envelope([{"field": "id"}, field], {"id": i, "a": encoded(n)}), offset=i) for i, n in enumerate(UNSCALED)
    ]
    loose = [
        record({"op": "c", "after": {"id": i, "a": {"scale": 3, "value": encoded(n)}}}, offset=100 + i)
        for i, n in enumerate(UNSCALED)
    ]
    rows = events(spark, records + loose, {"id": "int", "a": "decimal(38,3)"}, ["id"])
    assert [row["a"] for row in rows] == [Decimal(f"{n}E-3") for n in UNSCALED] * 2


def test_base64_decimals_that_do_not_fit_are_rejected(spark):
    field = {"field": "a", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}}
    values = [encoded(12345), encoded(10**38), encoded(2**200), "", "!!", 5]
    records = [record(envelope([field], {"id": 1, "a": value}), offset=i) for i, value in enumerate(values)]
    bare = [record({"op": "c", "after": {"id": 1, "a": "z8c="}}, offset=50)]
    rows = events(spark, records + bare, {"id": "int", "a": "decimal(10,2)"}, ["id"])
    assert {row["_weever_reason"] for row in rows} == {"column a: the value is not a decimal(10,2)"}


TIMES = [
    ("io.debezium.time.Timestamp", 1730611800123, 1730611800123000),
    ("org.apache.kafka.connect.data.Timestamp", 1730611800123, 1730611800123000),
    ("io.debezium.time.MicroTimestamp", 1730611800123456, 1730611800123456),
    ("io.debezium.time.NanoTimestamp", 1730611800123456000, 1730611800123456),
    ("io.debezium.time.ZonedTimestamp", "2024-11-03T05:30:00.123456Z", 1730611800123456),
    (None, 1730611800123456, 1730611800123456),
    ("io.debezium.time.NanoTimestamp", 1730611800123456789, None),
    ("io.debezium.time.Timestamp", 2**62, None),
    ("io.debezium.time.MicroTimestamp", -(2**63), None),
]


@pytest.mark.parametrize("spelling", ["timestamp", "timestamp_ntz"])
def test_the_unit_of_a_time_comes_from_the_schema(spark, spelling):
    times = [t for t in TIMES if spelling == "timestamp" or not isinstance(t[1], str)]
    records = [
        record(envelope([{"field": "x"}, {"field": "at", "name": name}], {"id": 1, "at": value}), offset=i)
        for i, (name, value, _) in enumerate(times)
    ]
    rows = events(spark, records, {"id": "int", "at": spelling}, ["id"])
    if spelling == "timestamp_ntz":
        epoch = dt.datetime(1970, 1, 1)
        for row in rows:
            row["at"] = row["at"] and (row["at"] - epoch) // dt.timedelta(microseconds=1)
    assert [row["at"] for row in rows] == [micros for _, _, micros in times]
    assert [row["_weever_reason"] is None for row in rows] == [micros is not None for _, _, micros in times]


ROW = {"id": "int", "s": "string", "n": "int"}
NASTY = {
    "no JSON": ("{", "the value is not one JSON document with names given once"),
    "no object": ("[]", "there is no op"),
    "a flattened row": ('{"id": 1}', "there is no op"),
    "an unknown op": ('{"op": "x", "after": {"id": 1}}', "the op is none that is known"),
    "no after": ('{"op": "c", "after": null}', "key column id is null or missing"),
    "after is a text": ('{"op": "c", "after": "x"}', "key column id is null or missing"),
    "a wrong type": ('{"op": "u", "after": {"id": 1, "n": "abc"}}', "column n: the value is not a bigint"),
    "a delete without any key": ('{"op": "d", "before": null}', "key column id is null or missing"),
}


@pytest.mark.parametrize("full", [False, True])
def test_what_cannot_be_read_is_rejected_once(spark, full):
    records = [{"key": None, "value": text, "topic": "t", "offset": i} for i, (text, _) in enumerate(NASTY.values())]
    rows = events(spark, records, ROW, ["id"], full=full)
    assert [row["_weever_reason"].partition(":")[0] for row in rows] == [
        reason.partition(":")[0] for _, reason in NASTY.values()
    ]


def test_messages_of_the_log_and_tombstones_are_no_changes(spark):
    records = [record(None), record({"op": "m", "message": {"prefix": "p"}}), record({"op": "c", "after": {"id": 1}})]
    assert [row["_weever_change"] for row in events(spark, records, ROW, ["id"])] == [PUT_ANYWHERE]


def test_the_key_of_a_delete_comes_from_before_or_from_the_message(spark):
    records = [
        record({"op": "d", "before": {"id": 5, "s": ""}}, key='{"id": 5}', offset=0),
        record({"op": "d", "before": None}, key='{"id": 6}', offset=1),
        record({"op": "d", "before": None}, key='{"schema": {"fields": []}, "payload": {"id": 7}}', offset=2),
        record({"op": "d", "before": {"s": "x"}}, key="8", offset=3),
    ]
    for full in (False, True):
        rows = events(spark, records, ROW, ["id"], full=full)
        assert [(row["_weever_change"], row["id"], row["s"]) for row in rows] == [
            (DROP_ANYWHERE, 5, None), (DROP_ANYWHERE, 6, None), (DROP_ANYWHERE, 7, None), (DROP_ANYWHERE, 8, None),
        ]  # fmt: skip


def test_a_before_that_is_not_full_makes_changes_that_go_everywhere(spark):
    old, new = {"id": 1, "s": "a", "n": 1}, {"id": 1, "s": "b", "n": 2}
    records = [
        record({"op": "u", "before": old, "after": new}, offset=0),
        record({"op": "u", "before": None, "after": new}, offset=1),
        record({"op": "u", "before": {"id": 1, "s": "a"}, "after": new}, offset=2),
        record({"op": "u", "before": {**old, "n": "x"}, "after": new}, offset=3),
        record({"op": "u", "before": old, "after": {**new, "n": "x"}}, offset=4),
        record({"op": "u", "before": old, "after": {**new, "s": UNAVAILABLE}}, offset=5),
        record({"op": "u", "before": {**old, "s": UNAVAILABLE}, "after": {**new, "s": UNAVAILABLE}}, offset=6),
        record({"op": "r", "after": new, "source": {"snapshot": "incremental"}}, offset=7),
        record({"op": "r", "after": new, "source": {"snapshot": "true"}}, offset=8),
    ]
    rows = events(spark, records, ROW, ["id"], full=True)
    assert [(row["_weever_sequence"], row["_weever_change"], row["s"]) for row in rows] == [
        (0, DROP, "a"), (0, PUT, "b"), (1, PUT_ANYWHERE, "b"), (2, PUT_ANYWHERE, "b"), (3, PUT_ANYWHERE, "b"),
        (4, REJECT, "b"), (5, DROP, "a"), (5, PUT, "a"), (6, REJECT, UNAVAILABLE), (7, PUT_ANYWHERE, "b"), (8, PUT_ANYWHERE, "b"),
    ]  # fmt: skip
