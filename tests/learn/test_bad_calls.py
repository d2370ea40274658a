"""Calls that a learner cannot take, and tables at the edge of what it can: told clearly, and nothing is changed.

Catches: an error without a hint, or one that is Python's or Arrow's own; a key that names two rows or none; a column
that nothing compares in the way of rows; a learner that goes on after a change broke off half-way.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.learn.truth import assert_exact
from weever_stream.errors import DataError, DetectorError, WeeverError
from weever_stream.learn import Learner

ROWS = [{"id": at, "a": at % 2, "c": "xy"[at // 2 % 2]} for at in range(6)]
TABLE = pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": TABLE, "key": "ID"}, "the key ID is not a column"),
        ({"rows": TABLE, "key": ["id", "none"]}, "the key none is not a column"),
        ({"rows": TABLE, "key": ["id", "id"]}, "twice"),
        ({"rows": TABLE, "key": "id", "columns": ["a", "z"]}, "there is no column z"),
        ({"rows": TABLE, "key": "id", "max_predicates": 0}, "at least one predicate"),
        ({"rows": TABLE, "key": "id", "max_predicates": -3}, "at least one predicate"),
        ({"rows": TABLE, "key": "id", "rules": ["t.z = s.z"]}, "there is no column z"),
        ({"rows": []}, "no rows and no schema"),
        ({}, "no rows and no schema"),
        ({"rows": 5}, "cannot read rows from int"),
        ({"rows": "rows.csv"}, "cannot read rows from str"),
        ({"rows": [{"id": 1, "a": 1}, {"id": None, "a": 2}], "key": "id"}, "row 2: the key column id is null"),
        ({"rows": [{"id": None, "a": 1}], "key": "id"}, "the key id is null in every row"),
        ({"rows": [{"id": 1, "a": 1}, {"id": 2}]}, "row 2 has no column a"),
        ({"rows": [{"id": 1, "a": 1}, {"id": 2, "a": "x"}], "key": "id"}, "do not have one type"),
        ({"rows": TABLE, "key": "id", "schema": {"id": "bigint", "a": "date"}}, "column a was date32"),
        ({"rows": pa.table({"_row": [1], "a": [1]})}, "_row is the row's number"),
        ({"rows": pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])}, "several columns a"),
        ({"rows": pa.table({"id": [b"x"], "a": [1]}), "key": "id"}, "type binary, which cannot be compared"),
        ({"rows": pa.table({"id": [{"u": 1}], "a": [1]}), "key": "id"}, "cannot be compared"),
        ({"rows": pa.table({"id": [[1]], "a": [1]}), "key": "id"}, "cannot be compared"),
    ],
)
def test_a_learner_that_cannot_be_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(WeeverError, match=message):
        Learner(options.pop("rows", ()), **options)


@pytest.mark.parametrize(
    ("verb", "given", "options", "message"),
    [
        ("insert", [{"id": 9, "a": 1}], {}, "row 1 has no column c"),
        ("insert", [{"id": 9, "a": "one", "c": "x"}], {}, "column a is not a int64"),
        ("insert", [{"id": 9, "a": 1.5, "c": "x"}], {}, "column a is not a int64"),
        ("insert", [{"id": 9, "a": 2**63, "c": "x"}], {}, "column a is not a int64"),
        ("insert", [{"id": 9, "a": 1, "c": b"x"}], {}, "column c is not a large_string"),
        ("insert", [{"id": None, "a": 1, "c": "x"}], {}, "key column id is null"),
        ("insert", pa.table({"id": [9], "a": [1]}), {}, "there is no column c"),
        ("insert", pa.table({"id": [9], "a": ["1"], "c": ["x"]}), {}, "column a was int64"),
        ("upsert", ROWS[:1], {"sequence": -1}, "outside its range"),
        ("upsert", ROWS[:1], {"sequence": [1, 2]}, "one for each change"),
        ("upsert", ROWS[:1], {"sequence": 2**62}, "outside its range"),
        ("upsert", ROWS[:1], {"sequence": "now"}, "whole number"),
        ("delete", [None], {}, "null"),
        ("delete", [(1, 2)], {}, "a key has 1 parts"),
        ("delete", [{"a": 1}], {}, "no column id"),
        ("apply", [{"id": 1}], {}, "no column _change_type"),
        ("apply", [{**ROWS[0], "_change_type": "replace"}], {}, "unknown _change_type"),
        ("apply", [{**ROWS[0], "_change_type": "insert", "_commit_version": None}], {}, "whole number"),
        ("apply", [{"id": 1, "_change_type": "insert"}], {}, "no column a"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_leaves_everything(
    verb: str, given: Any, options: dict[str, Any], message: str
):
    learner = Learner(TABLE, key="id")
    rules = learner.rules
    with pytest.raises(DataError, match=message):
        getattr(learner, verb)(given, **options)
    assert learner.rules == rules
    learner._check()
    learner.insert([{"id": 9, "a": 7, "c": None}])
    assert_exact(learner, [*ROWS, {"id": 9, "a": 7, "c": None}])


def test_changes_by_key_need_a_key():
    learner = Learner([{"a": 1}, {"a": 2}])
    for verb in ("upsert", "apply"):
        with pytest.raises(DetectorError, match="no key"):
            getattr(learner, verb)([{"a": 1, "_change_type": "insert"}])
    assert len(learner.delete([1, 2]).dropped) == 1
    assert len(learner) == 0


@pytest.mark.parametrize("nothing", [[], pa.table({"id": pa.array([], pa.int64())})])
def test_nothing_changes_nothing(nothing: Any):
    learner = Learner(TABLE, key="id")
    for learned in (learner.insert(nothing), learner.upsert(nothing), learner.apply(nothing), learner.delete(nothing)):
        assert not learned
        assert learned.changes == 0
    assert len(learner) == 6


def test_of_rows_with_one_key_the_last_is_held():
    learner = Learner([*ROWS, {"id": 2, "a": 8, "c": "z"}, {"id": 2, "a": 9, "c": "z"}], key="id")
    rows = [{"id": 2, "a": 9, "c": "z"} if row["id"] == 2 else row for row in ROWS]
    assert len(learner) == 6
    learner._check()
    assert_exact(learner, rows)
    assert sorted(learner.table().to_pylist(), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize("raw", [b"x", {"u": 1}, [1, 2]], ids=["binary", "struct", "list"])
@pytest.mark.parametrize("as_table", [False, True])
def test_columns_that_cannot_be_compared_are_in_nobodys_way(raw: Any, as_table: bool):
    rows: Any = [{**row, "raw": raw} for row in ROWS]
    learner = Learner(pa.Table.from_pylist(rows) if as_table else rows, key="id")
    assert learner.columns == ("a", "c")
    assert learner.table().column_names == ["id", "a", "c"], "nor are they held"
    learner.insert([{"id": 7, "a": 1, "c": "x", "raw": 5}])
    learner.insert([{"id": 8, "a": 1, "c": "x"}])
    learner.insert(pa.table({"id": [9], "a": [1], "c": ["x"], "raw": ["text"]}))
    assert len(learner) == 9


def test_a_column_without_any_value_is_left_out_whatever_comes_later():
    for rows in (TABLE.append_column("none", pa.nulls(6)), [{**row, "none": None} for row in ROWS]):
        learner = Learner(rows, key="id")
        learner.insert([{"id": 7, "a": 1, "c": "x", "none": "text"}])
        learner.insert([{"id": 8, "a": 1, "c": "x", "none": 5}])
        assert learner.columns == ("a", "c")
        assert len(learner) == 8


@pytest.mark.parametrize("small", [3, 1000])
def test_columns_of_one_value_and_of_nulls_later_are_right(small: int):
    rows = [{"id": at, "k": 7, "a": at % 3} for at in range(8)]
    learner = Learner(rows, key="id", small=small)
    assert_exact(learner, rows)
    rows = [{**row, "k": None} if row["id"] > 2 else row for row in rows]
    learner.upsert(rows[3:])
    assert_exact(learner, rows)
    rows = [{**row, "k": None, "a": None} for row in rows]
    learner.upsert(rows)
    learner._check()
    assert_exact(learner, rows)
    assert learner.rules, "nothing is ever satisfied: every predicate is a rule"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tables_of_no_row_one_and_two(count: int):
    learner = Learner(TABLE.slice(0, count), key="id")
    learner._check()
    assert len(learner) == count
    assert_exact(learner, ROWS[:count])


def test_a_table_with_nothing_to_compare_has_no_rules():
    for table, key in ((TABLE.select(["id"]), "id"), (pa.table({"raw": [b"x", b"y"]}), None)):
        learner = Learner(table, key=key)
        assert (len(learner), learner.rules, learner.columns) == (table.num_rows, (), ())
        learner.insert(table if key is None else pa.table({"id": [77]}))
        learner.delete([1])
        learner._check()
        assert learner.rules == ()


@pytest.mark.parametrize(("first", "more"), [(1, 9), (1, 60), (9, 20)])
def test_rows_of_which_nothing_is_compared_may_become_many(first: int, more: int, tmp_path: Path):
    learner = Learner(pa.table({"id": range(first), "a": pa.nulls(first, pa.int64())}), key="id", small=5)

    def held() -> Learner:
        learner._check()
        learner.dump(tmp_path / "state")
        again = Learner.load(tmp_path / "state")
        again._check()
        return again

    for at in (100, 1000):
        learner = held()
        learner.insert(pa.table({"id": range(at, at + more), "a": range(more)}))
    learner = held()
    learner.delete(list(range(100, 100 + more)))
    learner = held()
    assert (len(learner), learner.rules, learner.columns) == (first + more, (), ())


TIMES: dict[str, tuple[pa.DataType, list[int]]] = {
    "date": (pa.date32(), [0, 19_000, 2_932_897]),
    "timestamp": (pa.timestamp("us"), [0, 10**15, 253_402_300_800 * 10**6]),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), [0, 10**12, 253_402_300_800 * 10**3]),
    "nanoseconds": (pa.timestamp("ns"), [0, 10**15 + 1, 10**15 + 2]),
    "time": (pa.time64("ns"), [0, 1, 86_399 * 10**9]),
    "duration": (pa.duration("ns"), [0, 1, 2**62]),
}


@pytest.mark.parametrize("kind", sorted(TIMES))
def test_times_that_python_has_not_are_keys_like_others(kind: str, tmp_path: Path):
    """The last is in the year 10000, or finer than a microsecond: no row may get two names for that."""
    type_, ticks = TIMES[kind]
    given = [
        pa.array([tick], pa.int64()).cast(pa.int32() if type_ == pa.date32() else pa.int64()).cast(type_)
        for tick in ticks
    ]
    learner = Learner(pa.table({"at": pa.concat_arrays(given[:2]), "a": [1, 2]}), key="at")
    learner.upsert(pa.table({"at": pa.concat_arrays([given[0], given[2]]), "a": [3, 4]}))
    assert len(learner) == 3
    learner.delete(pa.table({"at": given[2]}), sequence=50)
    learner.dump(tmp_path / "state")
    learner = Learner.load(tmp_path / "state")
    learner.upsert(pa.table({"at": given[2], "a": [5]}), sequence=49)
    assert len(learner) == 2, "the drop is remembered"
    learner.delete(pa.table({"at": given[0]}))
    assert learner.table()["a"].to_pylist() == [2]


@pytest.mark.parametrize("far", [date(9999, 12, 31), datetime(9999, 12, 31), timedelta(days=1)])
def test_python_times_are_keys(far: Any):
    learner = Learner([{"at": far, "a": 1}], key="at")
    learner.upsert([{"at": far, "a": 2}])
    assert learner.table().to_pylist() == [{"at": far, "a": 2}]
    learner.delete([far])
    assert len(learner) == 0


def test_not_a_number_is_one_key():
    learner = Learner(pa.table({"id": [float("nan"), 0.0], "a": [1, 2]}), key="id")
    learner.upsert(pa.table({"id": [float("nan"), -0.0], "a": [3, 4]}))
    assert learner.table()["a"].to_pylist() == [3, 4]


@pytest.mark.slow
def test_many_columns_with_short_rules():
    chance = np.random.default_rng(5)
    columns = {f"c{at}": chance.integers(0, 4 + at, 320) for at in range(60)}
    table = pa.table({"id": np.arange(320), **columns})
    learner = Learner(table.slice(0, 300), key="id", cross=False, max_predicates=2)
    learner.insert(table.slice(300))
    learner.delete([0])
    assert_exact(learner, [row for row in table.to_pylist() if row["id"]])


def test_a_learner_refuses_to_go_on_after_a_change_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    learner = Learner(TABLE, key="id", small=3)
    learner.dump(tmp_path / "before")
    with monkeypatch.context() as patched:
        patched.setattr(type(learner._keeper), "_follow", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner.insert([{"id": 9, "a": 5, "c": "z"}])
    for call in (
        lambda: learner.rules,
        lambda: learner.insert(ROWS),
        lambda: learner.delete([1]),
        lambda: learner.apply([{**ROWS[0], "_change_type": "insert"}]),
        lambda: learner.table(),
        lambda: learner.dump(tmp_path / "after"),
    ):
        with pytest.raises(DetectorError, match="broke off half-way") as refused:
            call()
        assert refused.value.hint
    assert not (tmp_path / "after").exists()
    again = Learner.load(tmp_path / "before")
    again.insert([{"id": 9, "a": 5, "c": "z"}])
    assert_exact(again, [*ROWS, {"id": 9, "a": 5, "c": "z"}])


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt
