"""Outputs can be read back: JSON and CSV with hostile values, and the examples of the papers with their answers."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from weever_stream.check import Report, check, write_csv, write_json
from weever_stream.detect.digest import short_digests
from weever_stream.rules import Rule, fd, parse_rule

VALUES = {
    "n": pa.array([2**63 - 1, -(2**63)]),
    "u": pa.array([2**64 - 1, 0], pa.uint64()),
    "f": pa.array([float("nan"), -float("inf")]),
    "d": pa.array([Decimal("1.10"), Decimal("-0.01")]),
    "s": pa.array(['quote " comma , line\n tab\t nul\0', None]),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31)]),
    "at": pa.array([datetime(2024, 11, 3, 5, 30, tzinfo=timezone.utc), None], pa.timestamp("us", "UTC")),
    "ns": pa.array([1, 2], pa.timestamp("ns")),
    "flag": pa.array([True, None]),
    "c": pa.array(["x", "y"]).dictionary_encode(),
}


def as_json(report: Report) -> dict[str, object]:
    out = io.BytesIO()
    write_json(report, out)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return dict(json.loads(out.getvalue(), parse_constant=refuse))


def as_csv(report: Report) -> list[dict[str, str]]:
    out = io.BytesIO()
    write_csv(report, out)
    return list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))


def hostile_rule() -> Rule:
    return parse_rule(
        " and ".join(f"t.{name} != s.{name}" for name in ("n", "u", "f", "d", "day", "ns", "c")), name='a "rule"'
    )


def test_json_holds_every_value_exactly() -> None:
    table = pa.table(VALUES).append_column("k", pa.array([1, 1]))
    report = check(hostile_rule(), table)
    found = as_json(report)
    assert list(found) == ["version", "table", "rows", "rules", "violations"]
    assert found["rules"][0] | {"seconds": 0} == {
        "name": 'a "rule"', "severity": "error", "violations": 1, "rows_involved": 2, "seconds": 0,
    }  # fmt: skip
    violation = found["violations"][0]
    assert list(violation) == ["rule", "id", "left", "right"]
    assert violation["left"] == {
        "_row": 1, "c": "x", "d": "1.10", "day": "0001-01-01", "f": "NaN", "n": 2**63 - 1,
        "ns": "1970-01-01T00:00:00.000000001", "u": 2**64 - 1,
    }  # fmt: skip
    assert violation["right"]["f"] == "-Infinity"


def test_csv_holds_hostile_texts() -> None:
    table = pa.table(VALUES).append_column("k", pa.array([1, 1]))
    rule = parse_rule("t.k = s.k and t.n > s.n and t.s != 'x'", name='a "rule"', severity="warning")
    row = as_csv(check(rule, table))[0]
    assert (row["rule"], row["severity"], row["left_key"], row["right_key"]) == ('a "rule"', "warning", "1", "2")
    assert json.loads(row["left_values"])["s"] == VALUES["s"][0].as_py()
    assert json.loads(row["right_values"])["s"] is None


def test_a_rule_on_one_row_has_no_right_side() -> None:
    report = check(parse_rule("t.a > 2", name="small"), pa.table({"a": [1, 3]}))
    assert as_json(report)["violations"] == [
        {"rule": "small", "id": report.to_arrow()["id"][0].as_py(), "left": {"_row": 2, "a": 3}, "right": None}
    ]
    assert as_csv(report)[0]["right_key"] == ""


def test_count_and_limit_nought_list_nothing() -> None:
    table = pa.table({"a": [1, 1]})
    rule = parse_rule("t.a = s.a", name="unique")
    assert as_json(check(rule, table, mode="count"))["violations"] == []
    assert as_json(check(rule, table, limit=0))["violations"] == []
    assert as_csv(check(rule, table, limit=0)) == []


@pytest.mark.parametrize(
    ("severities", "code"),
    [((), 0), (("info",), 2), (("warning", "info"), 2), (("warning", "error"), 1), (("critical",), 1)],
)
def test_the_exit_code_follows_the_worst_severity(severities: tuple[str, ...], code: int) -> None:
    table = pa.table({"a": [1, 1], "b": [1, 2]})
    rules = [parse_rule("t.b = s.b", name="holds")]
    rules += [parse_rule("t.a = s.a", name=f"r{i}", severity=level) for i, level in enumerate(severities)]  # type: ignore[arg-type]
    assert check(rules, table).exit_code == code


def test_digests_are_those_of_hashlib() -> None:
    texts = ["é" * size for size in range(150)] + ["a" * size for size in range(150)] + ["x" * 10_000_000]
    expected = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
    assert short_digests(pa.array(texts)).to_pylist() == expected
    assert short_digests(pa.array(texts).slice(70, 20)).to_pylist() == expected[70:90]


PACKAGES = pa.table(
    {
        "package_code": [0, 1, 2, 3, 4],
        "origin": ["London", "Cape Town", "London", "Cape Town", "New Delhi"],
        "destination": ["Cape Town", "Lima", "New Delhi", "London", "London"],
        "distance": [9700, 9700, 6600, 9700, 6700],
        "volume": [8, 18, 30, 45, 45],
        "postage": [100, 50, 25, 200, 50],
    }
)
TAXES = pa.table(
    {
        "ssn": [100, 101, 102, 103], "zip": [10108, 53703, 53703, 53703], "salary": [3000, 5000, 6000, 4000],
        "fedtaxrate": [20, 15, 20, 22], "state": ["New York", "Wisconsin", "Wisconsin", "Wisconsin"],
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("table", "key", "rule", "answer"),
    [
        (PACKAGES, "package_code", "t.package_code = s.package_code", []),
        (PACKAGES, "package_code",
         "t.origin = s.destination and t.destination = s.origin and t.distance != s.distance", [("2", "4")]),
        (PACKAGES, "package_code",
         "t.distance = s.distance and t.volume < s.volume and t.postage > s.postage", [("0", "1")]),
        (TAXES, "ssn", "t.zip = s.zip and t.state != s.state", []),
        (TAXES, "ssn", "t.state = s.state and t.salary <= s.salary and t.fedtaxrate > s.fedtaxrate",
         [("103", "101"), ("103", "102")]),
        (TAXES, "ssn", "t.salary < s.fedtaxrate", []),
    ],
)  # fmt: skip
def test_the_papers_examples_have_their_answers(
    table: pa.Table, key: str, rule: str, answer: list[tuple[str, str]]
) -> None:
    found = check(parse_rule(rule, name="example"), table, key=[key]).to_arrow()
    assert sorted(zip(found["left_key"].to_pylist(), found["right_key"].to_pylist(), strict=True)) == answer


def test_numbers_of_rows_do_not_hide_a_column_of_that_name() -> None:
    report = check(parse_rule("t._row = s._row", name="clash"), pa.table({"_row": [7, 7]}))
    assert as_json(report)["violations"][0]["left"] == {"__row": 1, "_row": 7}


def test_hundreds_of_rules_are_checked_in_one_go() -> None:
    columns = [f"c{i}" for i in range(30)]
    table = pa.table({name: [1, 1, 2, 2] for name in columns})
    rules = [
        rule for one in columns for other in columns if one != other for rule in fd(one, other, name=f"{one}_{other}")
    ]
    report = check(rules, table)
    assert len(report.results) == 870
    assert report.exit_code == 0
