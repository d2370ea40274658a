"""CSV and TSV files: whole columns with one type each, and every flaw with its line.

An empty unquoted field is null, a quoted one is the empty string. A column's type is what fits all of its values, not
those of a first block: number, date, timestamp, boolean, else text. Text is UTF-8 unless another encoding is named.
Whole numbers beyond 64 bits stay exact (as decimals of up to 38 digits), because as doubles two different ids could
become equal. Columns of a declared type are read as text first, and then as a stream reads them (`index.spelling`).
Cost: one parallel pass; a second one only to find the line of an error or to read a wide column again.
"""

from __future__ import annotations

import codecs
import csv
import io
import mmap
import re
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from weever_stream.errors import DataError, Place
from weever_stream.index.plain import first_misfit
from weever_stream.index.spelling import NOT_FINITE, read_texts
from weever_stream.rules.types import ColumnType
from weever_stream.storage import reason_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from weever_stream.check.sources import DataFile

__all__ = ["TEXT", "UTF8", "beyond_doubles", "known_encoding", "read_delimited", "read_header"]

TEXT = ColumnType("string")
UTF8 = "utf-8"
_FIRST = 1 << 20
_PIECE = 1 << 24
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_EXACT = 2**53
"""Whole numbers up to here are exact as doubles."""
_CELL = re.compile(r"In CSV column #(\d+):(?: Row #(\d+):)?")
_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_HEXADECIMAL = r"^\s*[+-]?0[xX]"
_WHOLE = r"^\s*[+-]?\d{1,38}\s*$"


def known_encoding(name: str | None) -> str:
    """The name by which Python and Arrow know an encoding of text; UTF-8 for none. Raises `DataError`."""
    try:
        found = codecs.lookup(name or UTF8).name
        "".encode(found)
        if found.endswith("unicode-escape"):
            raise LookupError(found)  # text of Python programs
        bytes(range(256)).decode(found, "replace")  # some, as idna, cannot read on after a flaw
        codecs.getincrementaldecoder(found)
    except (LookupError, ValueError):
        raise DataError(
            f"{str(name)[:40]!r} is no encoding of text", hint="names are those of Python: latin-1, cp1252, utf-16"
        ) from None
    return found


def read_header(file: DataFile, encoding: str = UTF8) -> list[str]:
    """The names of a file's columns. Raises `DataError` for a file without any."""
    try:
        with file.location.open_stream() as stream:
            start = stream.read(_FIRST)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{file} cannot be read: {reason_of(error)}", hint="is it complete and of this format?"
        ) from None
    if not start.strip():
        raise DataError(f"{file} is empty", hint="a CSV file needs at least a line with the names of its columns")
    try:
        marked = "utf-8-sig" if encoding == UTF8 else encoding
        text = start.decode(marked, "strict" if len(start) < _FIRST else "ignore")
    except UnicodeError as error:
        line = start[: getattr(error, "start", 0)].count(b"\n") + 1
        if encoding != UTF8:
            raise _not_encoded(file, encoding, line) from None
        raise _not_utf8(file, line, utf16=start[:2] in _UTF16) from None
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(file), strict=True))
    except (csv.Error, StopIteration):
        raise DataError(
            "a quote in the header is not closed, or not doubled",
            place=Place(file=str(file), line=1),
            hint="put quotes around the whole name, and double those inside it",
        ) from None


