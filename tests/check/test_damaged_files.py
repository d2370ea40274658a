"""Damaged and odd files: every outcome is a table, or an error of ours with its place and what to do.

Catches: an exception of Arrow, `csv` or `deltalake` that reaches the user as a traceback; a value of a row in an error.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from tests.check.test_readers import WRITERS
from weever_stream import Detector, discover
from weever_stream.check import check
from weever_stream.check.engine import MODES
from weever_stream.check.readers import Wanted, read_batches, read_names, read_schema, read_table
from weever_stream.check.report import Mode
from weever_stream.check.sources import find_files
from weever_stream.errors import DataError, WeeverError
from weever_stream.learn import Learner
from weever_stream.rules import RuleFile, fd, read_rules_text

TABLE = pa.table(
    {
        "zip": ["01", "01", 'PRIVATE "q"', None, "PRIVATE,x"] * 20,
        "city": ["a", "b", "c\nd", "", "é"] * 20,
        "n": [1, 2, 3, 2**63 - 1, None] * 20,
    }
)
ODD = [
    b"", b"\n", b"\n\n\n", b'"', b'"""', b'"zip', b'"zip"x,city\n1,2\n', b"zip,city", b"zip,city\n", b"zip,city\r", b",\n,\n",
    b"zip,zip\n1,2\n", b'zip,city\n"1,2\n3,4\n', b'zip,city\n1,"a"b\n', b"zip,city\n1\n1,2,3\n", b"\xef\xbb\xbfzip,city\n1,2\n",
    b"\xff\xfez\x00i\x00p\x00", b"\x00" * 100, b"zip\x00,city\n1,2\n", b"zip,city\n\x00,\x00\n", b'"' + b"x" * 200_000,
    b"zip,city\n" + b'"' + b"x" * 200_000, b"{", b"{}", b"[]", b"null", b" null\n", b'{"zip":1}\nnull\n', b'{"zip":1}null', b'{"zip":"} null"}', b"1", b'{"zip":', b'{"zip":1}\n{"zip":{"a":1}}\n',
    b'{"zip":1,"zip":2}', b'{"zip":[1]}\n{"zip":null}', b'{"zip":1e999}', b'{"zip":"\\ud800"}', b'{"":1}', b"\xff\xff",
    b'{"zip":' + b"[" * 2000, b'{"zip":99999999999999999999999999999999999999999999}', b'{"zip":1}{"zip":2}', b'{"zip":1} x',
    b"PAR1", b"PAR1PAR1", b"PAR1\x00\x00\x00\x00PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"ARROW1", b"ARROW1\x00\x00" * 4,
    b"\xff\xff\xff\xff\x10\x00\x00\x00", b"\xff\xff\xff\xff\xff\xff\xff\x7f",
]  # fmt: skip
ENCODINGS = ["latin-1", "utf-8-sig", "utf-16", "utf-7", "shift_jis", "idna", "punycode", "cp037", "unicode_escape"]
SUFFIXES = [".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".csv.gz", ".jsonl.gz", ".arrow.gz", ".csv.zst"]


def read_somehow(path: Path) -> None:
    """Reads a path in every way. All that may be raised is an error of ours that says what to do, and shows no value."""
    wanted = Wanted(frozenset({"zip", "city", "n"}))
    ways: list[Callable[[], object]] = [
        lambda: read_names(find_files([path])),
        lambda: read_schema(path),
        lambda: read_table(find_files([path]), wanted).validate(full=True),
        lambda: [piece.validate(full=True) for piece in read_batches(find_files([path]), wanted, 7)],
        *(partial(checked, path, mode) for mode in MODES),
    ]
    if path.suffix in (".csv", ".tsv"):
        ways += [partial(checked, path, "list", encoding) for encoding in ENCODINGS]
    for way in ways:
        error = outcome(way)
        if error is not None:
            assert not isinstance(error, DataError) or error.hint or error.place, error
            assert "PRIVATE" not in error.render()
            assert len(error.render()) < 5000


def checked(path: Path, mode: Mode, encoding: str | None = None) -> None:
    """Checks a rule, and lists what violates it."""
    check(fd("zip", "city", name="r"), path, mode=mode, encoding=encoding).to_arrow()


def outcome(way: Callable[[], object]) -> WeeverError | None:
    try:
        way()
    except WeeverError as error:
        return error
    return None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_odd_files_are_tables_or_errors(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    for content in ODD:
        path.write_bytes(content)
        read_somehow(path)


def damaged(content: bytes, drawn: random.Random) -> bytes:
    at, changed = drawn.randrange(len(content)), bytearray(content)
    kind = drawn.choice(["flip", "cut", "insert", "zeros", "twice", "quote"])
    if kind == "cut":
        return content[:at]
    if kind == "insert":
        return content[:at] + drawn.randbytes(drawn.randrange(1, 9)) + content[at:]
    if kind == "twice":
        return content[:at] + content[at // 2 :]
    if kind == "quote":
        return content[:at] + drawn.choice([b'"', b",", b"\n", b"\\", b"{"]) + content[at:]
    for place in range(at, min(len(content), at + drawn.randrange(1, 5))):
        changed[place] = 0 if kind == "zeros" else drawn.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "delta"])
def test_damaged_files_are_tables_or_errors(tmp_path: Path, name: str) -> None:
    path, drawn = tmp_path / name, random.Random(28)
    WRITERS[name](TABLE, path)
    content = path.read_bytes()
    for _ in range(60):
        path.write_bytes(damaged(content, drawn))
        read_somehow(path)


def test_damaged_delta_tables_are_tables_or_errors(tmp_path: Path) -> None:
    whole, table, drawn = tmp_path / "whole", tmp_path / "table", random.Random(28)
    WRITERS["delta"](TABLE, whole)
    for number in range(24):
        shutil.copytree(whole, table)
        paths = sorted(path for path in table.rglob("*") if path.is_file())
        path = paths[number % len(paths)]
        if number < 2 * len(paths):
            path.write_bytes(b"") if number < len(paths) else path.unlink()
        else:
            path.write_bytes(damaged(path.read_bytes(), drawn))
        read_somehow(table)
        shutil.rmtree(table)


@pytest.mark.parametrize("encoding", [*ENCODINGS, "utf-16-le", "utf-16-be", "utf-32", "undefined", "hex", "no such"])
@pytest.mark.parametrize("written", ["utf-8", "utf-16", "utf-16-le", "utf-32-be", "cp037"])
def test_any_encoding_gives_a_table_or_an_error(tmp_path: Path, written: str, encoding: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes('zip,city\n"01",a\n01,b\n'.encode(written))
    for mode in MODES:
        outcome(partial(checked, path, mode, encoding))
    if written == "utf-16-le" and encoding == "utf-16":
        error = outcome(partial(checked, path, "list", encoding))
        assert error
        assert "utf-16-le" in error.render()


def odd_column(drawn: random.Random, rows: int) -> pa.Array:
    """A column of some type, in a form that few functions of Arrow know."""

    def some(*values: object) -> list[object]:
        return [drawn.choice([None, *values]) for _ in range(rows)]

    days, moments = (date(2024, 1, 1), date(1, 1, 1)), (datetime(2024, 1, 1), datetime(2000, 1, 1))
    numbers, texts = (Decimal("1.5"), Decimal("2.50")), ("a", "b", "PRIVATE")
    kinds: list[tuple[tuple[object, ...], list[pa.DataType]]] = [
        ((1, 2, 2**40), [pa.int64(), pa.uint64()]),
        (texts, [pa.string(), pa.large_string(), pa.string_view()]),
        ((1.5, float("nan"), float("inf")), [pa.float64(), pa.float32()]),
        (numbers, [pa.decimal128(10, 2), pa.decimal256(70, 10), pa.decimal128(38, 2)]),
        ((Decimal(1200), Decimal(0)), [pa.decimal128(8, -2)]),
        (days, [pa.date32(), pa.date64()]),
        (moments, [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.timestamp("ms", "+05:30")]),
        ((time(1), time(2)), [pa.time64("us"), pa.time32("s"), pa.time64("ns")]),
        ((True, False), [pa.bool_()]),
        (([1], []), [pa.list_(pa.int64())]),
        ((b"a", b"PRIVATE"), [pa.binary()]),
        ((), [pa.null()]),
    ]
    values, types = drawn.choice(kinds)
    column = pa.array(some(*values), drawn.choice(types))
    form = drawn.random()
    if pa.types.is_date64(column.type) and form < 0.5:
        return pa.array(some(1, 86_400_000), pa.int64()).view(pa.date64())
    if form < 0.3 and not pa.types.is_nested(column.type):
        return pa.DictionaryArray.from_arrays(pa.array(some(0, 1), pa.int8()), column.slice(0, 2))
    return column


def odd_table(drawn: random.Random) -> pa.Table:
    rows, names = drawn.choice([0, 2, 5, 9]), drawn.choice([["zip", "city"]] * 4 + [["zip", "city", "city"]])
    return pa.Table.from_arrays([odd_column(drawn, max(2, rows)).slice(0, rows) for _ in names], names)


def listed(rules: RuleFile, data: object, mode: Mode) -> None:
    check(rules, data, mode=mode).to_arrow()


DECLARED = [
    "{}", "{zip: string, city: double}", "{zip: timestamp, city: 'decimal(10,2)'}", "{zip: date, city: bigint}",
    "{zip: boolean, city: time}", "{zip: uint64, city: timestamp_ntz}",
]  # fmt: skip


@pytest.mark.parametrize("declared", DECLARED)
def test_odd_columns_are_tables_or_errors(tmp_path: Path, declared: str) -> None:
    drawn = random.Random(28)
    rules = read_rules_text(
        f"table: t\ncolumns: {declared}\nrules:\n"
        "  - {name: r, deny: t.zip = s.zip and t.city != s.city}\n  - {name: q, deny: t.city < s.city}\n"
    )
    for _ in range(120):
        one, other = odd_table(drawn), odd_table(drawn)
        for number, table in enumerate((one, other)):
            path = tmp_path / f"{number}.arrow"
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
        for data, mode in product((one, tmp_path / "0.arrow", tmp_path), MODES):
            error = outcome(partial(listed, rules, data, mode))
            assert error is None or "PRIVATE" not in error.render()
        outcome(partial(Detector(rules).insert, one))
        outcome(partial(discover, one, seconds=0.2))
        outcome(partial(Learner, one))
