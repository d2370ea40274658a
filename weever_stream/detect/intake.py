"""Rows from outside, in whatever form they come, as Arrow batches of the columns that the engine needs.

Takes dicts, Arrow tables and batches, and any frame that speaks the Arrow C stream interface (pandas, Polars …).
Types are those of the schema: a value that does not fit is refused with its column and row, never bent. Without a
schema the first rows give it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from weever_stream.detect.plainness import UNFIT, unbent
from weever_stream.errors import DataError, did_you_mean, the_columns
from weever_stream.index.arrays import present
from weever_stream.index.casting import NUMERIC, fit
from weever_stream.index.codes import flatten
from weever_stream.index.plain import plain_column, plain_type
from weever_stream.rules.types import ColumnType, type_of_arrow, type_of_name

__all__ = [
    "ROW_NUMBER",
    "Intake",
    "are_rows",
    "arrow_schema",
    "infer_schema",
    "refuse_null_keys",
    "table_of_rows",
    "to_table",
]

ROW_NUMBER = "_row"
"""The key column of a table that has none."""


def to_table(data: Any) -> pa.Table | list[Mapping[str, Any]]:
    """A table, or a list of rows given as dicts. A single dict is one row."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            why = "it has several columns of one name" if "uplicate column" in str(error) else "Arrow cannot read it"
            raise DataError(f"{type(data).__name__} is not a table: {why}", hint=_FORMS) from None
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        rows = list(data)
        if all(isinstance(row, Mapping) for row in rows):
            return rows
    raise DataError(f"cannot read rows from {type(data).__name__}", hint=_FORMS)


def are_rows(data: Any) -> bool:
    """Whether something is rows given as dicts, one at least."""
    return isinstance(data, (list, tuple)) and bool(data) and all(isinstance(row, Mapping) for row in data)


def table_of_rows(rows: Sequence[Mapping[str, Any]], columns: Collection[str] | None = None) -> pa.Table:
    """Rows given as dicts as a table of some columns, by default all. Their values tell the types."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if isinstance(name, str)]
    found = {}
    for name in names if columns is None else [name for name in names if name in columns]:
        values = [_value(row, name, at) for at, row in enumerate(rows)]
        found[name] = _array(values, pa.field(name, _kind_of(values, name)))
    return pa.table(found)


_FORMS = "give a dict, a list of dicts, an Arrow table, or a pandas or Polars frame"


def arrow_schema(schema: Any) -> pa.Schema:
    """An Arrow schema of what the user gave: one already, or column names with types (Spark's or Arrow's names)."""
    if isinstance(schema, pa.Schema):
        return storable(schema)
    fields = []
    for name, given in dict(schema).items():
        if isinstance(given, str):
            given = type_of_name(given)
        fields.append((name, given.to_arrow() if isinstance(given, ColumnType) else given))
    return storable(pa.schema(fields))


def infer_schema(
    data: pa.Table | list[Mapping[str, Any]], columns: Sequence[str], given: Mapping[str, ColumnType]
) -> pa.Schema:
    """The types of the columns: those given, else from the first rows. A column that is all null has none."""
    fields = []
    for name in columns:
        if name in given:
            fields.append((name, given[name].to_arrow()))
            continue
        if isinstance(data, pa.Table):
            _require(name, data.schema.names)
            kind = data.schema.field(name).type
        else:
            kind = _kind_of([_value(row, name, at) for at, row in enumerate(data)], name)
        if pa.types.is_null(kind):
            raise DataError(
                f"the type of column {name} is not known: its first values are all null", hint="give a schema"
            )
        fields.append((name, kind))
    return storable(pa.schema(fields))


def storable(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Arrow can filter, join and take from: no dictionaries, no views, no 2 GB limit."""
    return pa.schema([(field.name, _storable(field.type)) for field in schema])


def _storable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _storable(kind.value_type)
    return pa.large_string() if pa.types.is_string(kind) else plain_type(kind)  # a run may hold more than 2 GB of text


def _kind_of(values: list[Any], name: str) -> pa.DataType:
    if any(isinstance(value, Decimal) for value in values):
        return pa.decimal128(38, 18)  # later values may need more digits than the first
    try:
        kind = pa.array(values).type
    except UNFIT:
        raise DataError(
            f"the values of column {name} do not have one type", hint=f"give a schema, such as {{{name!r}: 'string'}}"
        ) from None
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


