"""Calls that cannot be right are refused with the place and a hint, hold no value of a row, and change nothing.

Catches: a traceback of Arrow or numpy where a clear error belongs; a value bent to fit; data leaked into a message; a
detector half-changed by a refused call; a no-op that is refused; large or empty input that breaks something.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.detect.agreement import triples
from weever_stream.detect.detector import Detector
from weever_stream.errors import DataError, DetectorError, RuleError, WeeverError
from weever_stream.rules import parse_rule

SECRET = "WEEVERSECRET123"
FD = "t.zip = s.zip and t.city != s.city"
ROWS = [{"id": 1, "zip": 1, "city": "Rome"}, {"id": 2, "zip": 1, "city": "Paris"}]


@pytest.fixture
def detector() -> Detector:
    made = Detector([parse_rule(FD, name="zip_determines_city")], key="id")
    made.insert(ROWS)
    return made


def refused(
    detector: Detector, call: Callable[[], Any], kind: type[WeeverError], *parts: str, hint: str | None = None
) -> WeeverError:
    """The error of a call: of a kind, with some words, a hint, no value of a row; and the detector is as before."""
    before = len(detector), triples(detector.violations(), detector.key), repr(detector.tally)
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    text = error.render()
    for part in parts:
        assert part in text
    assert error.hint
    if hint is not None:
        assert hint in error.hint
    assert SECRET not in text
    assert pickle.loads(pickle.dumps(error)).render() == text
    assert (len(detector), triples(detector.violations(), detector.key), repr(detector.tally)) == before
    detector._check()
    return error


# Columns and types


def test_a_missing_column_is_named_with_the_one_that_may_be_meant(detector: Detector):
    row = {"id": 3, "Zip": SECRET, "city": SECRET}
    refused(detector, lambda: detector.insert([ROWS[0], row]), DataError, "row 2", "zip", hint="did you mean Zip?")
    table = pa.Table.from_pylist([row])
    refused(detector, lambda: detector.insert(table), DataError, "no column zip", hint="did you mean Zip?")
    refused(detector, lambda: detector.insert([{"id": 3, "city": "x"}] * 100), DataError, "row 1", "zip")


def test_a_key_that_names_a_column_twice_is_refused():
    with pytest.raises(DataError, match="twice"):
        Detector(["t.zip = s.zip and t.city != s.city"], key=["id", "id"]).insert([{"id": 1, "zip": 1, "city": "a"}])


def test_a_column_that_stands_twice_is_refused(detector: Detector):
    table = pa.Table.from_arrays([pa.array([3])] * 3 + [pa.array(["x"])], ["id", "zip", "zip", "city"])
    refused(detector, lambda: detector.insert(table), DataError, "several columns zip")


@pytest.mark.parametrize("many", [1, 200])
@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("zip", SECRET, "str"),
        ("zip", 1.5, "float"),
        ("zip", True, "bool"),
        ("zip", 2**63, "int"),
        ("zip", [SECRET], "list"),
        ("zip", Decimal("1.5"), "Decimal"),
        ("city", 5, "int"),
        ("city", b"Rome", "bytes"),
        ("city", {"a": SECRET}, "dict"),
        ("city", "\ud800", "str"),
        ("city", date(2024, 1, 1), "date"),
    ],
)
def test_a_value_of_another_type_is_named_by_row_and_column(
    detector: Detector, column: str, value: Any, kind: str, many: int
):
    rows = [{"id": 10 + n, "zip": 1, "city": SECRET} for n in range(many)]
    rows.append({"id": 9, "zip": 1, "city": SECRET, column: value})
    refused(detector, lambda: detector.insert(rows), DataError, f"row {many + 1}", f"column {column}", kind)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("timestamp", datetime(2024, 1, 1)),
        ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=timezone.utc)),
        ("date", datetime(2024, 1, 1, 5)),
        ("decimal(5,2)", Decimal("1.005")),
        ("decimal(5,2)", Decimal("12345")),
        ("decimal(5,2)", 1.5),
        ("double", 2**53 + 1),
        ("double", "1.5"),
        ("boolean", 1),
        ("int", 1.5),
        ("string", b"x"),
        ("date", "2024-01-01"),
        ("date", 5),
        ("timestamp", 5),
        ("time", 5),
        ("double", True),
        ("timestamp", 1_700_000_000.0),
        ("timestamp", Decimal(1_700_000_000)),
        ("timestamp", np.int64(5)),
        ("timestamp", np.datetime64("2024-01-01T00:00:00", "us")),
        ("timestamp_ntz", np.datetime64("2024-01-01T00:00:00", "s")),
        ("timestamp_ntz", pd.Timestamp("2024-01-01 00:00:00.000000001")),
        ("date", 1.2),
        ("date", pd.NaT),
        ("date", np.int64(5)),
        ("bigint", np.float32(1.2)),
        ("bigint", np.True_),
        ("bigint", np.array(3.7)),
        ("double", np.True_),
        ("double", np.int64(2**53 + 1)),
        ("time", time(1, tzinfo=timezone.utc)),
        ("time", np.float64(5)),
        (pa.timestamp("s"), datetime(2024, 1, 1, 0, 0, 0, 5)),
        (pa.time32("ms"), time(0, 0, 0, 5)),
        (pa.float32(), 1.1),
        (pa.float32(), 1e300),
    ],
)
@pytest.mark.parametrize("many", [0, 100])
def test_no_value_is_bent_to_its_column(declared: Any, value: Any, many: int):
    detector = Detector(["t.x = s.x"], key="id", schema={"id": "bigint", "x": declared})
    rows = [{"id": n, "x": None} for n in range(many)] + [{"id": -1, "x": value}]
    refused(detector, lambda: detector.insert(rows), DataError, f"row {many + 1}", "column x")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("bigint", np.int64(5)),
        ("double", np.float32(1.5)),
        ("double", 5),
        ("boolean", np.True_),
        ("timestamp_ntz", np.datetime64("2024-01-01T00:00:00", "us")),
        ("timestamp_ntz", pd.Timestamp("2024-01-01")),
        (pa.timestamp("ns"), pd.Timestamp("2024-01-01 00:00:00.000000001")),
        (pa.timestamp("s"), datetime(2024, 1, 1)),
        (pa.float32(), 1.5),
        (pa.float32(), float("nan")),
        ("string", np.str_("a")),
    ],
)
def test_values_that_need_no_bending_are_taken(declared: Any, value: Any):
    detector = Detector(["t.x = s.x"], key="id", schema={"id": "bigint", "x": declared})
    assert len(detector.insert([{"id": n, "x": value} for n in range(2)]).added) == 1


def test_rows_of_mixed_types_are_refused_before_a_schema_is_made():
    detector = Detector(["t.x = s.x"], key="id")
    refused(
        detector,
        lambda: detector.insert([{"id": 1, "x": 1}, {"id": 2, "x": SECRET}]),
        DataError,
        "column x",
        "one type",
    )
    assert len(detector.insert([{"id": 1, "x": SECRET}, {"id": 2, "x": SECRET}])) == 1, "nothing was decided"


def test_a_table_of_other_types_is_refused(detector: Detector):
    for column, array in {
        "zip": pa.array([SECRET]),
        "city": pa.array([1]),
        "id": pa.array([1.5]),
    }.items():
        table = pa.table({"id": [3], "zip": [1], "city": ["x"]})
        bad = table.set_column(table.column_names.index(column), column, array)
        refused(detector, lambda bad=bad: detector.insert(bad), DataError, f"column {column}")
    wider = pa.table({"id": pa.array([3], pa.int8()), "zip": pa.array([1], pa.uint64()), "city": pa.array([None])})
    detector.insert(wider)
    assert len(detector) == 3, "numbers that fit and nulls are taken"


def test_a_column_that_is_all_null_at_first_needs_a_schema():
    rows = [{"id": 1, "x": None}, {"id": 2, "x": None}]
    detector = Detector(["t.x = s.x"], key="id")
    refused(detector, lambda: detector.insert(rows), DataError, "column x", "null", hint="schema")
    detector = Detector(["t.x = s.x"], key="id", schema={"id": "bigint", "x": "string"})
    assert len(detector.insert(rows)) == 0


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int8())]
)
def test_a_column_that_cannot_be_compared_is_refused_by_name(kind: pa.DataType):
    schema = pa.schema([("id", pa.int64()), ("x", kind)])
    with pytest.raises(RuleError, match="column x is of type"):
        Detector(["t.x = s.x"], key="id", schema=schema)
    with pytest.raises(DataError, match="the key x is of type"):
        Detector(["t.id = s.id"], key="x", schema=schema)
    assert len(Detector(["t.id = s.id"], key="id", schema=schema)) == 0, "a column that no rule reads may be anything"


def test_a_rule_over_unknown_columns_is_refused_when_the_schema_is_known():
    with pytest.raises(RuleError, match=r"no column citty(.|\n)*did you mean city"):
        Detector(["t.citty = s.citty"], key="id", schema={"id": "bigint", "city": "string"})


@pytest.mark.parametrize(
    "data",
    [
        "rows",
        b"rows",
        5,
        None,
        1.5,
        [1, 2],
        ["row"],
        [ROWS[0], 5],
        object(),
        pa.array([1]),
        pl.Series([1]),
        pd.Series([1]),
    ],
)
def test_what_is_no_table_is_refused(detector: Detector, data: Any):
    refused(detector, lambda: detector.insert(data), DataError, hint="list of dicts")


# Keys


def test_a_null_key_is_refused_with_its_row(detector: Detector):
    rows = [{"id": 3, "zip": 1, "city": SECRET}, {"id": None, "zip": 1, "city": SECRET}]
    refused(detector, lambda: detector.insert(rows), DataError, "row 2", "key column id is null")
    refused(detector, lambda: detector.insert(pa.Table.from_pylist(rows)), DataError, "row 2", "key column id is null")
    refused(detector, lambda: detector.delete([1, None]), DataError, "row 2", "key column id is null")
    changes = [{**row, "_change_type": "upsert"} for row in rows]
    refused(detector, lambda: detector.apply(changes), DataError, "row 2", "key column id is null")


def test_a_refused_first_insert_leaves_nothing_behind():
    detector = Detector(["t.x = s.x"], key="id")
    refused(detector, lambda: detector.insert([{"id": 1, "x": SECRET}, {"id": None, "x": SECRET}]), DataError, "row 2")
    assert len(detector.insert([{"id": 1, "x": 5}, {"id": 2, "x": 5}])) == 1


def test_a_key_that_is_no_column_is_refused():
    with pytest.raises(DataError, match=r"the key idd is not a column(.|\n)*did you mean id"):
        Detector(["t.id = s.id"], key="idd", schema={"id": "bigint"})
    with pytest.raises(DataError, match="idd"):
        Detector(["t.x = s.x"], key="idd").insert([{"id": 1, "x": 1}])


def test_a_strict_detector_refuses_a_key_that_is_held():
    detector = Detector([FD], key="id", strict=True)
    detector.insert(ROWS)
    refused(
        detector,
        lambda: detector.insert([{"id": 5, "zip": 1, "city": SECRET}, ROWS[1]]),
        DetectorError,
        "row 2",
        hint="upsert",
    )
    twice = [{"id": 7, "zip": 1, "city": SECRET}] * 2
    refused(detector, lambda: detector.insert(twice), DetectorError, "row 2", "1 such", hint="upsert")
    assert len(detector.upsert(ROWS)) == 0
    detector.delete([1])
    assert len(detector.insert(ROWS[0])) == 1, "a key that was dropped may come again"
    detector.insert([{"id": n, "zip": n, "city": "x"} for n in range(100, 500)])
    refused(detector, lambda: detector.insert([{"id": 300, "zip": 0, "city": "x"}]), DetectorError, "row 1")


@pytest.mark.parametrize("keys", [[(1, 2)], [()], [(1, "x", 3)]])
def test_a_key_with_too_few_or_many_parts_is_refused(keys: Any):
    detector = Detector(["t.x = s.x"], key=["id", "name"])
    detector.insert([{"id": 1, "name": "a", "x": 1}])
    if keys == [(1, 2)]:
        refused(detector, lambda: detector.delete(keys), DataError, "row 1", "column name")
        return
    with pytest.raises(DataError, match="a key has 2 parts"):
        detector.delete(keys)


def test_a_key_of_another_type_is_refused_when_deleting(detector: Detector):
    refused(detector, lambda: detector.delete([SECRET]), DataError, "row 1", "column id", "str")
    refused(
        detector, lambda: detector.delete(pa.table({"idd": [1]})), DataError, "no column id", hint="did you mean idd?"
    )


# Verbs


def test_upserts_and_changes_need_a_key():
    detector = Detector([FD])
    detector.insert([{"zip": 1, "city": "Rome"}])
    refused(detector, lambda: detector.upsert(ROWS), DetectorError, "no key", hint="key")
    change = {"zip": 1, "city": "Rome", "_change_type": "insert"}
    refused(detector, lambda: detector.apply([change]), DetectorError, "key", hint="key")


def test_nothing_can_be_deleted_before_columns_are_known():
    detector = Detector([FD], key="id")
    refused(detector, lambda: detector.delete([1]), DetectorError, "nothing to delete from")


def test_an_unknown_rule_is_named_with_the_one_that_may_be_meant(detector: Detector):
    for ask in (detector.count, detector.violations):
        refused(
            detector, lambda ask=ask: ask("zip_determine_city"), DetectorError, hint="did you mean zip_determines_city?"
        )
    with pytest.raises(DetectorError, match="no rule nothing_like_it"):
        Detector([FD]).violations("nothing_like_it")


@pytest.mark.parametrize("max_pairs", [0, 1, 10])
def test_a_strict_insert_refuses_a_stored_key_with_any_cap(max_pairs: int):
    detector = Detector([FD], key="id", strict=True, max_pairs=max_pairs)
    assert len(detector.insert(ROWS).added) == 1
    refused(detector, lambda: detector.insert(ROWS[0]), DetectorError, "row 1", hint="use upsert to replace rows")
    assert len(detector.insert({**ROWS[0], "id": 9}).added) == 1


def test_changes_without_their_kind_are_refused(detector: Detector):
    refused(detector, lambda: detector.apply(ROWS), DataError, "_change_type", hint="update_postimage")
    odd = [{**ROWS[0], "_change_type": "insert"}, {**ROWS[1], "_change_type": SECRET}]
    refused(detector, lambda: detector.apply(odd), DataError, "row 2", "_change_type", hint="upsert")
    refused(detector, lambda: detector.apply([{**ROWS[0], "_change_type": None}]), DataError, "row 1")


@pytest.mark.parametrize(
    "sequence",
    [-1, 1.5, "1", True, [1], [1, 2, 3], [1, None], [1, -1], [1.0, 2.0], 2**62, [[1, 2]], [2**70, 1]],
    ids=repr,
)
def test_a_sequence_that_is_none_is_refused(detector: Detector, sequence: Any):
    refused(detector, lambda: detector.insert(ROWS, sequence=sequence), DataError, "sequence", hint="2^62")
    refused(detector, lambda: detector.delete([1, 2], sequence=sequence), DataError, "sequence")
    assert len(detector.upsert(ROWS[0] | {"city": "Paris"}).removed) == 1, "changes without a sequence still count on"


def test_a_version_that_is_missing_or_odd_is_refused(detector: Detector):
    for versions in ([1, None], [1, "2"], [1, -2], [1, 2.5]):
        changes = [
            {**row, "_change_type": "upsert", "_commit_version": v} for row, v in zip(ROWS, versions, strict=True)
        ]
        refused(detector, lambda changes=changes: detector.apply(changes), DataError, "sequence")


def test_the_ends_of_the_range_of_sequences_are_taken(detector: Detector):
    assert len(detector.upsert(ROWS[0] | {"city": "Paris"}, sequence=2**62 - 1).removed) == 1
    detector.upsert(ROWS[0], sequence=0)
    assert detector.count("zip_determines_city") == 0, "0 is older"
    assert len(detector.insert({"id": 9, "zip": 1, "city": "Oslo"}).added) == 2, "a row without a sequence needs none"


# Nothing and much


@pytest.mark.parametrize(
    "nothing",
    [
        [], (), iter([]), pa.table({"id": pa.array([], pa.int64()), "zip": pa.array([], pa.int64()), "city": pa.array([], pa.string())}),
        pd.DataFrame({"id": pd.Series([], dtype="int64"), "zip": pd.Series([], dtype="int64"), "city": pd.Series([], dtype="str")}),
        pl.DataFrame(schema={"id": pl.Int64, "zip": pl.Int64, "city": pl.String}),
    ],
    ids=lambda value: type(value).__module__ + "." + type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("verb", ["insert", "upsert", "apply", "delete"])
def test_no_rows_change_nothing(detector: Detector, nothing: Any, verb: str, started: bool):
    if not started and verb == "delete":
        return
    mine = detector if started else Detector([FD], key="id")
    deltas = getattr(mine, verb)(nothing)
    assert list(deltas) == []
    assert deltas.to_arrow().num_rows == 0
    assert len(mine) == (2 if started else 0)
    assert len(mine.insert(ROWS)) == (0 if started else 1), "and rows may follow"


def test_no_rows_may_come_with_a_sequence(detector: Detector):
    for sequence in (5, []):
        assert len(detector.insert([], sequence=sequence)) == 0
        assert len(detector.delete([], sequence=sequence)) == 0


def test_a_detector_without_rules_only_holds_rows():
    detector = Detector([], key="id")
    assert len(detector.insert([{"id": 1}, {"id": 2}])) == 0
    assert len(detector.delete([1])) == 0
    assert len(detector) == 1
    assert list(detector.violations()) == []


def test_texts_of_ten_megabytes_are_compared_whole():
    long = "x" * 10_000_000
    detector = Detector(["t.s = s.s", "t.s < s.s", "t.s != s.s"], key="s")
    detector.insert([{"s": long + "a"}, {"s": long + "b"}, {"s": long[:-1]}])
    assert [detector.count(f"rule_{n}") for n in (1, 2, 3)] == [0, 3, 3]
    assert {len(v.left["s"]) - len(v.right["s"]) for v in detector.violations("rule_2")} == {0, -2}
    detector.delete([long + "b"])
    assert len(detector) == 2


@pytest.mark.parametrize("name", ["a.b", "select", "ÄÖ", "with space", 'quo"te', "t", "s", "_change_type_", "名"])
def test_columns_may_have_any_name(name: str):
    quoted = '"' + name.replace('"', '""') + '"'
    detector = Detector([f"t.{quoted} = s.{quoted}"], key="id")
    detector.insert([{"id": 1, name: 5}, {"id": 2, name: 5}])
    (found,) = detector.violations()
    assert found.left == {"id": 1, name: 5}


def test_a_column_may_not_take_the_name_of_the_row_number():
    with pytest.raises(DataError, match="_row"):
        Detector(["t._row > s._row"]).insert([{"_row": 5}, {"_row": 3}])
    keyed = Detector(["t._row > s._row"], key="id")
    assert len(keyed.insert([{"id": 1, "_row": 5}, {"id": 2, "_row": 3}])) == 1


def test_changes_of_an_unknown_key_are_counted_and_a_first_drop_needs_only_its_key():
    detector = Detector([FD], key="id")
    deltas = detector.apply([{**row, "_change_type": "insert"} for row in ROWS] + [{"id": 2, "_change_type": "delete"}])
    assert list(deltas) == []
    before = detector.tally.unknown_drops
    detector.delete([77])
    assert detector.tally.unknown_drops == before + 1
    assert len(detector) == 1
