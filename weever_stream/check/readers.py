"""Reading a table: CSV, Parquet, JSON lines, Arrow and Delta, one file or many, only the columns that are asked for.

Every file's columns end up in one type each. Where files or values disagree the rule is: the type given under
`columns:`; else one that holds every value exactly; else, in CSV, text; else an error that names the column and both
files. Rows keep the order of the files. Errors say where and never show a row's values. Cost: one pass over the wanted
columns.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.check.delimited import UTF8, beyond_doubles, read_delimited, read_header
from weever_stream.check.sources import DataFile, find_files
from weever_stream.check.uniting import agreed_texts, concatenated
from weever_stream.errors import DataError, Place
from weever_stream.index.casting import typed
from weever_stream.index.plain import plain_table
from weever_stream.rules.types import ColumnType
from weever_stream.storage import open_delta, reason_of, scan_delta

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow.parquet as pq

__all__ = ["Wanted", "read_batches", "read_names", "read_schema", "read_table"]

_CHANGED = re.compile(r"Column\(/?(.{0,300}?)\) (?:changed from (\w+) to (\w+)|was specified twice) in row (\d+)")
_NEAR = 1000
_NULL_LINE = re.compile(rb"[\n}]\s{0,%d}null" % (_NEAR - 10))
_ROW = re.compile(r"in row (\d+)")
_WRITTEN_AS_TEXT = ("string", "date", "time", "timestamp", "timestamp_ntz")
"""The types whose values are texts in JSON."""


@dataclass(frozen=True)
class Wanted:
    """What to read: columns by name, types that override what is found, texts that mean null in CSV."""

    columns: frozenset[str]
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    null_values: tuple[str, ...] = ()
    threads: bool = True
    encoding: str = UTF8
    """Of the text in CSV."""


def read_names(files: Sequence[DataFile], encoding: str = UTF8) -> list[str]:
    """All column names of the first file, without reading its rows."""
    file = files[0]
    names = read_header(file, encoding) if file.format == "csv" else _names(file)
    return [*names, *(name for name in file.partition if name not in names)]


def read_schema(path: str | Path) -> pa.Schema:
    """The columns of a file, glob or folder with their types; text formats are read whole, because values tell them."""
    files = find_files([path])
    if files[0].format in ("csv", "json"):
        return read_table(files, Wanted(frozenset(read_names(files)))).schema
    with _explaining(files[0]):
        schema = _schema(files[0])
    for name in files[0].partition:
        schema = schema if name in schema.names else schema.append(pa.field(name, pa.string()))
    return schema


def _names(file: DataFile) -> list[str]:
    with _explaining(file):
        return list(_schema(file).names)


def read_table(files: Sequence[DataFile], wanted: Wanted) -> pa.Table:
    """The wanted columns of all files, as far as they exist. Raises `DataError` where a file lacks one others have."""
    tables = [_read_file(file, wanted) for file in files]
    for file, table in zip(files, tables, strict=True):
        if missing := set(tables[0].column_names) ^ set(table.column_names):
            name = sorted(missing)[0]
            without = file if name in tables[0].column_names else files[0]
            raise DataError(f"{without} has no column {name}, which other files have", hint="are these of one table?")
    if len(tables) == 1:
        return tables[0]
    if files[0].format == "csv":
        tables = agreed_texts(files, tables, wanted)
    return concatenated(files, tables)


def read_batches(files: Sequence[DataFile], wanted: Wanted, rows: int) -> Iterator[pa.Table]:
    """The table piece by piece, each of about `rows` rows where the format allows it, else file by file."""
    if len(files) == 1 and files[0].format == "parquet" and not files[0].partition:
        with _explaining(files[0]):
            file = _parquet(files[0])
            _refuse_repeats(files[0], file.schema_arrow.names, wanted)
            columns = [name for name in file.schema_arrow.names if name in wanted.columns]
            before = 0
            for batch in file.iter_batches(rows, columns=columns, use_threads=wanted.threads):
                table = _validated(files[0], pa.Table.from_batches([batch]))
                yield _finished(files[0], table, wanted, before)
                before += batch.num_rows
            if not before:
                yield _finished(files[0], file.schema_arrow.empty_table().select(columns), wanted)
    else:
        yield from _sliced(read_table(files, wanted), rows)


def _sliced(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, max(1, table.num_rows), rows):
        yield table.slice(start, rows)


def _read_file(file: DataFile, wanted: Wanted) -> pa.Table:
    if file.format == "csv":
        table = read_delimited(file, wanted.columns, wanted.types, wanted.null_values, wanted.threads, wanted.encoding)
    else:
        with _explaining(file):
            table = _validated(file, _READERS[file.format](file, wanted))
    for name, text in file.partition.items():
        if name in wanted.columns and name not in table.column_names:
            null = text in ("__HIVE_DEFAULT_PARTITION__", "")
            table = table.append_column(name, pa.array([None if null else text] * table.num_rows, pa.string()))
    return _finished(file, table, wanted)


def _finished(file: DataFile, table: pa.Table, wanted: Wanted, before: int = 0) -> pa.Table:
    """Rows of a file as they are compared: in plain forms, and in the types that were given."""
    return typed(plain_table(table, str(file), before), wanted.types, str(file), before)


def _validated(file: DataFile, table: pa.Table) -> pa.Table:
    """The table, if offsets and text are what they should be: Arrow takes both on trust from a file."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise DataError(
                f"{file}: column {name} is damaged, or not UTF-8 text", hint="is the file complete? write it again"
            ) from None
    return table


