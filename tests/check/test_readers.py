"""Every format gives the same table; every flaw of the data is an error with its place, and shows no value."""

from __future__ import annotations

import gzip
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from weever_stream.check import check
from weever_stream.check.engine import MODES
from weever_stream.check.readers import Wanted, read_schema, read_table
from weever_stream.check.report import Mode
from weever_stream.check.sources import find_files
from weever_stream.errors import DataError
from weever_stream.rules import ColumnType, fd, parse_rule, unique
from weever_stream.rules.types import type_of_name

TABLE = pa.table({"zip": ["01", "01", "02", None], "city": ["a", "b", "c", ""], "n": [1, 2, 3, 2**63 - 1]})
RULE = fd("zip", "city", name="zip_determines_city")


def read(path: Path | str, *columns: str, **types: str) -> pa.Table:
    kinds = {name: ColumnType(kind) for name, kind in types.items()}
    return read_table(find_files([path]), Wanted(frozenset(columns), kinds))


def problem(path: Path | str, *columns: str, **types: str) -> str:
    with pytest.raises(DataError) as caught:
        read(path, *columns, **types)
    return caught.value.render().replace(str(path), "DATA")


def write_json(table: pa.Table, path: Path) -> None:
    import json

    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def write_delta(table: pa.Table, path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(path), table)


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "rows.parquet": pq.write_table,
    "rows.csv": arrow_csv.write_csv,
    "rows.jsonl": write_json,
    "rows.feather": feather.write_feather,
    "rows.arrow": write_stream,
    "delta": write_delta,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_answer(tmp_path: Path, name: str) -> None:
    WRITERS[name](TABLE, tmp_path / name)
    report = check(RULE, tmp_path / name, limit=5)
    assert (report.rows, report.results[0].violations, report.results[0].rows_involved) == (4, 1, 2)
    names = read_schema(tmp_path / name).names
    assert names == ["zip", "city", "n"]
    assert read(tmp_path / name, "n")["n"].to_pylist()[-1] == 2**63 - 1


def test_only_the_wanted_columns_are_read(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(TABLE, tmp_path / name)
        assert read(tmp_path / name, "city", "absent").column_names == ["city"]


def test_globs_folders_and_several_files_are_read_in_order(tmp_path: Path) -> None:
    for i in (2, 0, 1):
        pq.write_table(pa.table({"k": [i * 2, i * 2 + 1]}), tmp_path / f"part-{i}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").touch()
    expected = [0, 1, 2, 3, 4, 5]
    for given in ([tmp_path], [f"{tmp_path}/part-*.parquet"], sorted(tmp_path.glob("part-*.parquet"))):
        assert read_table(find_files(list(given)), Wanted(frozenset("k")))["k"].to_pylist() == expected


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "part.parquet")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "again").symlink_to(tmp_path)
    assert read(tmp_path, "k")["k"].to_pylist() == [1]


def test_columns_named_by_folders_are_read(tmp_path: Path) -> None:
    for state in ("CA", "NY"):
        (tmp_path / f"state={state}").mkdir()
        pq.write_table(pa.table({"k": [1]}), tmp_path / f"state={state}" / "part.parquet")
    report = check(unique(["state", "k"]), tmp_path)
    assert report.results[0].violations == 0
    assert check(unique(["k"]), tmp_path).results[0].violations == 1


def test_compressed_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'zip,city\n1,"a\nb"\n1,c\n'))
    assert read(path, "city")["city"].to_pylist() == ["a\nb", "c"]


