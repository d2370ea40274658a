"""Rules of any shape over columns of any type: `check` and the detector find what nested loops find, or refuse.

Catches: a traceback of Arrow or numpy for a combination of types that nobody thought of; rules that share work and
disturb each other through it; an order that one of the two keeps and the other does not.
"""

from __future__ import annotations

import random
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.detect.agreement import triples
from tests.detect.drawn import small_runs
from tests.oracle import violations, written
from weever_stream.check import check
from weever_stream.detect.detector import Detector
from weever_stream.errors import DataError, RuleError
from weever_stream.rules import bind, parse_rule, schema_of

UTC = timezone.utc
WIDE = [Decimal(0), Decimal(1), Decimal(2**53), Decimal(2**53 + 1), Decimal("-7")]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), 0, 1, 2**53, 2**53 + 1, 2**63 - 1]),
    "uint32": (pa.uint32(), [0, 1, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**53 + 1, 2**64 - 1]),
    "float32": (pa.float32(), [0.0, -0.0, 1.0, 0.5, float("nan"), float("inf")]),
    "float64": (pa.float64(), [0.0, 0.3, 1.0, 2.0**53, 1e300, float("nan"), -float("inf")]),
    "decimal(3,1)": (pa.decimal128(3, 1), [Decimal("0.3"), Decimal("1.0"), Decimal("99.9")]),
    "decimal(20,0)": (pa.decimal128(20, 0), [*WIDE, Decimal(10) ** 19]),
    "decimal(38,0)": (pa.decimal128(38, 0), [*WIDE, Decimal(10) ** 37]),
    "decimal(38,18)": (pa.decimal128(38, 18), [Decimal("0.3"), Decimal("0.300000000000000001"), *WIDE]),
    "decimal(38,38)": (pa.decimal128(38, 38), [Decimal("0.3"), Decimal("1e-38"), Decimal(0)]),
    "decimal(60,0)": (pa.decimal256(60, 0), [*WIDE, Decimal(10) ** 59]),
    "decimal(76,0)": (pa.decimal256(76, 0), [*WIDE, Decimal(10) ** 75]),
    "decimal(76,76)": (pa.decimal256(76, 76), [Decimal(0), Decimal("0.3"), Decimal("1e-76")]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "time": (pa.time64("us"), [time(0), time(10), time(23, 59, 59, 999_999)]),
    "seconds": (pa.timestamp("s"), [datetime(2024, 2, 29), datetime(9999, 12, 31)]),
    "wall": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2024, 2, 29), datetime(2024, 2, 29, 0, 0, 0, 1)]),
    "instant": (pa.timestamp("us", "UTC"), [datetime(2024, 2, 29, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]),
    "tokyo": (pa.timestamp("ms", "Asia/Tokyo"), [datetime(2024, 2, 29, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
    "duration": (pa.duration("us"), [timedelta(0), timedelta(days=-1), timedelta(microseconds=1)]),
    "string": (pa.string(), ["", "a", "ä", "2024-02-29", "10:00:00"]),
    "large_string": (pa.large_string(), ["", "a", "z" * 40, "z" * 39]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "b"]),
    "null": (pa.null(), [None]),
    "binary": (pa.binary(), [b"", b"a"]),
    "list": (pa.list_(pa.int64()), [[], [1]]),
}  # fmt: skip
NUMBERS = [name for name in TYPES if name.startswith(("int", "uint", "float", "decimal"))]
CONSTANTS = [
    "0", "1", "-1", "0.3", "0.30000000000000001", "9007199254740992", "9007199254740993", "18446744073709551615", "1e37",
    "1e60", "1e300", "1e-38", "double '0.3'", "double 'NaN'", "double '-Infinity'", "'a'", "''", "'2024-02-29'", "'10:00:00'",
    "'2024-02-29T00:00:00Z'", "true", "date '2024-02-29'", "time '10:00'", "timestamp '2024-02-29 00:00:00Z'",
    "timestamp_ntz '2024-02-29 00:00:00'",
]  # fmt: skip
OPS = ["=", "=", "!=", "<", "<=", ">", ">="]


def drawn_rules(chance: random.Random, names: list[str]) -> dict[str, str]:
    """Texts of rules; some of them compare what cannot be compared, or say what cannot be."""

    def predicate() -> str:
        row, left = chance.choice("ts"), chance.choice(names)
        if chance.random() < 0.25:
            return f"{row}.{left} {chance.choice(OPS)} {chance.choice(CONSTANTS)}"
        return f"{row}.{left} {chance.choice(OPS)} {chance.choice('tss')}.{chance.choice([left, *names])}"

    return {f"r{n}": " and ".join(predicate() for _ in range(chance.choice([1, 1, 2, 3]))) for n in range(30)}


def drawn_table(chance: random.Random) -> pa.Table:
    """Ten rows of five columns: often numbers, which meet in the most types."""
    kinds = [chance.choice(NUMBERS if chance.random() < 0.6 else list(TYPES)) for _ in range(5)]
    columns = {"id": pa.array(range(10))}
    for name, kind in zip("abcde", kinds, strict=True):
        arrow, values = TYPES[kind]
        some = [chance.choice([*values, *values, None]) for _ in range(10)]
        decoded = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
        columns[name] = pa.array(some, decoded).cast(arrow)
    return pa.table(columns)


def is_taken(text: str, table: pa.Table) -> bool:
    """Whether a rule can be checked over a table; if not it is refused as a rule, not by a traceback."""
    try:
        bind(parse_rule(text), schema_of(table.schema))
    except RuleError as error:
        error.render()
        return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_check_and_detector_find_the_truth_or_refuse(seed: int) -> None:
    chance = random.Random(seed)
    table = drawn_table(chance)
    texts = {name: text for name, text in drawn_rules(chance, list("abcde")).items() if is_taken(text, table)}
    rules = [parse_rule(text, name=name) for name, text in texts.items()]
    rows = table.to_pylist()
    truth = violations([written(text, name) for name, text in texts.items()], rows, "id")
    report = check(rules, table, key=["id"])
    listed = {
        (piece.rule.name, left, right)
        for piece in report.violations()
        for left, right in zip(
            piece.pairs.left.tolist(),
            [None] * len(piece.pairs) if piece.pairs.right is None else piece.pairs.right.tolist(),
            strict=True,
        )
    }
    assert listed == truth
    assert {one.rule.name: one.violations for one in report.results} == {
        name: sum(found[0] == name for found in truth) for name in texts
    }
    untyped = {name for name in "abcde" if pa.types.is_null(table.schema.field(name).type)}
    for rule in [rule for rule in rules if not untyped.isdisjoint(rule.columns)]:
        with pytest.raises(DataError, match=r"type of column \w is not known"):
            Detector([rule], key="id").insert(table)
    rules = [rule for rule in rules if untyped.isdisjoint(rule.columns)]
    with small_runs(batch=2, tail=4):
        detector = Detector(rules, key="id", schema=table.schema)
        detector.insert(table.slice(0, 6))
        detector.insert(table.slice(6))
        assert triples(detector.violations(), ("id",)) == {
            found for found in truth if found[0] in {r.name for r in rules}
        }


def test_decimals_of_many_digits_may_be_chained() -> None:
    columns = {"a": pa.decimal256(60, 0), "b": pa.decimal128(20, 0), "c": pa.decimal128(38, 38)}
    values = {"a": [Decimal(10) ** 59, Decimal(0)], "b": [Decimal(0), Decimal(1)], "c": [Decimal(0), Decimal("1e-38")]}
    table = pa.table({name: pa.array(values[name], kind) for name, kind in columns.items()})
    texts = ["t.a = s.b", "t.b = s.c", "t.b > s.c", "t.a < s.a"]
    found = [one.violations for one in check([parse_rule(text, name=text) for text in texts], table).results]
    assert found == [len(violations([written(text)], table.to_pylist())) for text in texts] == [1, 0, 1, 1]


@pytest.mark.parametrize("mode", ["list", "count", "first"])
def test_a_column_without_values_compares_with_everything_and_violates_nothing(mode: Any) -> None:
    table = pa.table(
        {"x": pa.nulls(2), "n": [1, 1], "s": ["a", "a"], "d": pa.array([Decimal(1)] * 2, pa.decimal128(38, 2))}
    )
    texts = ["t.x = s.n", "t.x = s.s", "t.x < s.d", "t.x = s.x", "t.x < t.n", "t.x > 5", "t.x > 'a'", "t.x < 1e300",
             "t.x = true", "t.x != date '2024-01-31'", "t.x > 0.3 and t.x <= 0.30000000000000001", "t.n = s.n"]  # fmt: skip
    report = check([parse_rule(text, name=text) for text in texts], table, mode=mode)
    assert [one.rule.name for one in report.results if one.violations] == ["t.n = s.n"]


def test_an_empty_table_whose_key_has_no_type_is_clean() -> None:
    table = pa.table({"id": pa.nulls(0), "a": pa.nulls(0)})
    assert check(parse_rule("t.a = s.a"), table, key=["id"]).exit_code == 0