@contextmanager
def _explaining(file: DataFile) -> Iterator[None]:
    """Turns what Arrow and Delta raise into an error that names the file, and the row and column where known."""
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _explained(file, error) from None
    except Exception as error:  # deltalake's errors share no root with anything
        if file.format != "delta":
            raise
        raise _explained(file, error) from None


def _explained(file: DataFile, error: Exception) -> DataError:
    text = str(error)
    if "Empty JSON" in text or (file.format != "delta" and file.location.info().size == 0):
        return DataError(f"{file} is empty", hint="an empty table still needs its columns; or leave the file out")
    if found := _CHANGED.search(text):
        column, one, other, row = found.groups()
        place = Place(file=str(file), line=int(row) + 1)
        if one is None:
            return DataError(f"column {column} stands twice in one row", place=place)
        if not column:
            return DataError("the line is not a JSON object", place=place, hint="one object a line: JSON lines")
        return DataError(
            f"column {column} is a {one} in earlier rows and a {other} here",
            place=place,
            hint="mend the value, or write the whole column as text",
        )
    if file.format == "json" and (found := _ROW.search(text)):
        place = Place(file=str(file), line=int(found[1]) + 1)
        return DataError("the line is not JSON", place=place, hint="one object a line: JSON lines")
    return DataError(
        f"{file} cannot be read as {file.format}: {reason_of(error)}", hint="is it complete, and of this format?"
    )


def _schema(file: DataFile) -> pa.Schema:
    """The schema of a file that carries one (JSON lines are read for it)."""
    if file.format == "parquet":
        return _parquet(file).schema_arrow
    if file.format == "arrow":
        return _arrow(file).schema
    if file.format == "json":
        return _json(file, None).schema
    return pa.schema(open_delta(file.location).schema().to_arrow())


def _parquet(file: DataFile) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(file.location.open_file(), pre_buffer=not file.location.local)


def _read_parquet(file: DataFile, wanted: Wanted) -> pa.Table:
    opened = _parquet(file)
    names = opened.schema_arrow.names
    _refuse_repeats(file, names, wanted)
    columns = [name for name in names if name in wanted.columns]
    # A dotted name would mean a field of a struct to Arrow; such a table is read whole and cut afterwards.
    whole = any("." in name for name in columns)
    return opened.read(columns=None if whole else columns, use_threads=wanted.threads).select(columns)


def _arrow(file: DataFile) -> pa.RecordBatchReader:
    """The batches of an Arrow file or stream; Feather is the former."""
    if file.compressed:
        with file.location.open_stream() as stream:
            source = pa.BufferReader(stream.read())
    else:
        source = file.location.open_file()
    try:
        opened = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)
    batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
    return pa.RecordBatchReader.from_batches(opened.schema, batches)


def _read_arrow(file: DataFile, wanted: Wanted) -> pa.Table:
    reader = _arrow(file)
    _refuse_repeats(file, reader.schema.names, wanted)
    return reader.read_all().select([name for name in reader.schema.names if name in wanted.columns])


def _json(file: DataFile, wanted: Wanted | None, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """JSON lines, some columns in given types. An object longer than Arrow's block makes the block grow."""
    import pyarrow.json as arrow_json

    _refuse_null_lines(file)
    block = 1 << 24
    given = pa.schema(types.items()) if types else None
    while True:
        try:
            options = arrow_json.ReadOptions(use_threads=wanted is None or wanted.threads, block_size=block)
            return arrow_json.read_json(
                file.location.open_stream(), options, arrow_json.ParseOptions(explicit_schema=given)
            )
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error) or block > 2**30:
                raise
            block *= 8