def test_an_empty_field_is_null_and_a_quoted_one_is_the_empty_string(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('k,v\n1,\n2,""\n3,NA\n')
    assert read(path, "v")["v"].to_pylist() == [None, "", "NA"]
    table = read_table(find_files([path]), Wanted(frozenset("v"), {}, ("NA",)))
    assert table["v"].to_pylist() == [None, "", None]


def test_blank_lines_are_nulls_only_where_there_is_one_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k\n1\n\n2\n")
    assert read(path, "k")["k"].to_pylist() == [1, None, 2]
    path.write_text("k,v\n1,2\n\n3,4\n\n")
    assert read(path, "k")["k"].to_pylist() == [1, 3]


def test_a_column_has_one_type_however_late_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n" + "1,2\n" * 300_000 + "x,2.5\n")
    table = read(path, "k", "v")
    assert (table.schema.field("k").type, table.schema.field("v").type) == (pa.string(), pa.float64())
    assert table["k"].to_pylist()[:1] == ["1"]


def test_whole_numbers_beyond_64_bits_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k\n92233720368547758070\n92233720368547758071\n+5\n")
    assert check(unique(["k"]), path).results[0].violations == 0
    assert read(path, "k")["k"].to_pylist() == [
        Decimal("92233720368547758070"),
        Decimal("92233720368547758071"),
        Decimal(5),
    ]


def test_whole_numbers_beyond_64_bits_stay_exact_in_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"k":92233720368547758070,"v":1e300}\n{"k":92233720368547758071,"v":1.5}\n')
    assert check(unique(["k"]), path).results[0].violations == 0
    assert read(path, "v")["v"].to_pylist() == [1e300, 1.5]


def test_types_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("zip,day,at\n01234,2024-02-29,9999-12-31 23:59:59.5\n")
    table = read(path, "zip", "day", "at", zip="string", day="date", at="timestamp_ntz")
    assert table.to_pylist() == [
        {"zip": "01234", "day": date(2024, 2, 29), "at": datetime(9999, 12, 31, 23, 59, 59, 500000)}
    ]
    pq.write_table(pa.table({"zip": [1, 2]}), tmp_path / "rows.parquet")
    assert read(tmp_path / "rows.parquet", "zip", zip="string")["zip"].to_pylist() == ["1", "2"]


def test_a_text_column_of_one_csv_file_is_text_in_all(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n007\n")
    (tmp_path / "b.csv").write_text("k\nx\n")
    assert read(tmp_path, "k")["k"].to_pylist() == ["007", "x"]


def test_a_header_without_rows_is_a_clean_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text in ("zip,city\n", "zip,city"):
        path.write_text(text)
        report = check(RULE, path)
        assert (report.rows, report.exit_code) == (0, 0)


def test_a_column_without_any_value_can_be_compared_with_anything(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,\n2,\n")
    from weever_stream.rules import parse_rule

    assert check(parse_rule("t.a < s.b and t.b > 3", name="nulls"), path).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "columns", "types", "message"),
    [
        ("rows.csv", b"", "k", {}, "DATA is empty\n  hint: a CSV file needs at least a line with the names of its columns"),
        ("rows.csv", b"k,v\n1,2\n3\n", "k", {},
         "DATA:3: the line has 1 field where the header has 2\n  hint: a value that holds the separator needs quotes"),
        ("rows.csv", b"k,v\n1,2\n3,4,5\n", "k", {},
         "DATA:3: the line has 3 fields where the header has 2\n  hint: a value that holds the separator needs quotes"),
        ("rows.csv", b"k,v\n1,2\nsecret,4\n", "k", {"k": "integer"},
         "DATA:3: column k: the value is not a bigint\n"
         "  hint: fix the value, name it with --null-value, or change the type under `columns:`"),
        ("rows.csv", b"k,k\n1,2\n", "k", {},
         "DATA:1: column k stands 2 times in the header\n  hint: give each column a name of its own"),
        ("rows.csv", b"k,v\n1,2\n\xff\xfe,4\n", "k", {},
         "DATA:3: the text is not UTF-8\n  hint: name its encoding: --encoding latin1; or convert it: iconv -f latin1 -t utf-8"),
        ("rows.jsonl", b"", "k", {}, "DATA is empty\n  hint: an empty table still needs its columns; or leave the file out"),
        ("rows.jsonl", b'{"k":1}\n{"k":"secret"}\n', "k", {},
         "DATA:2: column k is a number in earlier rows and a string here\n"
         "  hint: mend the value, or write the whole column as text"),
        ("rows.jsonl", b'{"k":1}\n{"k":\n', "k", {}, "DATA:2: the line is not JSON\n  hint: one object a line: JSON lines"),
        ("rows.jsonl", b"[1]\n", "k", {}, "DATA:1: the line is not a JSON object\n  hint: one object a line: JSON lines"),
        ("rows.parquet", b"PAR1 torn", "k", {},
         "DATA cannot be read as parquet: Parquet magic bytes not found in footer\n"
         "  hint: is it complete, and of this format?"),
        ("rows.parquet", b"", "k", {}, "DATA is empty\n  hint: an empty table still needs its columns; or leave the file out"),
        ("rows.arrow", b"ARROW1 torn", "k", {}, None),
        ("rows.xlsx", b"PK", "k", {},
         "DATA has an unknown format: unrecognized file extension\n"
         "  hint: CSV, TSV, Parquet, JSON lines, Arrow and Delta are read, recognized by the file extension"),
    ],
)  # fmt: skip
def test_a_flaw_is_told_with_its_place(
    tmp_path: Path, name: str, content: bytes, columns: str, types: dict[str, str], message: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    told = problem(path, columns, **types)
    assert "secret" not in told
    if message is None:
        assert told.startswith("DATA cannot be read as arrow: ")
    else:
        assert told == message


def test_a_broken_text_deep_in_a_csv_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"k,v\n" + b"a,b\n" * 400_000 + b"\xff,b\n")
    assert problem(path, "k") == (
        "DATA:400002: column k is not UTF-8 text\n  hint: name its encoding: --encoding latin1; or convert it: iconv -f latin1 -t utf-8"
    )