def read_delimited(
    file: DataFile,
    wanted: Collection[str],
    types: Mapping[str, ColumnType],
    null_values: Sequence[str],
    threads: bool,
    encoding: str = UTF8,
) -> pa.Table:
    """Some columns of a file; those in `types` must be of that type, the others get the type that fits them."""
    names = read_header(file, encoding)
    columns = [name for name in dict.fromkeys(names) if name in wanted]
    for name in columns:
        if names.count(name) > 1:
            raise DataError(
                f"column {name} stands {names.count(name)} times in the header",
                place=Place(file=str(file), line=1),
                hint="give each column a name of its own",
            )
    if file.compressed or _has_quotes(file, encoding):
        _refuse_odd_quotes(file, encoding)
    # Arrow reads whole lines even for no column at all: the first one then tells how many rows there are.
    include = columns or names[:1]
    table = _read(file, names, include, types, null_values, threads, encoding)
    exact = [name for name in columns if name not in types and (beyond_doubles(table[name]) or _endless(table[name]))]
    if exact:
        texts = _read(file, names, exact, dict.fromkeys(exact, TEXT), null_values, threads, encoding)
        table = _with_exact_numbers(table, texts)
    whole = [name for name in columns if pa.types.is_integer(table[name].type)]
    if whole and _holds(file, encoding, b"0x", b"0X"):
        texts = _read(file, names, whole, dict.fromkeys(whole, TEXT), null_values, threads, encoding)
        table = _without_hexadecimals(table, texts)
    for name in columns:
        if pa.types.is_binary(table[name].type):
            raise _not_utf8(file, _first_broken_line(table[name]), name)
    for name in columns:
        if name in types and types[name] != TEXT:
            values = _declared(file, encoding, table[name], name, types[name], single=len(names) == 1)
            table = table.set_column(table.column_names.index(name), name, values)
    return table.select(columns) if columns else table


