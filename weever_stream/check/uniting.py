"""Several files of one table: every column in one type that holds the values of all of them, or an error.

The type of a column is the one in which its values are compared, so a decimal may become a double that it is written
as. A value that would change is refused: the error names the column and both files. Cost: one cast of a column that is
not of the common type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from weever_stream.check.delimited import TEXT, read_delimited
from weever_stream.errors import DataError
from weever_stream.index.casting import NUMERIC, fit
from weever_stream.index.plain import MOST_DIGITS, decimal_of, decoded
from weever_stream.rules.types import ColumnType, common_type, type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.check.readers import Wanted
    from weever_stream.check.sources import DataFile

__all__ = ["agreed_texts", "concatenated"]


def agreed_texts(files: Sequence[DataFile], tables: list[pa.Table], wanted: Wanted) -> list[pa.Table]:
    """CSV columns whose types have nothing in common are read as text in all files, as in one file with all lines."""
    mixed = {}
    for name in tables[0].column_names:
        kinds = {kind for table in tables if not pa.types.is_null(kind := table.schema.field(name).type)}
        if len(kinds) > 1 and united([*kinds]) is None:
            mixed[name] = TEXT
    if not mixed:
        return tables
    for i, file in enumerate(files):
        texts = read_delimited(file, frozenset(mixed), mixed, wanted.null_values, wanted.threads, wanted.encoding)
        for name in texts.column_names:
            tables[i] = tables[i].set_column(tables[i].column_names.index(name), name, texts[name])
    return tables


def concatenated(files: Sequence[DataFile], tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all rows, in the order of the files."""
    names = tables[0].column_names
    tables = [table.select(names) for table in tables]
    for at, name in enumerate(names):
        kinds = [table.schema.field(at).type for table in tables]
        target = united(kinds)
        if target is None:
            other = next(i for i, kind in enumerate(kinds) if united([kinds[0], kind]) is None)
            raise _differ(name, kinds[0], kinds[other], files[0], files[other])
        for i, table in enumerate(tables):
            try:
                tables[i] = table.set_column(at, name, exactly(table.column(at), target))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                other = next(j for j, kind in enumerate(kinds) if kind != kinds[i])
                raise _differ(name, kinds[i], kinds[other], files[i], files[other]) from None
    return pa.concat_tables(tables)


def _differ(name: str, one: pa.DataType, other: pa.DataType, file: DataFile, another: DataFile) -> DataError:
    return DataError(
        f"column {name} is of type {one} in {file} and {other} in {another}, and no type holds all values as they are",
        hint="give its type under `columns:`",
    )


def united(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """One type for the values of columns of several types; None where their meanings differ.

    A value may still not fit it: a whole number beyond 2^53 is no double.
    """
    plain = [kind for kind in kinds if not pa.types.is_null(kind)] or [pa.null()]
    if all(kind == plain[0] for kind in plain):
        return plain[0]
    found = [one for one in map(type_of_arrow, plain) if isinstance(one, ColumnType)]
    if len(found) < len(plain):
        return _united_nested(plain)
    common: ColumnType | None = found[0]
    for one in found[1:]:
        common = common and common_type(common, one)
    if common is None or common.precision > MOST_DIGITS:
        return None
    if common.kind == "decimal":
        return decimal_of(common.precision, common.scale)
    if common.kind == "time" and common.unit == "ns":
        return pa.time64("ns")
    return pa.large_string() if common.kind == "string" else common.to_arrow()


def _united_nested(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """One type for values that rules cannot compare, as Arrow unites them."""
    try:
        schemas = [pa.schema([("", kind)]) for kind in kinds]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def exactly(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The column in a type of `united`. Raises `ArrowInvalid` where a value would change."""
    if column.type == target:
        return column
    found, wanted = type_of_arrow(column.type), type_of_arrow(target)
    numbers = {getattr(found, "kind", found), getattr(wanted, "kind", wanted)} <= NUMERIC
    chunks = [decoded(chunk) for chunk in column.chunks]
    return pa.chunked_array([fit(chunk, target) if numbers else chunk.cast(target) for chunk in chunks], target)