def test_paths_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    (tmp_path / "packages.csv").write_text("k\n1\n")
    assert problem(tmp_path / "package.csv", "k") == "there is no file DATA\n  hint: did you mean packages.csv?"
    assert problem(f"{tmp_path}/*.parquet", "k").startswith("no file matches DATA")
    (tmp_path / "empty").mkdir()
    assert problem(tmp_path / "empty", "k").startswith("the folder DATA holds no data")
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    assert problem(tmp_path, "k") == (
        "the data mixes formats: csv, parquet\n  hint: name the files of one format, with a glob"
    )


def test_files_that_do_not_fit_together_are_errors(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": ["x"]}), tmp_path / "b.parquet")
    assert "column k is of type int64 in" in problem(tmp_path, "k")
    pq.write_table(pa.table({"v": [1]}), tmp_path / "b.parquet")
    assert "has no column k, which other files have" in problem(tmp_path, "k")


def test_a_torn_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": np.arange(10_000)}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert problem(path, "k").startswith("DATA cannot be read as parquet")


def test_values_that_do_not_fit_a_given_type_are_named_by_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": ["1"] * 700 + ["secret"] + ["2"] * 50}), path)
    assert problem(path, "k", k="integer") == (
        "DATA: column k: the value in row 701 is not a bigint\n"
        "  hint: fix the value, or change the type under `columns:`"
    )


def test_frames_of_pandas_and_polars_are_data_too() -> None:
    import pandas as pd
    import polars as pl

    rows = {"zip": ["1", "1"], "city": ["a", "b"]}
    for frame in (pd.DataFrame(rows), pl.DataFrame(rows), pa.table(rows)):
        assert check(RULE, frame).results[0].violations == 1
    with pytest.raises(DataError, match="int is not data"):
        check(RULE, 7)


@pytest.mark.parametrize(
    ("rows", "key", "message"),
    [
        ({"id": [1, None, None], "zip": [1, 1, 1], "city": [1, 2, 3]}, ["id"],
         "the key column id is null in 2 rows, first in row 2\n"
         "  hint: mend the key, or remove `key:` to number the rows instead"),
        ({"id": [5, 7, 5, 7, 8], "zip": [1] * 5, "city": [1] * 5}, ["id"],
         "the key (id) is not unique: 2 values stand in more than one row, first in rows 1 and 3\n"
         "  hint: mend the key, or remove `key:` to number the rows instead"),
    ],
)  # fmt: skip
def test_a_key_must_name_every_row(rows: dict[str, list[object]], key: list[str], message: str) -> None:
    with pytest.raises(DataError) as caught:
        check(RULE, pa.table(rows), key=key)
    assert caught.value.render() == message


def test_folder_values_are_read_as_spark_wrote_them(tmp_path: Path) -> None:
    folder = tmp_path / "state=a%3Ab%20c"
    folder.mkdir()
    pq.write_table(pa.table({"k": [1]}), folder / "part.parquet")
    report = check(parse_rule("t.state = 'a:b c'", name="r"), tmp_path)
    assert report.results[0].violations == 1


def test_hexadecimal_numbers_are_text(tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("id,code,n\n1,0x1F,7\n2,31,8\n")
    rules = tmp_path / "rules.yaml"
    rules.write_text("table: ids\nkey: id\nrules:\n  - {name: code, unique: code}\n")
    assert [one.violations for one in check(str(rules), str(tmp_path / "ids.csv")).results] == [0]
    rules.write_text("table: ids\nkey: id\ncolumns: {code: bigint}\nrules:\n  - {name: code, unique: code}\n")
    with pytest.raises(DataError, match="column code: the value is not a bigint") as caught:
        check(str(rules), str(tmp_path / "ids.csv"))
    assert caught.value.place is not None
    assert caught.value.place.line == 2


def declared(path: Path, encoding: str = "utf-8", **types: str) -> pa.Table:
    kinds = {name: type_of_name(kind) for name, kind in types.items()}
    return read_table(find_files([path]), Wanted(frozenset(types), kinds, encoding=encoding))


def misfit(path: Path, **types: str) -> tuple[str, int | None]:
    with pytest.raises(DataError) as caught:
        declared(path, **types)
    return caught.value.message, caught.value.place.line if caught.value.place else None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp500", "iso2022_jp"])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('id,a\n1,"Joe\n2,Moe\n', 2),
        ('id,a\n1,"Joe \\""\n2,"Moe"\n', 2),
        ('id,a\n0,"x\ny"\n1,"Joe \\""\n2,Moe\n', 4),
        ('id,a\n1,"Joe"\n2,"Moe" x\n', 3),
        ('id,a\n1,"say "hi" twice"\n', 2),
        ('id,a\n1,"', 2),
    ],
)
def test_a_quote_that_swallows_rows_is_an_error(tmp_path: Path, encoding: str, content: str, line: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content.encode(encoding))
    with pytest.raises(
        DataError, match="a quote inside a quoted value is not doubled, or a quote is not closed"
    ) as caught:
        check(parse_rule("t.a = 'Moe'", name="r"), path, encoding=encoding)
    assert caught.value.place is not None
    assert caught.value.place.line == line


