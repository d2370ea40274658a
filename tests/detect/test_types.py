"""Every comparable type under every operator, with nulls, held against the oracle through the detector.

Catches: codes that do not keep a type's order or equality (unsigned beyond 2^63, NaN, -0.0, subnormals, scales, units,
zones, years 1 and 9999, the hour that clocks repeat, texts that share a prefix or hold NUL), types mixed by a cast that
rounds, nulls that compare, and types that some step of the engine cannot carry.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.agreement import triples
from tests.detect.drawn import small_runs
from tests.index.typed import TYPED, Typed
from tests.oracle import violations, written
from weever_stream.detect.detector import Detector
from weever_stream.rules import Rule, parse_rule

OPS = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BETWEEN = {
    f"{one}_{name}_{other}": f"t.{one} {op} s.{other}" for name, op in OPS.items() for one, other in ("xy", "yx")
}
INSIDE = {f"inside_{name}": f"t.x {op} t.y" for name, op in OPS.items()}
ALONE = {f"alone_{name}": f"t.x {op} s.x" for name, op in OPS.items()}
TOGETHER = {f"both_{name}": f"t.x = s.x and t.y {OPS[name]} s.y" for name in ("ne", "lt", "ge")}
MIXED = [
    ("int64", "float64"), ("int32", "float32"), ("uint64", "float64"), ("uint64", "int64"), ("uint8", "int64"),
    ("int64", "decimal(38,10)"), ("uint64", "decimal(38,0)"), ("int16", "decimal(5,2)"), ("int64", "decimal(38,38)"),
    ("decimal(5,2)", "decimal(18,18)"), ("decimal(38,0)", "decimal(38,38)"), ("decimal(19,4)", "decimal(38,10)"),
    ("decimal(5,2)", "float64"), ("decimal(18,0)", "float64"), ("decimal(38,10)", "float64"),
    ("decimal(38,38)", "float32"), ("float16", "float64"), ("float32", "float64"),
    ("date32", "date64"), ("date32", "timestamp(s,None)"), ("date64", "timestamp(us,None)"),
    ("date32", "timestamp(ns,None)"), ("timestamp(s,None)", "timestamp(ns,None)"),
    ("timestamp(ms,UTC)", "timestamp(us,America/New_York)"), ("time(s)", "time(ns)"), ("time(ms)", "time(us)"),
    ("duration(s)", "duration(ns)"), ("string", "large_string"), ("dictionary", "large_string"),
    ("string_view", "string"),
]  # fmt: skip


def parsed(texts: dict[str, str]) -> list[Rule]:
    return [parse_rule(text, name=name) for name, text in texts.items()]


def truth(texts: dict[str, str], rows: list[dict[str, Any]]) -> set[tuple[str, Any, Any]]:
    return violations([written(text, name) for name, text in texts.items()], rows, "id")


def assert_agrees(texts: dict[str, str], x: Typed, y: Typed, values: list[tuple[Any, Any]]) -> None:
    """Rows come in two batches, then some go: what is reported adds up to the oracle's violations."""
    table = pa.table(
        {"id": range(len(values)), "x": x.array([one for one, _ in values]), "y": y.array([two for _, two in values])}
    )
    rows = [{"id": at, "x": x.truth(one), "y": y.truth(two)} for at, (one, two) in enumerate(values)]
    half, third = len(values) // 2, len(values) // 3
    with small_runs(batch=2, tail=4):
        detector = Detector(parsed(texts), key="id", schema=table.schema)
        found = triples(detector.insert(table.slice(0, half)), ("id",))
        found |= triples(detector.insert(table.slice(half)), ("id",))
        assert found == truth(texts, rows)
        gone = triples(detector.delete(list(range(third))), ("id",))
        assert found - gone == truth(texts, rows[third:]) == triples(detector.violations(), ("id",))


def columns(x: Typed, y: Typed) -> st.SearchStrategy[list[tuple[Any, Any]]]:
    return st.lists(st.tuples(st.none() | x.values, st.none() | y.values), min_size=2, max_size=14)


