"""The same rows in every form give the same violations.

Catches: a form that loses types, nulls, zones or the order of columns on its way in, or that one verb takes and another
does not.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from weever_stream.detect.detector import Detector
from weever_stream.rules import parse_rule

ROWS: list[dict[str, Any]] = [
    {
        "note": "no rule reads this", "at": datetime(2024, 11, 3, n % 3, tzinfo=timezone.utc), "id": n, "n": n % 4,
        "f": [0.0, -0.0, 1.5, None][n % 4], "s": ["x", "ä", "", None][n * 7 % 4], "day": date(2024, 2, 1 + n % 3),
        "yes": n % 2 == 0,
    }
    for n in range(24)
]  # fmt: skip
RULES = [
    parse_rule(text, name=name)
    for name, text in {
        "numbers": "t.n = s.n and t.f != s.f",
        "texts": "t.s = s.s and t.n < s.n",
        "order": "t.s < s.s and t.day = s.day and t.yes = true",
        "times": "t.at < s.at and t.n = s.n and t.f >= s.f",
        "null": "t.f = s.f and t.s != s.s",
    }.items()
]
TABLE = pa.Table.from_pylist(ROWS)
FORMS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda rows: rows,
    "a tuple of dicts": tuple,
    "a generator of dicts": iter,
    "mappings": lambda rows: [MappingProxyType(row) for row in rows],
    "table": lambda rows: pa.Table.from_pylist(rows, TABLE.schema),
    "table of chunks": lambda rows: pa.concat_tables(pa.Table.from_pylist([row], TABLE.schema) for row in rows),
    "sliced table": lambda rows: pa.Table.from_pylist([ROWS[0], *rows, ROWS[0]], TABLE.schema).slice(1, len(rows)),
    "columns in another order": lambda rows: pa.Table.from_pylist(rows, TABLE.schema).select(TABLE.column_names[::-1]),
    "dictionary-encoded": lambda rows: _encoded(pa.Table.from_pylist(rows, TABLE.schema)),
    "batch": lambda rows: pa.RecordBatch.from_pylist(rows, TABLE.schema),
    "reader": lambda rows: pa.Table.from_pylist(rows, TABLE.schema).to_reader(max_chunksize=5),
    "pandas": lambda rows: pd.DataFrame(rows),
    "pandas with an index": lambda rows: pd.DataFrame(rows, index=range(100, 100 + len(rows))),
    "pandas on Arrow": lambda rows: pa.Table.from_pylist(rows, TABLE.schema).to_pandas(types_mapper=pd.ArrowDtype),
    "Polars": lambda rows: pl.DataFrame(rows),
    "Polars of chunks": lambda rows: pl.concat([pl.DataFrame(rows[:2]), pl.DataFrame(rows[2:])], rechunk=False),
}


def _encoded(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("s"), "s", table.column("s").dictionary_encode())


def ids(found: Any) -> list[tuple[str, str]]:
    return sorted((violation.change, violation.id) for violation in found)


def story(form: Callable[[list[dict[str, Any]]], Any]) -> list[Any]:
    """Inserts, upserts, deletes and applies, in one form; what each reports."""
    detector = Detector(RULES, key="id")
    told = [ids(detector.insert(form(ROWS)))]
    told.append(ids(detector.upsert(form([{**row, "n": row["n"] + 1} for row in ROWS[3:15]]))))
    told.append(ids(detector.delete(form(ROWS[:4]))))
    changes = [{**row, "_change_type": "upsert", "_commit_version": 99} for row in ROWS[:8]]
    told.append(ids(detector.apply(changes)))
    detector._check()
    told.append(ids(detector.violations()))
    return told


PLAIN = story(FORMS["dicts"])


@pytest.mark.parametrize("name", FORMS)
def test_rows_in_any_form_tell_the_same_story(name: str):
    assert all(PLAIN), "there is something to tell"
    assert story(FORMS[name]) == PLAIN


@pytest.mark.parametrize("name", FORMS)
def test_a_detector_takes_one_form_after_another(name: str):
    detector = Detector(RULES, key="id")
    detector.insert(FORMS["table"](ROWS[:12]))
    detector.insert(FORMS[name](ROWS[12:]))
    assert ids(detector.violations()) == PLAIN[0]


@pytest.mark.parametrize(
    "keys",
    [
        [1, 2], (1, 2), {1, 2}, range(1, 3), iter([1, 2]), np.array([1, 2]), pd.Series([1, 2]), pl.Series([1, 2]),
        pa.array([1, 2]), pa.chunked_array([[1], [2]]), [{"id": 1}, {"id": 2, "more": 0}], pa.table({"id": [1, 2]}),
        pa.record_batch({"id": [1, 2]}), pd.DataFrame({"id": [1, 2]}), pl.DataFrame({"id": [1, 2], "more": [0, 0]}),
    ],
    ids=lambda keys: f"{type(keys).__module__}.{type(keys).__name__}",
)  # fmt: skip
def test_keys_to_delete_come_in_any_form(keys: Any):
    detector = Detector(["t.a = s.a"], key="id")
    detector.insert([{"id": n, "a": 0} for n in range(4)])
    gone = detector.delete(keys)
    assert len(detector) == 2
    assert len(gone.removed) == 5
    assert [(v.left_key, v.right_key) for v in detector.violations()] == [("0", "3")]


@pytest.mark.parametrize("key", [3, np.int64(3), {"id": 3}])
def test_a_single_key_needs_no_list(key: Any):
    detector = Detector(["t.a = s.a"], key="id")
    detector.insert([{"id": n, "a": 0} for n in range(4)])
    detector.delete(key)
    assert len(detector) == 3


@pytest.mark.parametrize("keys", [("x", 1), [("x", 1)], [["x", 1]], [{"id": 1, "name": "x"}], {"id": 1, "name": "x"}])
def test_a_key_of_two_columns_comes_as_a_tuple_or_a_dict(keys: Any):
    detector = Detector(["t.a = s.a"], key=["name", "id"])
    detector.insert([{"name": name, "id": n, "a": 0} for name in "xy" for n in range(2)])
    detector.delete(keys)
    assert len(detector) == 3
    assert sorted((v.left_key, v.right_key) for v in detector.violations()) == [
        ('["x",0]', '["y",0]'), ('["x",0]', '["y",1]'), ('["y",0]', '["y",1]'),
    ]  # fmt: skip


def test_rows_without_a_key_are_numbered_from_one():
    detector = Detector(["t.a = s.a"])
    assert [(v.left_key, v.right_key) for v in detector.insert([{"a": 0}, {"a": 1}, {"a": 0}])] == [("1", "3")]
    assert [(v.left_key, v.right_key) for v in detector.insert(pa.table({"a": [1]}))] == [("2", "4")]
    assert [(v.left_key, v.right_key) for v in detector.delete([3]).removed] == [("1", "3")]
    assert [(v.left_key, v.right_key) for v in detector.insert({"a": 0})] == [("1", "5")], "numbers are not given twice"