@pytest.mark.parametrize("piece", [3, 4, 5, 1 << 24])
def test_usual_quotes_are_read_without_a_second_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    from weever_stream.check import delimited

    monkeypatch.setattr(delimited, "_PIECE", piece)
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbf"id","a"\r\n1,"x ""y"", z"\r\n2,""\r\n3,""""\r\n4,"a\nb"')
    (file,) = find_files([path])
    assert not delimited._has_odd_quotes(file, "utf-8")
    assert read(path, "a")["a"].to_pylist() == ['x "y", z', "", '"', "a\nb"]
    path.write_bytes(b'id,a\n1,5" pipe\n2,6" pipe\n')
    assert read(path, "a")["a"].to_pylist() == ['5" pipe', '6" pipe']
    for odd in (b'id,a\n1,"x"y"\n', b'id,a\n1,"x', b'id,a\n1,"x"y,"z"\n'):
        path.write_bytes(odd)
        assert delimited._has_odd_quotes(file, "utf-8")


def test_hexadecimal_numbers_are_text_in_every_encoding(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for encoding in ("utf-16", "utf-16-le", "utf-32", "cp500"):
        path.write_bytes("id,code\n1,0x1F\n2,31\n".encode(encoding))
        assert check(unique(["code"]), path, encoding=encoding).results[0].violations == 0


def test_numbers_beyond_all_doubles_are_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,v,w\n1e400,1.5,inf\n1e500,-1e400,-Infinity\n,,\n")
    assert read(path, "k", "v", "w").to_pydict() == {
        "k": ["1e400", "1e500", None],
        "v": ["1.5", "-1e400", None],
        "w": [float("inf"), -float("inf"), None],
    }
    assert check(unique(["k"]), path).results[0].violations == 0
    assert misfit(path, k="double") == ("column k: the value is not a double", 2)
    assert misfit(path, v="double") == ("column v: the value is not a double", 3)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "+5", 5),
        ("int", "5.0", 5),
        ("uint64", ".0", 0),
        ("decimal(4,2)", "-.0", Decimal(0)),
        ("decimal(4,2)", "1.2300", Decimal("1.23")),
        ("boolean", "t", True),
        ("date", "2024-1-5", date(2024, 1, 5)),
        ("timestamp_ntz", "2024-1-5", datetime(2024, 1, 5)),
    ],
)
def test_declared_texts_are_read_as_in_a_stream(tmp_path: Path, kind: str, text: str, value: object) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f'id,k\n1,{text}\n2,"{text}"\n3,\n')
    assert declared(path, k=kind)["k"].to_pylist() == [value, value, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("double", " 1.5"),
        ("timestamp_ntz", "2024-01-05 10:00"),
        ("int", "0x1F"),
        ("int", '""'),
        ("decimal(4,2)", "1.239"),
    ],
)
def test_a_misfit_is_told_with_the_line_on_which_its_row_begins(tmp_path: Path, kind: str, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f'id,k\n\n"a\nb",\n1,{text}\n')
    assert misfit(path, k=kind) == (f"column k: the value is not a {type_of_name(kind)}", 5)
    path.write_text(f"k\n\n\n{text}\n")
    assert misfit(path, k=kind)[1] == 4


def test_declared_columns_of_json_are_read_from_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x":"2024-01-01"}\n{"x":null}\n{"y":1}\n')
    assert declared(path, x="date")["x"].to_pylist() == [date(2024, 1, 1), None, None]
    path.write_text('{"x":"2024-01-01T00:00:00Z"}\n{"x":"2024-01-01T00:00:00+02:00"}\n')
    moments = declared(path, x="timestamp")["x"]
    assert moments.cast(pa.timestamp("us")).to_pylist() == [datetime(2024, 1, 1), datetime(2023, 12, 31, 22)]
    assert declared(path, x="string")["x"].to_pylist() == ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00+02:00"]
    path.write_text('{"x":"2024-01-01T00:00:00"}\n')
    rules = tmp_path / "rules.yaml"
    rules.write_text("table: t\ncolumns: {x: string}\nrules:\n  - {name: r, deny: \"t.x = '2024-01-01T00:00:00'\"}\n")
    assert check(str(rules), path).results[0].violations == 1


def test_declared_decimals_of_json_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x":0.1}\n{"x":0.10000000000000000001}\n{"x":"7"}\n{"x":1e-3}\n{"x":null}\n')
    exact = [Decimal("0.1"), Decimal("0.10000000000000000001"), Decimal(7), Decimal("0.001"), None]
    assert declared(path, x="decimal(38,20)")["x"].to_pylist() == exact
    path.write_text('{"x":0.1}\n{"x":0.10000000000000000001}\n{"x":7}\n')
    assert misfit(path, x="decimal(38,2)")[0].endswith("column x: the value in row 2 is not a decimal(38,2)")
    path.write_text('{"x":0.100000}\n{"x":0.0}\n')
    assert declared(path, x="decimal(4,2)")["x"].to_pylist() == [Decimal("0.10"), Decimal(0)]
    path.write_text('{"x":1}\n{"x":100.5}\n')
    assert misfit(path, x="decimal(4,2)")[0].endswith("column x: the value in row 2 is not a decimal(4,2)")


def test_declared_columns_of_json_may_be_of_another_type_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x":5,"y":true}\n{"x":7,"y":false}\n')
    assert declared(path, x="string", y="string", z="string").to_pydict() == {"x": ["5", "7"], "y": ["true", "false"]}
    assert "cannot become a date without loss" in misfit(path, x="date")[0]
    path.write_text('{"x":"5"}\n{"x":7}\n')
    assert misfit(path, x="string") == ("column x is a string in earlier rows and a number here", 2)


def test_timestamps_of_json_keep_their_zone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for texts, kind in (
        (["2024-01-01T00:00:00+02:00", "2023-12-31 22:00:00"], pa.string()),
        (["2024-01-01T00:00:00+02:00", "2023-12-31 22:00:00Z"], pa.timestamp("us", "UTC")),
        (["2024-01-01T00:00:00", "2024-01-02"], pa.timestamp("s")),
        (["2024-01-01T00+02", "2024-01-02"], pa.string()),
    ):
        path.write_text("".join(f'{{"x":"{text}"}}\n' for text in texts) + '{"x":null}\n')
        assert read(path, "x").schema.field("x").type == kind


def test_declared_doubles_of_json_are_read_as_from_text(tmp_path: Path) -> None:
    beside, text = tmp_path / "rows.jsonl", tmp_path / "rows.csv"
    text.write_text("x\n9007199254740993\n")
    for other in ("1.0", "1.5", "1", "null"):
        beside.write_text(f'{{"x":9007199254740993}}\n{{"x":{other}}}\n')
        assert declared(beside, x="double")["x"][0] == declared(text, x="double")["x"][0]
    beside.write_text('{"x":"1.5"}\n{"x":"2"}\n')
    assert declared(beside, x="double")["x"].to_pylist() == [1.5, 2.0]


def united(folder: Path, *columns: pa.Array) -> pa.ChunkedArray:
    """A column that several Parquet files hold in parts."""
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"k": column}), folder / f"{number}.parquet")
    return read(folder, "k")["k"]


def test_decimals_and_doubles_of_several_files_are_written_alike(tmp_path: Path) -> None:
    cents = [Decimal(n) / 100 for n in range(1, 2000, 7)] + [Decimal("2.55"), None]
    doubles = [None if one is None else float(one) for one in cents]
    found = united(tmp_path, pa.array(cents, pa.decimal128(10, 2)), pa.array(doubles)).to_pylist()
    assert found == doubles + doubles
    halves = united(tmp_path, pa.array([Decimal("2.55")], pa.decimal128(10, 2)), pa.array([0.1], pa.float32()))
    assert halves.to_pylist() == [2.55, pa.scalar(0.1, pa.float32()).cast(pa.float64()).as_py()]


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (pa.array([2**63], pa.uint64()), pa.array([-1]), [2**63, -1]),
        (pa.array([2**60 + 1]), pa.array([Decimal("0.5")]), [2**60 + 1, Decimal("0.5")]),
        (pa.array(["x"]), pa.array(["y"]).dictionary_encode(), ["x", "y"]),
        (pa.array([time(1)], pa.time32("s")), pa.array([1], pa.time64("ns")), None),
        (pa.array([None]), pa.array(["y"]), [None, "y"]),
        (pa.array([[1]]), pa.array([[0.5]]), [[1.0], [0.5]]),
    ],
)
def test_columns_of_several_files_lose_nothing(
    tmp_path: Path, one: pa.Array, other: pa.Array, values: list[object] | None
) -> None:
    found = united(tmp_path, one, other)
    assert found.to_pylist() == values if values else found.cast(pa.int64()).to_pylist() == [3600 * 10**9, 1]


def test_instants_of_several_zones_are_one_column(tmp_path: Path) -> None:
    ticks = pa.array([0])
    kinds = (pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Rome"))
    found = united(tmp_path, *(ticks.cast(kind) for kind in kinds))
    assert found.cast(pa.int64()).to_pylist() == [0, 0]
    assert found.type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([2**53 + 1]), pa.array([0.5])),
        (pa.array([Decimal("0.1234567890123456789")]), pa.array([0.5])),
        (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC"))),
        (pa.array([10**12], pa.timestamp("s")), pa.array([0], pa.timestamp("ns"))),
        (pa.array([[1]]), pa.array(["x"])),
    ],
)
def test_columns_that_no_type_holds_are_errors(tmp_path: Path, one: pa.Array, other: pa.Array) -> None:
    with pytest.raises(DataError, match=r"column k is of type .*0\.parquet.*1\.parquet.*no type holds"):
        united(tmp_path, one, other)


def csv_files(folder: Path, *texts: str) -> pa.ChunkedArray:
    """A column that several CSV files hold in parts."""
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(f"k\n{text}\n")
    return read(folder, "k")["k"]


def test_long_whole_numbers_beside_fractions_in_csv_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column k is of type int64 .*no type holds"):
        csv_files(tmp_path, "9007199254740993", "0.5")


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (("2024-01-01 00:00:00", "2024-01-01 00:00:00.000"), [datetime(2024, 1, 1)] * 2),
        (("2024-01-01", "2024-01-01 00:00:00"), [datetime(2024, 1, 1)] * 2),
        (("1", "1.5"), [1.0, 1.5]),
        (("1", "x"), ["1", "x"]),
        (("1", "2024-01-01"), ["1", "2024-01-01"]),
        (("true", "2"), ["true", "2"]),
        (("", "1"), [1]),
    ],
)
def test_csv_files_are_read_like_one_file_with_all_lines(
    tmp_path: Path, texts: tuple[str, ...], values: list[object]
) -> None:
    found = csv_files(tmp_path, *texts)
    assert found.drop_null().to_pylist() == values
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "all.csv").write_text("\n".join(["k", *texts, ""]))
    assert read(tmp_path / "one", "k")["k"].drop_null().to_pylist() == values


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_misfit_has_one_row_number_in_every_mode(tmp_path: Path, in_memory: bool) -> None:
    rows = pa.table({"k": ["1"] * 70_000 + ["secret"] + ["1"] * 9})
    pq.write_table(rows, tmp_path / "rows.parquet")
    rules = tmp_path / "rules.yaml"
    rules.write_text("table: t\ncolumns: {k: bigint}\nrules:\n  - {name: r, deny: t.k != s.k}\n")
    for mode in MODES:
        with pytest.raises(DataError, match="column k: the value in row 70001 is not a bigint"):
            check(str(rules), rows if in_memory else tmp_path / "rows.parquet", mode=mode)


VIEWS = pa.array(["x", "x", None], pa.string_view())
ODD_FORMS = {
    "views": (VIEWS, 1),
    "dictionary of views": (pa.DictionaryArray.from_arrays(pa.array([0, 0, None], pa.int8()), VIEWS.slice(0, 1)), 1),
    "dictionary of nothing": (pa.DictionaryArray.from_arrays(pa.array([0, 0, None], pa.int8()), pa.nulls(1)), 0),
    "negative scale": (pa.array([Decimal(1200), Decimal(1200), None], pa.decimal128(8, -2)), 1),
    "dates in milliseconds": (pa.array([date(2024, 1, 1)] * 2 + [None], pa.date64()), 1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ODD_FORMS)
def test_odd_forms_of_columns_are_read(tmp_path: Path, name: str, mode: Mode) -> None:
    column, violations = ODD_FORMS[name]
    table = pa.table({"id": [1, 2, 3], "k": column})
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    for data in (table, tmp_path / "rows.arrow"):
        report = check("t.k = s.k and t.id != s.id", data, mode=mode, key="id")
        assert report.results[0].violations == violations
        assert report.to_arrow().num_rows == (0 if mode == "count" else violations)


def test_a_date_that_is_not_at_midnight_is_an_error() -> None:
    noon = pa.table({"k": pa.array([0, 86_400_000, 43_200_000]).view(pa.date64())})
    for mode in MODES:
        with pytest.raises(DataError, match="column k: the value in row 3 is not a date"):
            check("t.k = s.k", noon, mode=mode)


def test_an_empty_parquet_file_is_a_clean_table_in_every_mode(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 0), tmp_path / "rows.parquet")
    for mode in MODES:
        report = check(RULE, tmp_path / "rows.parquet", mode=mode)
        assert (report.rows, report.results[0].violations) == (0, 0)
