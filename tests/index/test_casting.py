"""Columns in declared types. Catches: a value that is bent to fit, a misfit that is reported with the wrong row."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from weever_stream.check import check
from weever_stream.detect.detector import Detector
from weever_stream.errors import DataError
from weever_stream.index.casting import typed
from weever_stream.rules import read_rules_text
from weever_stream.rules.types import type_of_name

UTC = timezone.utc
INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")
NOT_WITHOUT_LOSS = [
    (pa.int64(), [1_700_000_000], "timestamp"),
    (pa.int64(), [1_700_000_000], "timestamp_ntz"),
    (pa.int32(), [19_000], "date"),
    (pa.int64(), [5], "time"),
    (pa.float64(), [1.7e9], "timestamp"),
    (WALL, [datetime(2024, 1, 1)], "timestamp"),
    (INSTANT, [datetime(2024, 1, 1, tzinfo=UTC)], "timestamp_ntz"),
    (WALL, [datetime(2024, 1, 1)], "date"),
    (INSTANT, [datetime(2024, 1, 1, tzinfo=UTC)], "date"),
    (INSTANT, [datetime(2024, 1, 1, tzinfo=UTC)], "string"),
    (INSTANT, [datetime(2024, 1, 1, tzinfo=UTC)], "bigint"),
    (pa.date32(), [date(2024, 1, 1)], "timestamp"),
    (pa.date32(), [date(2024, 1, 1)], "int"),
    (pa.time64("us"), [time(10)], "bigint"),
    (pa.duration("us"), [5], "bigint"),
    (pa.int64(), [1], "boolean"),
    (pa.bool_(), [True], "int"),
    (pa.bool_(), [True], "double"),
    (pa.float64(), [1.5], "string"),
    (pa.binary(), [b"x"], "string"),
    (pa.list_(pa.int64()), [[1]], "bigint"),
]
NOT_A_VALUE = [
    (pa.int64(), [2**53 + 1], "double"),
    (pa.int64(), [2**63 - 1], "double"),
    (pa.uint64(), [2**63], "bigint"),
    (pa.int64(), [-1], "uint64"),
    (pa.int64(), [10**8], "decimal(10,2)"),
    (pa.float64(), [1.5], "int"),
    (pa.float16(), [np.float16(1.5)], "int"),
    (pa.float64(), [float("nan")], "int"),
    (pa.float64(), [1.239], "decimal(10,2)"),
    (pa.float64(), [float("inf")], "decimal(10,2)"),
    (pa.decimal128(10, 3), [Decimal("1.239")], "decimal(10,2)"),
    (pa.decimal128(10, 1), [Decimal("1.5")], "bigint"),
    (pa.decimal128(20, 0), [Decimal(2**53 + 1)], "double"),
    (pa.decimal128(38, 17), [Decimal("0.30000000000000001")], "double"),
    (pa.timestamp("ns", "UTC"), [1001], "timestamp"),
    (pa.time64("ns"), [1], "time"),
    (pa.string(), ["0x1F"], "int"),
    (pa.string(), ["1.5"], "int"),
    (pa.string(), [""], "int"),
    (pa.string(), ["5d"], "double"),
    (pa.string(), ["1e400"], "double"),
    (pa.string(), [" 1.5"], "double"),
    (pa.string(), ["1.239"], "decimal(10,2)"),
    (pa.string(), ["maybe"], "boolean"),
    (pa.string(), ["2024-01-05 junk"], "date"),
    (pa.string(), ["2024-13-05"], "date"),
    (pa.string(), ["2024-01-05 10:00:00"], "timestamp"),
    (pa.string(), ["1700000000"], "timestamp"),
    (pa.string(), ["2024-01-05 10:00:00Z"], "timestamp_ntz"),
    (pa.string(), ["2024-01-05 10:00"], "timestamp_ntz"),
    (pa.string(), ["18446744073709551616"], "uint64"),
    (pa.string(), ["25:00:00"], "time"),
]
FITTING = [
    (pa.int8(), 5, "double", 5.0),
    (pa.int64(), 2**53 + 2, "double", 2.0**53 + 2),
    (pa.int64(), 12, "decimal(10,2)", Decimal("12.00")),
    (pa.uint64(), 2**63 - 1, "bigint", 2**63 - 1),
    (pa.float64(), 5.0, "int", 5),
    (pa.float64(), 0.1, "decimal(10,2)", Decimal("0.10")),
    (pa.float64(), 0.3, "decimal(38,18)", Decimal("0.3")),
    (pa.decimal128(38, 18), Decimal("0.3"), "double", 0.3),
    (pa.decimal128(10, 2), Decimal("0.35"), "double", 0.35),
    (pa.decimal128(10, 2), Decimal("7.00"), "uint64", 7),
    (pa.decimal128(10, 3), Decimal("1.230"), "decimal(10,2)", Decimal("1.23")),
    (pa.date32(), date(2024, 2, 29), "timestamp_ntz", datetime(2024, 2, 29)),
    (
        pa.timestamp("s", "Asia/Tokyo"),
        datetime(2024, 2, 29, tzinfo=UTC),
        "timestamp",
        datetime(2024, 2, 29, tzinfo=UTC),
    ),
    (pa.timestamp("s"), datetime(2024, 2, 29), "timestamp_ntz", datetime(2024, 2, 29)),
    (pa.int64(), 5, "string", "5"),
    (pa.bool_(), True, "string", "true"),
    (pa.decimal128(10, 8), Decimal("0.00000010"), "string", "0.00000010"),
    (pa.date32(), date(2024, 2, 29), "string", "2024-02-29"),
    (WALL, datetime(2024, 2, 29, 10, 0, 0, 500_000), "string", "2024-02-29 10:00:00.5"),
    (WALL, datetime(2024, 2, 29, 10), "string", "2024-02-29 10:00:00"),
    (pa.string(), " +5.0", "int", 5),
    (pa.large_string(), "-5", "bigint", -5),
    (pa.string(), "18446744073709551615", "uint64", 2**64 - 1),
    (pa.string(), "+1.23" + "0" * 60, "decimal(10,2)", Decimal("1.23")),
    (pa.string(), "12.3e-1", "decimal(10,2)", Decimal("1.23")),
    (pa.string(), ".0", "decimal(10,2)", Decimal(0)),
    (pa.string(), "-.0", "uint64", 0),
    (pa.string(), "-.50", "decimal(10,2)", Decimal("-0.5")),
    (pa.float16(), np.float16(1.25), "decimal(4,2)", Decimal("1.25")),
    (pa.float16(), np.float16(7), "int", 7),
    (pa.string(), "1e300", "double", 1e300),
    (pa.string(), "-Infinity", "double", -float("inf")),
    (pa.string(), " Yes", "boolean", True),
    (pa.string(), "0", "boolean", False),
    (pa.string(), "2024-2-9", "date", date(2024, 2, 9)),
    (pa.string(), "2024-2-9", "timestamp_ntz", datetime(2024, 2, 9)),
    (pa.string(), "2024-02-09 1:02:03.500000000", "timestamp_ntz", datetime(2024, 2, 9, 1, 2, 3, 500_000)),
    (pa.string(), "2024-02-09T10:00:00 UTC", "timestamp", datetime(2024, 2, 9, 10, tzinfo=UTC)),
    (pa.string(), "2024-02-09 10:00:00 +02", "timestamp", datetime(2024, 2, 9, 8, tzinfo=UTC)),
    (pa.string(), "2024-02-09 10:00:00.25-0330", "timestamp", datetime(2024, 2, 9, 13, 30, 0, 250_000, tzinfo=UTC)),
    (pa.string(), "10:30", "time", time(10, 30)),
    (pa.dictionary(pa.int32(), pa.string()), "5", "int", 5),
    (pa.null(), None, "timestamp", None),
]


def array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.array(values, inner).cast(kind)


def refusal(kind: pa.DataType, values: list[Any], declared: str) -> list[str]:
    """The errors of `check` and of the detector, which are of one table and one declaration."""
    file = read_rules_text(f'table: x\ncolumns: {{x: "{declared}"}}\nrules:\n  - {{name: r, deny: t.x = s.x}}')
    table = pa.table({"x": array(kind, [None, *values])})
    errors = []
    for call in (lambda: check(file, table), lambda: Detector(file).insert(table)):
        with pytest.raises(DataError) as caught:
            call()
        assert caught.value.hint
        errors.append(caught.value.message.partition(": ")[2])
    return errors


@pytest.mark.parametrize(("kind", "values", "declared"), NOT_WITHOUT_LOSS, ids=str)
def test_a_type_that_means_something_else_is_refused(kind: pa.DataType, values: list[Any], declared: str) -> None:
    expected = f"column x is of type {kind} and cannot become a {type_of_name(declared)} without loss"
    assert refusal(kind, values, declared) == [expected] * 2


@pytest.mark.parametrize(("kind", "values", "declared"), NOT_A_VALUE, ids=str)
def test_a_value_that_would_change_is_refused_with_its_row(kind: pa.DataType, values: list[Any], declared: str) -> None:
    expected = f"column x: the value in row 2 is not a {type_of_name(declared)}"
    assert refusal(kind, values, declared) == [expected] * 2


@pytest.mark.parametrize(("kind", "value", "declared", "expected"), FITTING, ids=str)
def test_a_value_that_fits_is_read(kind: pa.DataType, value: Any, declared: str, expected: Any) -> None:
    made = typed(pa.table({"x": array(kind, [value, None])}), {"x": type_of_name(declared)}, "rows")
    assert made["x"].type == type_of_name(declared).to_arrow()
    assert made["x"].to_pylist() == [expected, None]


def test_numbers_without_a_unit_and_times_without_a_zone_say_what_to_do() -> None:
    numbers, walls = pa.table({"x": [5]}), pa.table({"x": pa.array([datetime(2024, 1, 1)], WALL)})
    for table, hint in ((numbers, "nothing says the unit"), (walls, "one has a time zone")):
        with pytest.raises(DataError) as caught:
            typed(table, {"x": type_of_name("timestamp")}, "rows")
        assert hint in (caught.value.hint or "")


def test_the_row_of_a_misfit_counts_over_chunks() -> None:
    texts = pa.table({"a": pa.chunked_array([["1", None], ["3", "x", "y"]])})
    with pytest.raises(DataError, match="rows: column a: the value in row 4 is not a bigint"):
        typed(texts, {"a": type_of_name("bigint")}, "rows")
    fits = typed(texts.slice(0, 3), {"a": type_of_name("bigint")}, "rows")
    assert fits["a"].to_pylist() == [1, None, 3]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (pa.decimal128(10, 2), pa.array([1.239])),
        (pa.float64(), pa.array([2**53 + 1])),
        (pa.float64(), pa.array([Decimal("0.30000000000000001")], pa.decimal128(38, 17))),
        (pa.float32(), pa.array([0.1])),
        (pa.timestamp("us", "UTC"), pa.array([datetime(2024, 1, 1)], WALL)),
        (pa.timestamp("us", "UTC"), pa.array([5])),
        (pa.bool_(), pa.array([1])),
    ],
    ids=str,
)
def test_a_schema_bends_no_arrow_value_either(stored: pa.DataType, given: pa.Array) -> None:
    detector = Detector(["t.x = s.x"], schema=pa.schema([("x", stored)]))
    with pytest.raises(DataError, match="column x"):
        detector.insert(pa.table({"x": given}))


def test_half_floats_are_numbers_like_others() -> None:
    halves = pa.table({"x": pa.array([np.float16(1.5), np.float16(1.5), None], pa.float16())})
    for stored in (pa.float64(), pa.float32(), pa.decimal128(4, 2)):
        detector = Detector(["t.x = s.x"], schema=pa.schema([("x", stored)]))
        detector.insert(halves)
        assert detector.count("rule_1") == 1
    for declared in ("double", "decimal(4,2)"):
        file = read_rules_text(f'table: x\ncolumns: {{x: "{declared}"}}\nrules:\n  - {{name: r, deny: t.x = s.x}}')
        assert check(file, halves).results[0].violations == 1


def test_whole_numbers_that_fit_a_decimal_of_the_schema_are_taken() -> None:
    detector = Detector(["t.x = s.x"], schema=pa.schema([("x", pa.decimal128(10, 2))]))
    detector.insert(pa.table({"x": [5, 5]}))
    assert detector.count("rule_1") == 1