def _refuse_null_lines(file: DataFile) -> None:
    """Raises for a line that is `null`, or has one after its object: Arrow's parser crashes the process there."""
    last = b"\n"
    with file.location.open_stream() as stream:
        while piece := stream.read(1 << 24):
            if _NULL_LINE.search(last + piece):
                break
            last = (last + piece)[-_NEAR:]
        else:
            return
    with file.location.open_stream() as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            try:
                is_object = not line.strip() or isinstance(json.loads(line), dict)
            except ValueError:
                is_object = False
            if not is_object:
                raise DataError(
                    "the line is not a JSON object",
                    place=Place(file=str(file), line=number),
                    hint="one object a line: JSON lines",
                )


def _read_json(file: DataFile, wanted: Wanted) -> pa.Table:
    table = _declared_json(file, wanted)
    table = table.select([name for name in table.column_names if name in wanted.columns])
    moments = {name: pa.string() for name in table.column_names if pa.types.is_timestamp(table[name].type)}
    texts = _json(file, wanted, moments) if moments else None
    for at, name in enumerate(table.column_names):
        if beyond_doubles(table[name]) and wanted.types.get(name) != ColumnType("float"):
            with suppress(pa.ArrowInvalid):  # not whole numbers, then: doubles are what they are
                table = table.set_column(at, name, _json(file, wanted, {name: pa.decimal128(38, 0)})[name])
        elif texts and name in moments:
            table = table.set_column(at, name, _moments(table[name], texts[name]))
    return table


def _declared_json(file: DataFile, wanted: Wanted) -> pa.Table:
    """A table in which declared columns are as they were written: Arrow's guess would round and shift values."""
    types = {
        name: pa.string() if kind.kind in _WRITTEN_AS_TEXT else pa.decimal128(38, kind.scale)
        for name, kind in wanted.types.items()
        if name in wanted.columns and kind.kind in (*_WRITTEN_AS_TEXT, "decimal")
    }
    # A number is read as the nearest double, whatever the other values are, as from text.
    types |= {
        name: pa.float64() for name, kind in wanted.types.items() if name in wanted.columns and kind.kind == "float"
    }
    texts: dict[str, pa.Array] = {}
    while True:
        try:
            table = _json(file, wanted, types)
        except pa.ArrowInvalid as error:
            found = _CHANGED.search(str(error))
            if found and found[1] in types:
                del types[found[1]]  # not text or numbers, then: what it is can be converted, or is told
                continue
            decimals = [name for name, kind in types.items() if pa.types.is_decimal(kind)]
            if "decimal" not in str(error).lower() or not decimals:
                raise
            for name in decimals:
                del types[name]
                texts[name] = _number_texts(file, name)
            continue
        absent = [name for name in types if table[name].null_count == table.num_rows]
        if not absent:
            break
        for name in absent:  # Arrow makes up a column that is not there
            del types[name]
    for name, column in texts.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _number_texts(file: DataFile, name: str) -> pa.Array:
    """A column of numbers as they are written: slow, but only the text tells which one is no decimal of its type."""
    with file.location.open_stream() as stream:
        rows = (json.loads(line, parse_int=str, parse_float=str) for line in io.BufferedReader(stream) if line.strip())
        values = [row.get(name) if isinstance(row, dict) else None for row in rows]
    return pa.array([value if value is None or isinstance(value, str) else "" for value in values], pa.string())


def _moments(found: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that Arrow took for timestamps in UTC: instants if all of them name a zone, and text if only some do."""
    zoned = pc.match_substring_regex(texts, "[T ][0-9:]+(Z|[+-][0-9:]+)$")
    if not pc.any(zoned).as_py():
        return found
    return found.cast(pa.timestamp("us", "UTC")) if pc.all(zoned).as_py() else texts


def _read_delta(file: DataFile, wanted: Wanted) -> pa.Table:
    table = open_delta(file.location)
    columns = [field.name for field in table.schema().fields if field.name in wanted.columns]
    return scan_delta(table, file.location).to_table(columns=columns, use_threads=wanted.threads)


_READERS = {"parquet": _read_parquet, "arrow": _read_arrow, "json": _read_json, "delta": _read_delta}


def _refuse_repeats(file: DataFile, names: Sequence[str], wanted: Wanted) -> None:
    for name in wanted.columns:
        if names.count(name) > 1:
            raise DataError(f"{file} has {names.count(name)} columns {name}", hint="give each a name of its own")
