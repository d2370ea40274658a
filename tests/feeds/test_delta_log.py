"""Which changes of a Delta table's schema a job can follow, from the log alone.

Catches: a change that no rule cares about and that stops a job; a change that a rule does care about and that is
noticed by nobody: a column that was dropped, replaced by another one of its name, moved into the partitions, or given a
type in which old rows cannot be read.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from weever_stream.errors import StateError
from weever_stream.feeds.delta_log import (
    DeltaColumn,
    TableLog,
    refuse_changed_columns,
    refuse_lost_versions,
    refuse_other_table,
    schema_changes,
)
from weever_stream.storage import locate

BEFORE = {"id": DeltaColumn("integer"), "zip": DeltaColumn("string"), "note": DeltaColumn("string")}
READERS = {"id": "the key", "zip": "same_city"}


def refusal(**columns: DeltaColumn | None) -> str:
    """What is said of a version 7 that changes some columns."""
    now = {name: column for name, column in {**BEFORE, **columns}.items() if column is not None}
    with pytest.raises(StateError) as refused:
        refuse_changed_columns("/lake/t", READERS, BEFORE, [(7, now)])
    assert "--take-over" in str(refused.value.hint)
    return refused.value.message


@pytest.mark.parametrize(
    "columns",
    [
        {"note": None},
        {"note": DeltaColumn("long")},
        {"note": DeltaColumn("string", "col-1", partition=True)},
        {"more": DeltaColumn("string")},
        {"id": DeltaColumn("long")},
        {"zip": DeltaColumn("string", physical="zip")},  # column mapping is turned on
    ],
)
def test_changes_that_no_rule_cares_about_are_followed(columns: dict[str, DeltaColumn | None]):
    now = {name: column for name, column in {**BEFORE, **columns}.items() if column is not None}
    refuse_changed_columns("/lake/t", READERS, BEFORE, [(7, now), (8, BEFORE if "id" not in columns else now)])


def test_changes_of_a_column_that_is_read_are_refused_with_version_and_reader():
    assert refusal(zip=None) == "version 7 of /lake/t drops the column zip, which is read by same_city"
    assert refusal(id=DeltaColumn("short")) == (
        "version 7 of /lake/t changes the column id from int to smallint; it is read by the key"
    )
    assert "from string to bigint" in refusal(zip=DeltaColumn("long"))
    assert "gives the name zip to another column" in refusal(zip=DeltaColumn("string", physical="col-2"))
    assert "partitions the table differently by zip" in refusal(zip=DeltaColumn("string", partition=True))


def test_a_wider_column_that_is_narrowed_later_is_refused_at_the_second_version():
    wide = {**BEFORE, "id": DeltaColumn("long")}
    with pytest.raises(StateError, match="version 9 of t changes the column id from bigint to int"):
        refuse_changed_columns("t", READERS, BEFORE, [(8, wide), (9, BEFORE)])


def test_schemas_are_found_in_the_log_but_for_those_that_no_row_was_written_in(tmp_path: Path):
    path = str(tmp_path / "table")
    rows = pa.table({"id": pa.array([1], pa.int32()), "note": ["x"]})
    write_deltalake(path, rows)
    write_deltalake(path, rows, mode="append")
    wide = pa.table({"id": pa.array([1], pa.int64()), "more": ["x"]})
    write_deltalake(path, wide, mode="overwrite", schema_mode="overwrite", partition_by=["more"])
    log = TableLog(locate(path))
    assert log.first == 0
    assert [version for version, _ in log.commits(0, 1)] == [1]
    found = dict(schema_changes(log.commits(0, 100)))
    assert found == {2: {"id": DeltaColumn("long"), "more": DeltaColumn("string", partition=True)}}

    commits = [(version, list(lines)) for version, lines in log.commits(-1, 100)]
    (_, first), (_, second), (_, third) = commits
    metadata = [line for line in first if "metaData" in line]
    assert [version for version, _ in schema_changes([(5, metadata), (6, third)])] == [6], "version 5 has no row"
    assert [version for version, _ in schema_changes([(5, metadata), (6, second)])] == [5]


def test_another_jobs_checkpoint_is_named_as_such():
    refuse_other_table("/lake/b", "2", {"table": "2", "where": "/lake/a"})  # it has moved
    with pytest.raises(StateError) as other:
        refuse_other_table("/lake/b", "2", {"table": "1", "where": "/lake/a"})
    assert other.value.message == (
        "the checkpoint belongs to another job: it follows the table /lake/a, this job reads /lake/b"
    )
    with pytest.raises(StateError, match="the table /lake/b was deleted and created again"):
        refuse_other_table("/lake/b", "2", {"table": "1", "where": "/lake/b"})
    with pytest.raises(StateError, match="no longer has the versions 3 to 6"):
        refuse_lost_versions("t", {"version": 2}, 7)
    refuse_lost_versions("t", {"version": 6}, 7)
