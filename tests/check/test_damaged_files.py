"""Damaged and odd files: every outcome is a table, or an error of ours with its place and what to do.

Catches: an exception of Arrow, `csv` or `deltalake` that reaches the user as a traceback; a value of a row in an error.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.check.test_readers import WRITERS
from weever_stream.check import check
from weever_stream.check.readers import Wanted, read_batches, read_names, read_schema, read_table
from weever_stream.check.sources import find_files
from weever_stream.errors import DataError, WeeverError
from weever_stream.rules import fd

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
SUFFIXES = [".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".csv.gz", ".jsonl.gz", ".arrow.gz", ".csv.zst"]


def read_somehow(path: Path) -> None:
    """Reads a path in every way. All that may be raised is an error of ours that says what to do, and shows no value."""
    wanted = Wanted(frozenset({"zip", "city", "n"}))
    ways: list[Callable[[], object]] = [
        lambda: read_names(find_files([path])),
        lambda: read_schema(path),
        lambda: read_table(find_files([path]), wanted).validate(full=True),
        lambda: [piece.validate(full=True) for piece in read_batches(find_files([path]), wanted, 7)],
        lambda: check(fd("zip", "city", name="r"), path, mode="count"),
    ]
    for way in ways:
        error = outcome(way)
        if error is not None:
            assert not isinstance(error, DataError) or error.hint or error.place, error
            assert "PRIVATE" not in error.render()
            assert len(error.render()) < 5000


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