def _read(
    file: DataFile,
    names: Sequence[str],
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    null_values: Sequence[str],
    threads: bool,
    encoding: str,
) -> pa.Table:
    single = len(names) == 1
    parse = arrow_csv.ParseOptions(
        delimiter=_delimiter(file),
        # Blank lines are no rows, but in a file of one column they are rows with a null.
        ignore_empty_lines=not single,
        newlines_in_values=file.compressed or _has_quotes(file, encoding),
    )
    convert = arrow_csv.ConvertOptions(
        include_columns=list(columns),
        column_types={name: pa.string() for name in types if name in columns},
        null_values=["", *null_values],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        read = arrow_csv.ReadOptions(use_threads=threads, encoding=_arrow_name(encoding))
        return arrow_csv.read_csv(file.location.open_stream(), read, parse, convert)
    except UnicodeError:
        raise _not_encoded(file, encoding) from None
    except (pa.ArrowException, OSError) as error:
        if "cannot infer number of columns" in str(error) and _is_one_line(file):
            return pa.table({name: pa.array([], pa.null()) for name in columns})
        raise _explained(file, names, error, parse, convert, encoding) from None


def _declared(
    file: DataFile, encoding: str, texts: pa.ChunkedArray, name: str, wanted: ColumnType, *, single: bool
) -> pa.ChunkedArray:
    """The values that a column's texts mean. Raises at the first that is not written as its type is."""
    read = partial(read_texts, wanted=wanted)
    try:
        return pa.chunked_array([read(chunk) for chunk in texts.chunks], wanted.to_arrow())
    except pa.ArrowInvalid:
        raise DataError(
            f"column {name}: the value is not a {wanted}",
            place=Place(file=str(file), line=_line(file, encoding, first_misfit(texts, read), single=single)),
            hint="fix the value, name it with --null-value, or change the type under `columns:`",
        ) from None


def _line(file: DataFile, encoding: str, row: int, *, single: bool) -> int | None:
    """The line on which a row begins, counted from 0 after the header."""
    with _opened(file, encoding) as text:
        reader = csv.reader(text, delimiter=_delimiter(file))
        begun = 1
        for fields in reader:
            # A blank line is a row only in a file of one column.
            if begun > 1 and (fields or single):
                if row == 0:
                    return begun
                row -= 1
            begun = reader.line_num + 1
    return None


def _explained(
    file: DataFile,
    names: Sequence[str],
    error: Exception,
    parse: arrow_csv.ParseOptions,
    convert: arrow_csv.ConvertOptions,
    encoding: str,
) -> DataError:
    """The error with its line: only a reading in sequence can tell it."""
    try:
        read = arrow_csv.ReadOptions(use_threads=False, encoding=_arrow_name(encoding))
        arrow_csv.read_csv(file.location.open_stream(), read, parse, convert)
    except (pa.ArrowException, OSError) as again:
        error = again
    text = str(error)
    if found := _RAGGED.search(text):
        line, expected, got = found[1], int(found[2]), int(found[3])
        return DataError(
            f"the line has {got} field{'s' * (got != 1)} where the header has {expected}",
            place=Place(file=str(file), line=int(line) if line else None),
            hint="a value that holds the separator needs quotes",
        )
    if found := _CELL.search(text):
        name = next(iter(convert.include_columns)) if len(names) == 1 else names[int(found[1])]
        return _not_utf8(file, int(found[2]) if found[2] else None, name)
    return DataError(f"{file} cannot be read as CSV: {reason_of(error)}", hint="is it complete, and is it CSV?")


def beyond_doubles(column: pa.ChunkedArray) -> bool:
    """Whether a column that was read as doubles holds numbers beyond what doubles can tell apart."""
    if not pa.types.is_float64(column.type):
        return False
    bounds = pc.min_max(pc.if_else(pc.is_finite(column), column, None)).as_py()
    return any(bound is not None and abs(bound) >= _EXACT for bound in bounds.values())


def _endless(column: pa.ChunkedArray) -> bool:
    return pa.types.is_float64(column.type) and pc.any(pc.is_inf(column)).as_py() is True


def _with_exact_numbers(table: pa.Table, texts: pa.Table) -> pa.Table:
    """Whole numbers in place of doubles, where a column holds nothing else; text where one is beyond all doubles."""
    for name in texts.column_names:
        written = pc.match_substring_regex(pc.utf8_trim_whitespace(texts[name]), NOT_FINITE)
        if _endless(table[name]) and pc.any(pc.and_not(pc.is_inf(table[name]), written)).as_py():
            table = table.set_column(table.column_names.index(name), name, texts[name])
        elif pc.all(pc.match_substring_regex(texts[name], _WHOLE)).as_py():
            exact = pc.utf8_ltrim(pc.utf8_trim_whitespace(texts[name]), "+").cast(pa.decimal128(38, 0))
            table = table.set_column(table.column_names.index(name), name, exact)
    return table


def _without_hexadecimals(table: pa.Table, texts: pa.Table) -> pa.Table:
    """Arrow reads 0x1F as 31, a stream does not: a column of such values is text."""
    for name in texts.column_names:
        if pc.any(pc.match_substring_regex(texts[name], _HEXADECIMAL)).as_py():
            table = table.set_column(table.column_names.index(name), name, texts[name])
    return table


def _holds(file: DataFile, encoding: str, *wanted: bytes) -> bool:
    """Whether a file holds one of some pairs of ASCII characters."""
    last = b""
    for piece in _pieces(file, encoding):
        if any(one in last + piece for one in wanted):
            return True
        last = piece[-1:]
    return False


def _pieces(file: DataFile, encoding: str) -> Iterator[bytes]:
    """A file's bytes, in an encoding in which every ASCII character is its own byte and no part of another."""
    decoder = None if _holds_ascii(encoding) else codecs.getincrementaldecoder(encoding)("replace")
    with file.location.open_stream() as stream:
        mark = codecs.BOM_UTF8 if encoding == UTF8 else b""
        while piece := stream.read(_PIECE):
            try:
                yield piece.removeprefix(mark) if decoder is None else decoder.decode(piece).encode(UTF8, "replace")
            except UnicodeError:  # UTF-16 and UTF-32 that begin with no mark
                raise _not_encoded(file, encoding) from None
            mark = b""


def _holds_ascii(encoding: str) -> bool:
    """Whether text is UTF-8, or of one byte a character with ASCII among them: not so UTF-16 or EBCDIC."""
    if encoding == UTF8 or encoding.startswith("iso2022"):
        return encoding == UTF8
    text = bytes(range(256)).decode(encoding, "replace")
    return len(text) == 256 and text[:128] == bytes(range(128)).decode("ascii")


def _opened(file: DataFile, encoding: str) -> io.TextIOWrapper:
    """A file's text, for `csv.reader`."""
    csv.field_size_limit(2**31 - 1)
    marked = "utf-8-sig" if encoding == UTF8 else encoding
    return io.TextIOWrapper(file.location.open_stream(), marked, "replace", newline="")


def _delimiter(file: DataFile) -> str:
    return "\t" if {*file.suffixes[-2:]} & {".tsv", ".tab"} else ","


def _has_quotes(file: DataFile, encoding: str) -> bool:
    """Only a quoted value can hold a line break, and only then must Arrow look for them: it halves the speed."""
    if not file.location.local or not _holds_ascii(encoding):
        return True  # reading it for this would take as long
    if file.location.info().size == 0:
        return False
    with open(file.location.path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b'"') >= 0


def _refuse_odd_quotes(file: DataFile, encoding: str) -> None:
    """Raises for a quoted value with a single quote inside, or without an end: Arrow reads on as if it were right."""
    try:
        if not _has_odd_quotes(file, encoding):
            return
        with _opened(file, encoding) as text:
            reader, begun = csv.reader(text, delimiter=_delimiter(file), strict=True), 1
            try:
                for _ in reader:
                    begun = reader.line_num + 1
            except csv.Error:
                raise DataError(
                    "a quote inside a quoted value is not doubled, or a quote is not closed",
                    place=Place(file=str(file), line=begun),
                    hint="double it (RFC 4180); Spark's writer does so with .option('escape', '\"')",
                ) from None
    except (OSError, pa.ArrowException):
        return  # the next reader raises the error


def _has_odd_quotes(file: DataFile, encoding: str) -> bool:
    """Whether some quote may be odd: most files have none.

    Quotes open and close by turns, where a doubled one closes and opens. None is odd if before each that opens, and
    after each that closes, there is a separator, a line break or another quote, and the last one closes.
    """
    usual = np.zeros(256, bool)
    usual[[*_delimiter(file).encode(), *b'"\r\n']] = True
    last, seen = b"\n", 0
    for piece in chain(_pieces(file, encoding), [b"\n"]):
        bytes_ = np.frombuffer(last + piece, np.uint8)
        quotes = np.flatnonzero(bytes_[1:-1] == ord('"')) + 1
        opening, closing = quotes[seen % 2 :: 2], quotes[1 - seen % 2 :: 2]
        if not (usual[bytes_[opening - 1]].all() and usual[bytes_[closing + 1]].all()):
            return True
        last, seen = (last + piece)[-2:], seen + len(quotes)
    return seen % 2 == 1


def _is_one_line(file: DataFile) -> bool:
    with file.location.open_stream() as stream:
        return b"\n" not in stream.read(_FIRST)


def _first_broken_line(column: pa.ChunkedArray) -> int | None:
    for row, value in enumerate(column):
        try:
            (value.as_py() or b"").decode()
        except UnicodeDecodeError:
            return row + 2
    return None


def _not_utf8(file: DataFile, line: int | None, column: str | None = None, *, utf16: bool = False) -> DataError:
    return DataError(
        f"column {column} is not UTF-8 text" if column else "the text is not UTF-8",
        place=Place(file=str(file), line=line),
        hint=f"name its encoding: --encoding {(name := 'utf-16' if utf16 else 'latin1')}; or convert it: "
        f"iconv -f {name} -t utf-8",
    )


def _not_encoded(file: DataFile, encoding: str, line: int | None = None) -> DataError:
    marked = encoding in ("utf-16", "utf-32")
    hint = (
        f"without a mark of its byte order it is {encoding}-le or {encoding}-be" if marked else "what wrote the file?"
    )
    return DataError(f"the text is not {encoding}", place=Place(file=str(file), line=line), hint=hint)


def _arrow_name(encoding: str) -> str:
    """Arrow reads its own name of UTF-8 without recoding."""
    return "utf8" if encoding == UTF8 else encoding
