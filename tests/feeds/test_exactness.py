"""Properties: what goes into JSON comes out of the change frame, and code that Spark compiles does what it interprets."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weever_stream.feeds.changes import PUT_ANYWHERE
from weever_stream.feeds.messages import read_messages
from weever_stream.rules.types import type_of_name

TYPES = {"id": "bigint", "s": "string", "d": "decimal(20,5)", "f": "double", "b": "boolean", "day": "date",
         "at": "timestamp", "wall": "timestamp_ntz"}  # fmt: skip
COLUMNS = {name: type_of_name(spelling) for name, spelling in TYPES.items()}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))
ROWS = st.fixed_dictionaries({
    "id": LONGS,
    "s": st.none() | st.text(st.characters(exclude_categories=("Cs",))),
    "d": st.none() | st.decimals(Decimal("-1E15") + 1, Decimal("1E15") - 1, places=5),
    "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "b": st.none() | st.booleans(),
    "day": st.none() | st.dates(),
    "at": st.none() | TIMES.map(lambda time: time.replace(tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))),
    "wall": st.none() | TIMES,
})  # fmt: skip


def written(row, digits):
    """JSON as producers write it: a decimal as a number or in quotes, plain or in scientific notation."""
    plain = {name: str(value) if isinstance(value, dt.date) else value for name, value in row.items() if name != "d"}
    d = "null" if row["d"] is None else digits.format(row["d"])
    return json.dumps(plain, ensure_ascii=False)[:-1] + f', "d": {d}}}'


def expected(row):
    at = row["at"] and (row["at"] - EPOCH) // dt.timedelta(microseconds=1)
    return (row["id"], row["s"], row["d"], row["f"], row["b"], row["day"], at, row["wall"])


def decode(spark, documents):
    from pyspark.sql import functions as F

    rows = [(None, document.encode(), "t", 0, i) for i, document in enumerate(documents)]
    messages = spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset bigint")
    changes = read_messages(messages.coalesce(1), list(COLUMNS), ["id"], COLUMNS)
    return changes.withColumn("at", F.unix_micros("at")).collect()


def check(spark, rows, digits):
    found = decode(spark, [written(row, digits) for row in rows])
    assert {(row["_weever_change"], row["_weever_reason"]) for row in found} == {(PUT_ANYWHERE, None)}
    assert [tuple(row)[: len(COLUMNS)] for row in found] == [expected(row) for row in rows]


@settings(max_examples=3)
@given(rows=st.lists(ROWS, min_size=40, max_size=80), digits=st.sampled_from(["{}", '"{}"', "{:E}", '"{:e}"']))
def test_values_come_out_of_json_as_they_went_in(spark, rows, digits):
    check(spark, rows, digits)


@pytest.mark.slow
def test_compiled_code_reads_as_interpreted_code_does(spark):
    modes = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in modes}
    for name, value in modes.items():
        spark.conf.set(name, value)
    try:
        settings(max_examples=3)(
            given(rows=st.lists(ROWS, min_size=40, max_size=80), digits=st.sampled_from(["{}", "{:E}"]))(
                lambda rows, digits: check(spark, rows, digits)
            )
        )()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