def assert_always_agrees(texts: dict[str, str], x: Typed, y: Typed, examples: int) -> None:
    @settings(max_examples=examples)
    @given(columns(x, y))
    def agrees(values: list[tuple[Any, Any]]) -> None:
        assert_agrees(texts, x, y, values)

    agrees()


@pytest.mark.parametrize("name", TYPED)
def test_a_type_compares_as_the_oracle_does(name: str):
    assert_always_agrees(
        {**ALONE, **TOGETHER, **dict(list(BETWEEN.items())[::2]), **INSIDE}, TYPED[name], TYPED[name], examples=2
    )


@pytest.mark.parametrize(("one", "other"), MIXED)
def test_two_types_compare_in_their_common_type(one: str, other: str):
    assert_always_agrees(BETWEEN | INSIDE, TYPED[one], TYPED[other], examples=2)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [*((name, name) for name in TYPED), *MIXED])
def test_types_compare_as_the_oracle_does_on_many_values(one: str, other: str):
    alone = ALONE | TOGETHER if one == other else {}
    assert_always_agrees(alone | BETWEEN | INSIDE, TYPED[one], TYPED[other], examples=20)


def test_a_decimal_equals_the_double_that_is_written_alike():
    amounts = [Decimal(cents).scaleb(-2) for cents in range(1, 400)]
    table = pa.table({"d": pa.array(amounts, pa.decimal128(10, 2)), "f": [float(amount) for amount in amounts]})
    detector = Detector(["t.d = t.f", "t.d != t.f"])
    detector.insert(table)
    assert detector.count("rule_1") == len(amounts)
    assert detector.count("rule_2") == 0