class Intake:
    """Turns rows into batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names = frozenset(schema.names)
        self._fields = list(schema)
        self._struct = pa.struct(schema)
        self._plain = [(field.name, field.type, _plain(field.type)) for field in schema]

    def batch(self, data: pa.Table | list[Mapping[str, Any]]) -> pa.RecordBatch:
        """The schema's columns of the data, in the schema's types."""
        if isinstance(data, pa.Table):
            names = data.schema.names
            arrays = [_cast(data, names, field) for field in self._fields]
        elif len(data) <= _FEW and (few := self._few(data)):
            return few
        else:
            arrays = [
                _array([_value(row, field.name, at) for at, row in enumerate(data)], field) for field in self._fields
            ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _few(self, rows: list[Mapping[str, Any]]) -> pa.RecordBatch | None:
        """All columns of a few rows in one step, or None where something does not fit and must be looked at closely.

        Starting Arrow's converter for each column costs more than the values of a few rows do.
        """
        for row in rows:
            if not self._names <= row.keys():
                return None
            for name, kind, plain in self._plain:
                if type(row[name]) is not plain and not unbent(row[name], kind):
                    return None
        try:
            return pa.RecordBatch.from_struct_array(pa.array(rows, self._struct, size=len(rows)))
        except UNFIT:
            return None


_FEW = 32


def _plain(kind: pa.DataType) -> type | None:
    """The Python type whose values Arrow takes for this one as they are."""
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_float64(kind):
        return float
    return str if pa.types.is_large_string(kind) else None


def _cast(data: pa.Table, names: list[str], field: pa.Field) -> pa.Array:
    if names.count(field.name) != 1:
        _require(field.name, names)
    array = flatten(plain_column(data.column(names.index(field.name)), field.name, "the rows"))
    if array.type == field.type:
        return array
    comparable, given = type_of_arrow(field.type), type_of_arrow(array.type)
    kinds = {getattr(comparable, "kind", comparable), getattr(given, "kind", given)}
    numbers = kinds <= NUMERIC
    if len(kinds) > 1 and not numbers and not pa.types.is_null(array.type):
        raise DataError(f"column {field.name} was {field.type} and comes as {array.type}", hint=_CAST_HINT)
    try:
        return fit(array, field.type) if numbers else array.cast(field.type)
    except UNFIT:
        raise DataError(
            f"column {field.name} holds values that do not fit {field.type} (they come as {array.type})",
            hint=_CAST_HINT,
        ) from None


_CAST_HINT = "give a schema that holds all values, or cast the column"


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        if all(unbent(value, field.type) for value in values):
            return pa.array(values, field.type)
        raise ValueError(field.name)
    except UNFIT:
        at = next(row for row, value in enumerate(values) if not _fits(value, field.type))
        raise DataError(
            f"row {at + 1}: the value of column {field.name} is not a {field.type}"
            f" (it is of Python type {type(values[at]).__name__})",
            hint="mend the value, or give a schema in which it fits",
        ) from None


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except UNFIT:
        return False
    return unbent(value, kind)


def _value(row: Mapping[str, Any], name: str, at: int) -> Any:
    try:
        return row[name]
    except KeyError:
        raise DataError(
            f"row {at + 1} has no column {name}",
            hint=did_you_mean(name, [str(known) for known in row]) or "give None for a null",
        ) from None


def _require(name: str, known: Sequence[str]) -> None:
    if known.count(name) != 1:
        problem = "there is no column" if name not in known else "there are several columns"
        raise DataError(f"{problem} {name}", hint=did_you_mean(name, known) or the_columns(known))


def refuse_null_keys(batch: pa.RecordBatch, key: Sequence[str]) -> None:
    """A key names a row, so no part of it may be null."""
    for place, name in enumerate(key):  # the key's columns come first
        column = batch.column(place)
        if column.null_count:
            at = int(np.flatnonzero(~present(column))[0])
            raise DataError(
                f"row {at + 1}: the key column {name} is null",
                hint="every row needs a key; leave the key out to number the rows instead",
            )
