"""Files of changes: JSON lines, CSV and Parquet, streamed for real."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from weever_stream.check.readers import Wanted, read_table
from weever_stream.check.sources import find_files
from weever_stream.errors import DataError
from weever_stream.feeds import open_feed
from weever_stream.feeds.changes import BATCH_BYTES, DROP, DROP_ANYWHERE, PUT, PUT_ANYWHERE, REJECT
from weever_stream.feeds.files import reader_options
from weever_stream.job.options import FilesSource
from weever_stream.rules.types import ColumnType, type_of_name
from weever_stream.stream.failures import texts_of, told

COLUMNS = {"id": type_of_name("int"), "zip code": type_of_name("string"), "price": type_of_name("decimal(6,2)")}
KINDS = {
    "insert": PUT,
    "update_postimage": PUT,
    "update_preimage": DROP,
    "upsert": PUT_ANYWHERE,
    "delete": DROP_ANYWHERE,
}


def source(path, kind, **options):
    return FilesSource(kind="files", path=str(path), format=kind, options=options)


def streamed(spark, feed, names, folder):
    """All that is there, as one batch after the other writes it."""
    query = (
        feed.changes(names).writeStream.format("parquet").option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [row.asDict() for row in spark.read.parquet(str(folder / "out")).orderBy("_weever_sequence").collect()]


def test_a_batch_is_bounded_by_bytes_unless_the_user_says_otherwise(tmp_path):
    assert reader_options(source(tmp_path, "json"))["maxBytesPerTrigger"] == BATCH_BYTES
    for name in ("maxFilesPerTrigger", "maxBytesPerTrigger"):
        said = reader_options(source(tmp_path, "json", **{name: "7"}))
        assert {limit: said.get(limit) for limit in ("maxFilesPerTrigger", "maxBytesPerTrigger") if limit in said} == {
            name: "7"
        }


def test_lines_of_json_become_changes(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    feed = open_feed(spark, source(folder, "json"), ["id"], COLUMNS)
    lines = [
        {"id": i, "zip code": "0123", "price": 1.5, "_change_type": kind, "_commit_version": i}
        for i, kind in enumerate(KINDS)
    ]
    lines.append({"id": 9, "_change_type": "delete", "_commit_version": 5})
    text = "\n".join(map(json.dumps, lines)) + "\n\n  \r\n"
    bad = [
        ("{broken", "the line is not one JSON document with names given once"),
        ("[1]", "the line is not a JSON object"),
        ('{"id": 1, "_change_type": "merge", "_commit_version": 1}', "_change_type is none of "),
        ('{"id": 1, "_commit_version": 1}', "_change_type is none of "),
        ('{"id": 1, "_change_type": "insert"}', "_commit_version is missing or not a whole number"),
        ('{"id": 1, "_change_type": "insert", "_commit_version": 1.5}', "_commit_version is missing or not"),
        ('{"id": 1, "_change_type": "insert", "_commit_version": -1}', "the sequence is negative or too large"),
        ('{"id": 1, "_change_type": "insert", "_commit_version": 4611686018427387904}', "the sequence is negative"),
        ('{"price": 1, "_change_type": "insert", "_commit_version": 1}', "key column id is null or missing"),
        ('{"id": 1, "price": 1.234, "_change_type": "insert", "_commit_version": 1}', "column price: the value is not"),
    ]
    (folder / "a b.json").write_text(text + "\n".join(line for line, _ in bad))
    rows = streamed(spark, feed, ["id", "zip code", "price"], tmp_path)
    good = [row for row in rows if row["_weever_change"] != REJECT]
    assert [(row["id"], row["_weever_change"]) for row in good] == [*enumerate(KINDS.values()), (9, DROP_ANYWHERE)]
    assert [row["zip code"] for row in good] == ["0123"] * 5 + [None]
    rejects = {row["_weever_record"]: row for row in rows if row["_weever_change"] == REJECT}
    assert all(rejects[line]["_weever_reason"].startswith(reason) for line, reason in bad)
    assert len(rejects) == len(bad)
    assert {json.loads(row["_weever_origin"])["file"].rpartition("/")[2] for row in rejects.values()} == {"a%20b.json"}


def test_cells_of_csv_become_changes_by_their_header(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text(
        '_commit_version,zip code,id,more,_change_type,price\n'
        '1,0123,1,x,insert,1.50\n'
        '2,,2,"a\nb",upsert,\n'
    )  # fmt: skip
    (folder / "2.csv").write_text(
        "_commit_version,zip code,id,more,_change_type,price\n3,,3,,delete,\n4,x,4,x\n5,x,5,x,insert,1,2\n6,x,a,x,insert,1\n"
    )
    feed = open_feed(spark, source(folder, "csv"), ["id"], COLUMNS)
    assert set(feed.schema) == set(COLUMNS)
    rows = streamed(spark, feed, ["id", "zip code"], tmp_path)
    by_id = {row["id"]: row for row in rows if row["_weever_change"] != REJECT}
    assert {key: (row["_weever_change"], row["zip code"]) for key, row in by_id.items()} == {
        1: (PUT, "0123"), 2: (PUT_ANYWHERE, None), 3: (DROP_ANYWHERE, None),
    }  # fmt: skip
    rejects = sorted(row["_weever_reason"] for row in rows if row["_weever_change"] == REJECT)
    assert rejects == [
        "column id: the value is not a bigint",
        *["the line has more or fewer cells than the header"] * 2,
    ]
    assert {row["_weever_record"] for row in rows} == {None, "4,x,4,x", "5,x,5,x,insert,1,2", "6,x,a,x,insert,1"}


def test_a_header_with_a_reserved_name_is_refused(spark, tmp_path):
    (tmp_path / "1.csv").write_text("_commit_version,id,_weever_misread,_change_type\n1,1,x,insert\n")
    with pytest.raises(DataError, match="a column cannot be named _weever_misread"):
        open_feed(spark, source(tmp_path, "csv"), ["id"], {"id": COLUMNS["id"]})


def test_a_csv_file_with_another_header_stops_the_stream(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("id,zip code,price,_change_type,_commit_version\n1,a,1,insert,1\n")
    feed = open_feed(spark, source(folder, "csv"), ["id"], COLUMNS)
    (folder / "2.csv").write_text("zip code,id,price,_change_type,_commit_version\na,1,1,insert,1\n")
    with pytest.raises(Exception, match=r"2\.csv") as raised:
        streamed(spark, feed, ["id"], tmp_path)
    assert re.search(r"the CSV file \S+/2\.csv has another header", told(texts_of(raised.value)).message)


TEXTS = [
    'Joe "X"', 'Joe "X", Inc', '"X" y', '"', '""', 'a""', "a\nb", "a\n\nb,c", " a ", " ", "", None, "\t", "5\" pipe", "C:\\",
    "C:\\,x", "#a", "NULL", "NA", "'", "é €",
]  # fmt: skip


def test_run_and_check_agree_on_what_pandas_duckdb_and_spark_write(spark, tmp_path):
    import duckdb
    import pandas as pd

    folder, out = tmp_path / "in", tmp_path / "by_spark"
    folder.mkdir()
    rows = [(at, text, "insert", at) for at, text in enumerate(TEXTS)]
    header = ["id", "s", "_change_type", "_commit_version"]
    pd.DataFrame(rows, columns=header).to_csv(folder / "pandas.csv", index=False)
    duckdb.from_arrow(
        pa.table(dict(zip(header, zip(*((100 + at, *rest) for at, *rest in rows), strict=True), strict=True)))
    ).write_csv(str(folder / "duckdb.csv"))
    given = spark.createDataFrame(
        [(200 + at, *rest) for at, *rest in rows], "id int, s string, _change_type string, _commit_version int"
    )
    writer = (
        given.coalesce(1).write.option("ignoreLeadingWhiteSpace", "false").option("ignoreTrailingWhiteSpace", "false")
    )
    writer.option("escape", '"').csv(str(out), header=True)
    next(out.glob("*.csv")).rename(folder / "spark.csv")
    types = {"id": type_of_name("int"), "s": type_of_name("string")}
    ran = streamed(spark, open_feed(spark, source(folder, "csv"), ["id"], types), ["id", "s"], tmp_path)
    assert {row["_weever_reason"] for row in ran} == {None}
    checked = read_table(find_files([folder]), Wanted(frozenset(types), types)).to_pylist()
    assert {row["id"]: row["s"] for row in ran} == {row["id"]: row["s"] for row in checked}
    for start, lost in ((0, {"": None}), (100, {}), (200, {})):  # pandas writes an empty text as it writes a null
        assert [row["s"] for row in sorted(checked, key=lambda row: row["id"]) if start <= row["id"] < start + 100] == [
            lost.get(text, text) for text in TEXTS
        ]


def test_quotes_that_are_not_doubled_stop_the_stream_unless_their_escape_is_named(spark, tmp_path):
    rows = [(1, 'Joe "X"', "insert", 1), (2, "C:\\,x", "insert", 2)]
    given = spark.createDataFrame(rows, "id int, s string, _change_type string, _commit_version int")
    given.coalesce(1).write.csv(str(tmp_path / "in"), header=True)
    types = {"id": type_of_name("int"), "s": type_of_name("string")}
    (tmp_path / "refused").mkdir()
    with pytest.raises(Exception, match="FAILED_READ_FILE") as raised:
        streamed(
            spark, open_feed(spark, source(tmp_path / "in", "csv"), ["id"], types), ["id", "s"], tmp_path / "refused"
        )
    error = told(texts_of(raised.value))
    assert re.search(r"the CSV file \S+\.csv cannot be read: a quote inside a quoted value", error.message)
    assert "escape: '\\'" in (error.hint or "")
    assert "Joe" not in error.render()
    with pytest.raises(DataError, match=r"csv:2: a quote inside a quoted value is not doubled"):
        read_table(find_files([tmp_path / "in"]), Wanted(frozenset(types), types))
    feed = open_feed(spark, source(tmp_path / "in", "csv", escape="\\"), ["id"], types)
    assert [row["s"] for row in streamed(spark, feed, ["id", "s"], tmp_path)] == [text for _, text, *_ in rows]


def test_csv_that_cannot_be_read_for_sure_is_rejected_or_refused(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    types = {"id": type_of_name("int"), "s": type_of_name("string")}
    for header, said in ((b",id,s", "a column without a name"), (b"id,s,S", "more than one column s")):
        (folder / "1.csv").write_bytes(header + b",_change_type,_commit_version\n")
        with pytest.raises(DataError, match=said):
            open_feed(spark, source(folder, "csv"), ["id"], types)
    (folder / "1.csv").write_bytes(
        b"\xef\xbb\xbfid,_change_type,_commit_version,s\n1,insert,1,\xff\n2,insert,2,b\r\n3,insert,3,c\n\n4,insert,4,d"
    )
    rows = streamed(spark, open_feed(spark, source(folder, "csv"), ["id"], types), ["id", "s"], tmp_path)
    assert [(row["id"], row["_weever_reason"]) for row in rows] == [
        (1, "column s: the text is not UTF-8"),
        (2, "the line does not end as the header does: CR LF and LF"),
        (3, None),
        (4, None),
    ]


def test_parquet_keeps_its_types_and_takes_declared_ones(spark, tmp_path):
    folder, names = tmp_path / "in", ["id", "a.b", "price", "file"]
    frame = spark.sql(
        "select 1 id, 'x' `a.b`, cast(1.25 as double) price, 'f' file, 'insert' _change_type, 7L _commit_version "
        "union all select 2, 'y', 1.239, 'f', 'delete', 8L union all select 3, 'y', 1.239, 'f', 'insert', 9L"
    )
    frame.coalesce(1).write.parquet(str(folder))
    feed = open_feed(spark, source(folder, "parquet"), ["id"], {"price": type_of_name("decimal(6,2)")})
    wider = "select 5000000000 id, 'x' `a.b`, 1.25D price, 'f' file, 'insert' _change_type, 10L _commit_version"
    spark.sql(wider).write.mode("append").parquet(str(folder))
    assert feed.schema == {
        "id": ColumnType("integer"), "a.b": ColumnType("string"), "price": ColumnType("decimal", 6, 2),
        "file": ColumnType("string"),
    }  # fmt: skip
    rows = streamed(spark, feed, names, tmp_path)
    assert [(row["id"], row["a.b"], row["_weever_change"]) for row in rows] == [
        (1, "x", PUT), (2, "y", DROP_ANYWHERE), (3, "y", REJECT), (5000000000, "x", PUT),
    ]  # fmt: skip
    assert rows[2]["_weever_reason"] == "column price: the value is not a decimal(6,2)"
    assert json.loads(rows[2]["_weever_origin"])["file"].endswith(".parquet")
    assert json.loads(rows[2]["_weever_origin"])["row"] == 3


def test_a_broken_parquet_file_stops_the_stream_and_is_named(spark, tmp_path):
    folder = tmp_path / "in"
    spark.sql("select 1 id, 'insert' _change_type, 7L _commit_version").write.parquet(str(folder))
    feed = open_feed(spark, source(folder, "parquet"), ["id"], {})
    (folder / "broken.parquet").write_bytes(b"PAR1 no footer")
    with pytest.raises(Exception, match=r"broken\.parquet"):
        streamed(spark, feed, ["id"], tmp_path)


def test_a_folder_that_tells_nothing_is_refused(spark, tmp_path):
    for kind in ("json", "csv", "parquet"):
        with pytest.raises(DataError, match="nothing tells the columns"):
            open_feed(spark, source(tmp_path, kind), ["id"], {})
    with pytest.raises(DataError, match="there is no folder"):
        open_feed(spark, source(tmp_path / "none", "json"), ["id"], COLUMNS)


def test_files_without_versions_are_refused(spark, tmp_path):
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text("id,zip code,price,_change_type\n1,2,3,insert\n")
    for kind in ("json", "csv"):
        with pytest.raises(DataError, match="_commit_version"):
            open_feed(spark, source(tmp_path / kind, kind), ["id"], COLUMNS)


def test_columns_that_are_not_there_are_refused_by_name(spark, tmp_path):
    feed = open_feed(spark, source(tmp_path, "json"), ["id"], COLUMNS)
    with pytest.raises(DataError, match="has no column zipcode") as error:
        feed.changes(["zipcode"])
    assert "zip code" in (error.value.hint or "")
    with pytest.raises(DataError, match="has no column key"):
        open_feed(spark, source(tmp_path, "json"), ["key"], COLUMNS)