CONSTANTS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "int8": (pa.int8(), [-128, 0, 1, 127], ["0", "1.5", "200", "-1e3", "double '1.5'", "double 'NaN'"]),
    "int64": (pa.int64(), [2**63 - 1, 2**53 + 1, 0], ["9007199254740993", "9223372036854775808", "double '9007199254740992'"]),
    "uint64": (pa.uint64(), [2**64 - 1, 2**63, 0], ["18446744073709551615", "9223372036854775808", "-1", "0.5"]),
    "float32": (pa.float32(), [0.0, -0.0, 0.5, float("nan"), float("inf")], ["0", "0.5", "double 'NaN'", "double 'Infinity'", "0.1"]),
    "float64": (pa.float64(), [0.1, 0.35, 1e300, float("nan"), -0.0], ["0.1", "0.35", "1e300", "double '-Infinity'", "0"]),
    "decimal(10,2)": (pa.decimal128(10, 2), [Decimal("0.35"), Decimal("1.00"), Decimal("-3.50")], ["0.35", "1", "1.005", "double '0.35'", "-3.5"]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal("1e27"), Decimal("1.5")], ["1000000000000000000000000000", "1.5", "1e-20", "2"]),
    "boolean": (pa.bool_(), [True, False], ["true", "false"]),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)], ["date '2024-02-29'", "'2024-02-28'", "date '9999-12-31'", "timestamp_ntz '2024-02-29 00:00:00.000001'"]),
    "ntz": (pa.timestamp("us"), [datetime(2024, 2, 29), datetime(2024, 2, 29, 12), datetime(1, 1, 1)], ["date '2024-02-29'", "timestamp_ntz '2024-02-29 12:00:00'"]),
    "seconds": (pa.timestamp("s"), [datetime(2024, 2, 29), datetime(9999, 12, 31)], ["timestamp_ntz '2024-02-29 00:00:00.5'", "date '9999-12-31'"]),
    "instant": (pa.timestamp("us", "UTC"), [datetime(2024, 11, 3, 5, 30, tzinfo=timezone.utc), datetime(2024, 11, 3, 6, 30, tzinfo=timezone.utc)], ["timestamp '2024-11-03 01:30:00-04:00'", "timestamp '2024-11-03 06:30:00Z'"]),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999999)], ["time '00:00:00'", "time '12:00'"]),
    "string": (pa.string(), ["", "a", "ä", "a\0", "it's"], ["''", "'a'", "'it''s'", "'z'"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_column_compares_with_constants_as_the_oracle_does(name: str):
    kind, values, constants = CONSTANTS[name]
    rows = [{"id": at, "x": value} for at, value in enumerate([*values, None])]
    texts = {}
    for number, constant in enumerate(constants):
        for op, symbol in OPS.items():
            texts[f"row_{number}_{op}"] = f"t.x {symbol} {constant}"
            if op in ("eq", "lt"):
                texts[f"pair_{number}_{op}"] = f"t.x {symbol} {constant} and t.id < s.id"
    detector = Detector(parsed(texts), key="id", schema=pa.schema([("id", pa.int64()), ("x", kind)]))
    detector.insert(rows)
    assert triples(detector.violations(), ("id",)) == truth(texts, rows)


def test_the_hour_that_clocks_repeat_is_two_hours():
    zone = ZoneInfo("America/New_York")
    first, second = datetime(2024, 11, 3, 1, 30, tzinfo=zone), datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=zone)
    detector = Detector(["t.at = s.at", "t.at < s.at"], key="id")
    detector.insert([{"id": 1, "at": first}, {"id": 2, "at": second}])
    assert detector.count("rule_1") == 0
    assert triples(detector.violations("rule_2"), ("id",)) == {("rule_2", 1, 2)}
    (found,) = detector.violations("rule_2")
    assert found.right["at"] - found.left["at"] == timedelta(hours=1)


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "America/New_York"])
def test_the_ends_of_time_can_be_shown(zone: str | None):
    ends = [-62_135_596_800_000_000, 253_402_300_799_999_999, 2**62, -(2**62)]
    table = pa.table({"id": range(4), "at": pa.array(ends, pa.timestamp("us", zone))})
    detector = Detector(["t.at < s.at"], key="id")
    assert len(list(detector.insert(table))) == 6
    assert detector.violations().to_arrow().num_rows == 6
    days = pa.table({"id": range(3), "at": pa.array([-719_162, 2_932_896, 2**30], pa.date32())})
    detector = Detector(["t.at < s.at"], key="at")
    assert len({v.id for v in detector.insert(days)}) == 3


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [0.0, -0.0, float("nan"), float("inf"), 5e-324, 0.1, 1e300]),
        (pa.float32(), [0.0, 0.1, 16777216.0]),
        (pa.decimal128(38, 10), [Decimal("1e27"), Decimal("0.5"), Decimal("-0.5")]),
        (pa.duration("us"), [timedelta(days=200_000, microseconds=n) for n in (-1, 0, 1, 2)]),
        (pa.duration("ns"), [1, 2, -1]),
        (pa.timestamp("ns"), [0, 1, -1, 2**63 - 1]),
        (pa.timestamp("us", "Asia/Tokyo"), [0, 1, 253_402_300_799_999_999]),
        (pa.time64("ns"), [0, 1, 1000]),
        (pa.bool_(), [True, False]),
        (pa.uint64(), [2**64 - 1, 2**63, 0]),
        (pa.string(), ["", "a", "a\0", '"', "ä"]),
    ],
)
def test_a_key_of_any_type_gives_each_violation_an_id_of_its_own(kind: pa.DataType, values: list[Any]):
    different = len(values) - (kind == pa.float64())  # 0.0 and -0.0 are one key
    detector = Detector(["t.a = s.a"], key="k", schema=pa.schema([("k", kind), ("a", pa.int64())]))
    detector.insert(pa.table({"k": pa.array(values, kind), "a": [1] * len(values)}))
    assert len(detector) == different
    found = list(detector.violations())
    assert len({violation.id for violation in found}) == len(found) == different * (different - 1) // 2
    for key in values:
        again = detector.upsert(pa.table({"k": pa.array([key], kind), "a": [1]}))
        assert not len(again)
    went = detector.delete(pa.table({"k": pa.array(values, kind)}))
    assert {violation.id for violation in went} == {violation.id for violation in found}
