"""Plain JSON messages: what is read, exactly, and what is rejected; one Spark job for all cases."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

from weever_stream.feeds.changes import DROP_ANYWHERE, PUT_ANYWHERE, REJECT
from weever_stream.feeds.messages import read_messages
from weever_stream.rules.types import type_of_name

TYPES = {
    "id": "bigint", "s": "string", "d": "decimal(10,2)", "big": "decimal(38,10)", "f": "double", "b": "boolean",
    "day": "date", "at": "timestamp", "wall": "timestamp_ntz", "u": "uint64", "a.b": "bigint", "select it": "string",
    "Ä`ö": "string", "ID": "string",
}  # fmt: skip
COLUMNS = {name: type_of_name(spelling) for name, spelling in TYPES.items()}

READ = {
    "a whole number beyond 2^53": ('{"id": 9007199254740993}', {"id": 9007199254740993}),
    "the smallest bigint": ('{"id": -9223372036854775808}', {"id": -9223372036854775808}),
    "a number in a string": ('{"id": "12"}', {"id": 12}),
    "a whole number with a fraction of zeros": ('{"id": 5.0}', {"id": 5}),
    "a whole number in scientific notation": ('{"id": 1e7}', {"id": 10000000}),
    "an absent field is null": ('{"id": 1}', {"id": 1, "s": None}),
    "a null field is null": ('{"id": 1, "s": null}', {"s": None}),
    "the text null is a text": ('{"id": 1, "s": "null"}', {"s": "null"}),
    "an empty text is a text": ('{"id": 1, "s": ""}', {"s": ""}),
    "a text that looks like JSON": (r'{"id": 1, "s": "{\"a\": 1}"}', {"s": '{"a": 1}'}),
    "a text with a NUL": (r'{"id": 1, "s": "a\u0000b"}', {"s": "a\0b"}),
    "a pair of surrogates": (r'{"id": 1, "s": "\ud83d\ude00"}', {"s": "😀"}),
    "a whole number as a text": ('{"id": 1, "s": 94110}', {"s": "94110"}),
    "true as a text": ('{"id": 1, "s": true}', {"s": "true"}),
    "a decimal number": ('{"id": 1, "d": 1.10}', {"d": Decimal("1.10")}),
    "a decimal in a string": ('{"id": 1, "d": "-1.1"}', {"d": Decimal("-1.10")}),
    "a decimal with zeros behind": ('{"id": 1, "d": 1.1000}', {"d": Decimal("1.10")}),
    "a decimal zero as Java writes it": ('{"id": 1, "d": 0E-8}', {"d": Decimal("0.00")}),
    "a decimal in scientific notation": ('{"id": 1, "d": 1.5E+3, "f": 2E1}', {"d": Decimal("1500.00"), "f": 20.0}),
    "a decimal of 38 digits": (
        '{"id": 1, "big": 1234567890123456789012345678.0123456789}',
        {"big": Decimal("1234567890123456789012345678.0123456789")},
    ),
    "a decimal of many digits in scientific notation": (
        '{"id": 1, "big": 1.2345678901234567891E+9}', {"big": Decimal("1234567890.1234567891")},
    ),
    "a double": ('{"id": 1, "f": 0.1}', {"f": 0.1}),
    "a double from a whole number": ('{"id": 1, "f": 3}', {"f": 3.0}),
    "a double in a string": ('{"id": 1, "f": "-1.5e-3"}', {"f": -0.0015}),
    "infinity in a string": ('{"id": 1, "f": "-Infinity"}', {"f": float("-inf")}),
    "a boolean": ('{"id": 1, "b": false}', {"b": False}),
    "a boolean as a number": ('{"id": 1, "b": 1}', {"b": True}),
    "a date": ('{"id": 1, "day": "9999-12-31"}', {"day": dt.date(9999, 12, 31)}),
    "an instant in UTC": ('{"id": 1, "at": "2024-11-03T05:30:00Z"}', {"at": 1730611800000000}),
    "an instant an hour later": ('{"id": 1, "at": "2024-11-03T01:30:00-05:00"}', {"at": 1730615400000000}),
    "an instant with microseconds": ('{"id": 1, "at": "2024-01-01 00:00:00.123456000+0530"}', {"at": 1704047400123456}),
    "a wall time": ('{"id": 1, "wall": "2024-11-03T01:30:00.5"}', {"wall": dt.datetime(2024, 11, 3, 1, 30, 0, 500000)}),
    "a wall time in the gap of the session's zone": (
        '{"id": 1, "wall": "2024-03-10 02:30:00"}', {"wall": dt.datetime(2024, 3, 10, 2, 30)},
    ),
    "a date as a wall time": ('{"id": 1, "wall": "2024-11-03"}', {"wall": dt.datetime(2024, 11, 3)}),
    "the largest uint64": ('{"id": 1, "u": 18446744073709551615}', {"u": Decimal(18446744073709551615)}),
    "names with dots, blanks and quotes": (
        '{"id": 1, "a.b": 2, "select it": "x", "Ä`ö": "y"}', {"a.b": 2, "select it": "x", "Ä`ö": "y"},
    ),
    "names that differ in case": ('{"ID": "x", "id": 4}', {"id": 4, "ID": "x"}),
    "blanks around": (' \n{"id": 1}\t ', {"id": 1}),
    "fields that nobody asked for": ('{"id": 1, "other": {"x": [1, {"y": 2}]}}', {"id": 1}),
}  # fmt: skip

DOCUMENT, OBJECT = "the value is not one JSON document with names given once", "the value is not a JSON object"
REJECTED = {
    "nothing": ("", DOCUMENT),
    "no JSON": ("abc", DOCUMENT),
    "text behind": ('{"id": 1} x', DOCUMENT),
    "a brace too many": ('{"id": 1}}', DOCUMENT),
    "a bracket too many": ('{"id": 1}]', DOCUMENT),
    "two documents": ('{"id": 1}{"id": 2}', DOCUMENT),
    "two documents with a comma": ('{"id": 1},{"id": 2}', DOCUMENT),
    "the same name twice": ('{"id": 1, "id": 2}', DOCUMENT),
    "the same name twice deep inside": ('{"id": 1, "x": {"y": 1, "y": 2}}', DOCUMENT),
    "single quotes": ("{'id': 1}", DOCUMENT),
    "a leading zero": ('{"id": 01}', DOCUMENT),
    "a comma at the end": ('{"id": 1,}', DOCUMENT),
    "a document that stops": ('{"id": 1', DOCUMENT),
    "NaN outside of a string": ('{"id": 1, "f": NaN}', DOCUMENT),
    "half of a surrogate pair": (r'{"id": 1, "s": "\ud800"}', DOCUMENT),
    "a line break in a string": ('{"id": 1, "s": "a\nb"}', DOCUMENT),
    "ten thousand brackets": ('{"id": 1, "x": ' + "[" * 10_000 + "]" * 10_000 + "}", DOCUMENT),
    "a number of 1500 digits": ('{"id": ' + "9" * 1500 + "}", DOCUMENT),
    "bytes that are not UTF-8": (b'{"id": 1, "s": "\xff"}', "the value is not UTF-8 text"),
    "an array": ('[{"id": 1}]', OBJECT),
    "a number": ("5", OBJECT),
    "the word null": ("null", OBJECT),
    "no key": ('{"s": "x"}', "key column id is null or missing"),
    "a null key": ('{"id": null}', "key column id is null or missing"),
    "a name in other case": ('{"Id": 1}', "key column id is null or missing"),
    "a whole number too large": ('{"id": 9223372036854775808}', "column id: the value is not a bigint"),
    "a fraction": ('{"id": 1.5}', "column id: the value is not a bigint"),
    "a text for a number": ('{"id": "abc"}', "column id: the value is not a bigint"),
    "an empty text for a number": ('{"id": ""}', "column id: the value is not a bigint"),
    "true for a number": ('{"id": true}', "column id: the value is not a bigint"),
    "an object for a number": ('{"id": {"x": 1}}', "column id: the value is not a bigint"),
    "an object for a text": ('{"id": 1, "s": {"x": 1}}', "column s: the value is not a string"),
    "an array for a text": ('{"id": 1, "s": []}', "column s: the value is not a string"),
    "a fraction for a text": ('{"id": 1, "s": 1.50}', "column s: the value is not a string"),
    "a decimal that would be rounded": ('{"id": 1, "d": 1.239}', "column d: the value is not a decimal(10,2)"),
    "a decimal that is too large": ('{"id": 1, "d": 123456789.00}', "column d: the value is not a decimal(10,2)"),
    "a decimal with other digits": ('{"id": 1, "d": "٣"}', "column d: the value is not a decimal(10,2)"),
    "a decimal with a hidden digit": (
        '{"id": 1, "d": 0.1000000000000000000000000000000000000000001}', "column d: the value is not a decimal(10,2)",
    ),
    "a decimal that is rounded in scientific notation": (
        '{"id": 1, "d": 1.239E0}', "column d: the value is not a decimal(10,2)",
    ),
    "a double beyond all doubles": ('{"id": 1, "f": 1e400}', "column f: the value is not a double"),
    "a double as Java writes it": ('{"id": 1, "f": "5d"}', "column f: the value is not a double"),
    "true for a double": ('{"id": 1, "f": true}', "column f: the value is not a double"),
    "two for a boolean": ('{"id": 1, "b": 2}', "column b: the value is not a boolean"),
    "a date with junk": ('{"id": 1, "day": "2024-01-05 junk"}', "column day: the value is not a date"),
    "a word for a date": ('{"id": 1, "day": "epoch"}', "column day: the value is not a date"),
    "a year for a date": ('{"id": 1, "day": "2024"}', "column day: the value is not a date"),
    "a day that does not exist": ('{"id": 1, "day": "2023-02-29"}', "column day: the value is not a date"),
    "days for a date": ('{"id": 1, "day": 20455}', "column day: the value is not a date"),
    "an instant without a zone": ('{"id": 1, "at": "2024-01-01T00:00:00"}', "column at: the value is not a timestamp"),
    "an epoch": ('{"id": 1, "at": 1700000000}', "column at: the value is not a timestamp"),
    "a time of day": ('{"id": 1, "at": "10:00:00Z"}', "column at: the value is not a timestamp"),
    "a leap second": ('{"id": 1, "at": "2016-12-31T23:59:60Z"}', "column at: the value is not a timestamp"),
    "nanoseconds": ('{"id": 1, "at": "2024-01-01T00:00:00.123456789Z"}', "column at: the value is not a timestamp"),
    "a wall time with a zone": (
        '{"id": 1, "wall": "2024-01-01T00:00:00Z"}', "column wall: the value is not a timestamp_ntz",
    ),
    "a negative uint64": ('{"id": 1, "u": -1}', "column u: the value is not a uint64"),
    "a uint64 too large": ('{"id": 1, "u": 18446744073709551616}', "column u: the value is not a uint64"),
}  # fmt: skip

KEYS = {
    "text": ("7", 7),
    "a JSON string": ('"7"', 7),
    "an object": ('{"id": 7}', 7),
    "an object with more": ('{"x": 1, "id": 7}', 7),
    "an envelope with an object": ('{"schema": {"type": "struct"}, "payload": {"id": 7}}', 7),
    "an envelope with a value": ('{"schema": {"type": "int64"}, "payload": 7}', 7),
}


def frame(spark, rows):
    from pyspark.sql import functions as F

    messages = [
        (k if k is None else k.encode(), v if v is None or isinstance(v, bytes) else v.encode(), "t", 3, i)
        for i, (k, v) in enumerate(rows)
    ]
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    return spark.createDataFrame(messages, schema).orderBy(F.col("offset"))


@pytest.fixture(scope="module")
def decoded(spark):
    """What became of every case, by its name."""
    from pyspark.sql import functions as F

    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        cases = [("read", name, None, value) for name, (value, _) in READ.items()]
        cases += [("rejected", name, None, value) for name, (value, _) in REJECTED.items()]
        cases += [("key", name, key, None) for name, (key, _) in KEYS.items()]
        changes = read_messages(frame(spark, [(k, v) for _, _, k, v in cases]), list(COLUMNS), ["id"], COLUMNS)
        rows = changes.withColumn("at", F.unix_micros("at")).collect()
        return {case[:2]: row.asDict() for case, row in zip(cases, rows, strict=True)}
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


@pytest.mark.parametrize("case", READ)
def test_is_read_exactly(decoded, case):
    row = decoded["read", case]
    assert (row["_weever_change"], row["_weever_reason"], row["_weever_origin"]) == (PUT_ANYWHERE, None, None)
    assert {name: row[name] for name in READ[case][1]} == READ[case][1]


@pytest.mark.parametrize("case", REJECTED)
def test_is_rejected_with_its_reason_and_origin(decoded, case):
    row, (record, reason) = decoded["rejected", case], REJECTED[case]
    assert (row["_weever_change"], row["_weever_reason"]) == (REJECT, reason)
    assert json.loads(row["_weever_origin"]) == {"topic": "t", "partition": 3, "offset": row["_weever_sequence"]}
    assert row["_weever_record"] == (record if isinstance(record, str) else record.decode(errors="replace"))


@pytest.mark.parametrize("case", KEYS)
def test_a_message_without_a_value_drops_the_row_of_its_key(decoded, case):
    row = decoded["key", case]
    assert (row["_weever_change"], row["id"], row["s"]) == (DROP_ANYWHERE, KEYS[case][1], None)


def test_keys_of_text_are_quoted_or_bare(spark):
    columns = {"id": type_of_name("string"), "n": type_of_name("int")}
    keys = ["abc", '"abc"', "01", "null", '{"id": "abc"}', "{broken", "a\"b"]  # fmt: skip
    rows = read_messages(frame(spark, [(key, None) for key in keys]), ["id"], ["id"], columns).collect()
    assert [row["id"] for row in rows] == ["abc", "abc", "01", "null", "abc", "{broken", 'a"b']
    assert {row["_weever_change"] for row in rows} == {DROP_ANYWHERE}


def test_keys_of_several_columns_are_objects(spark):
    columns = {"id": type_of_name("string"), "n": type_of_name("int")}
    keys = ['{"id": "a", "n": 1}', '{"schema": {}, "payload": {"id": "a", "n": 1}}', '{"id": "a"}', "a", None]
    rows = read_messages(frame(spark, [(key, None) for key in keys]), ["n", "id"], ["id", "n"], columns).collect()
    assert rows[0].asDict().keys() == {"n", "id", *(name for name in rows[0].asDict() if name.startswith("_weever"))}
    assert [row["_weever_reason"] for row in rows] == [
        None, None, "key column n is null or missing", "key column id is null or missing",
        "the message has neither key nor value",
    ]  # fmt: skip
    assert [(row["id"], row["n"]) for row in rows[:2]] == [("a", 1), ("a", 1)]
