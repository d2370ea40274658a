"""JSON texts of columns and rows, whole arrays at a time, the same texts as `detect.identity` writes one by one.

Integers, booleans and strings, which fill most tables, are written by Arrow; other types value by value. Numbers keep
every digit; NaN and the infinities, decimals, dates and times become JSON strings, because JSON has no such values or
its readers would round them. Cost: some 20 ns a value by Arrow, about 1 us by Python.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.check.rownames import RowNames
    from weever_stream.index.arrays import Ints, Rows

__all__ = ["RowTexts", "contents", "json_objects", "json_strings", "json_values", "keys_of", "side_by_side", "written"]

_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'


def written(value: object) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def side_by_side(*pieces: pa.Array | str) -> pa.Array:
    """Arrays of texts, and texts that stand in every row, put together row by row; null where a piece is."""
    scalars = [pa.scalar(piece, pa.large_string()) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.large_string()))


def contents(texts: pa.Array) -> memoryview:
    """The bytes of all texts, one after the other; a view, not a copy."""
    if not len(texts):
        return memoryview(b"")
    offsets = memoryview(texts.buffers()[1]).cast("q")
    return memoryview(texts.buffers()[2])[offsets[texts.offset] : offsets[texts.offset + len(texts)]]


def json_strings(texts: pa.Array) -> pa.Array:
    """Each text as a JSON string with its quotes; null as `null`."""
    texts = texts.cast(pa.large_string())
    if pc.any(pc.match_substring_regex(texts, _NEEDS_ESCAPE)).as_py():
        return pa.array([written(text) for text in texts.to_pylist()], pa.large_string())
    return _or_null(side_by_side('"', texts, '"'))


def json_values(column: pa.Array) -> pa.Array:
    """Each value as JSON."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_values(column.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return json_strings(column)
    if _is_number(kind) or pa.types.is_boolean(kind):
        return _or_null(column.cast(pa.large_string()))
    from weever_stream.detect.identity import json_value, python_values  # loads the engine: only for rarer types

    return pa.array([written(json_value(value)) for value in python_values(column)], pa.large_string())


def json_objects(table: pa.Table, columns: Sequence[str], *, for_csv: bool = False) -> pa.Array:
    """Each row as a JSON object of some columns; for CSV as a quoted field, its quotes doubled."""
    pieces: list[pa.Array | str] = []
    for name in columns:
        column = _whole(table[name])
        label, values = written(name), json_values(column)
        if for_csv:
            label = label.replace('"', '""')
            values = values if _is_number(column.type) else pc.replace_substring(values, '"', '""')
        pieces += [("," if pieces else "{") + label + ":", values]
    return side_by_side('"', *pieces, '}"') if for_csv else side_by_side(*pieces, "}")


def keys_of(table: pa.Table, key: Sequence[str]) -> pa.Array:
    """The printable key of each row: its plain text, or of several columns the JSON array of them."""
    if len(key) == 1:
        column = _whole(table[key[0]])
        if _is_number(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return column.cast(pa.large_string())
        from weever_stream.detect.identity import key_texts

        return pa.array(key_texts(table, key), pa.large_string())
    pieces: list[pa.Array | str] = []
    for name in key:
        pieces += ["," if pieces else "[", json_values(_whole(table[name]))]
    return side_by_side(*pieces, "]")


class RowTexts:
    """The texts that stand for rows in an output. Where rows stand in many pairs each row's are made only once."""

    def __init__(self, names: RowNames, columns: Sequence[str], often: Ints | None = None) -> None:
        self._names, self._columns, self._often = names, columns, often
        self._made: dict[str, pa.Array] = {}
        if often is not None:
            self._place = np.zeros(names.table.num_rows, np.int32)
            self._place[often] = np.arange(len(often), dtype=np.int32)

    def keys(self, rows: Rows) -> pa.Array:
        """Their keys."""
        return self._of("keys", rows)

    def quoted_keys(self, rows: Rows) -> pa.Array:
        """Their keys as JSON strings."""
        return self._of("quoted_keys", rows)

    def values(self, rows: Rows) -> pa.Array:
        """The columns that a rule reads, as JSON objects."""
        return self._of("values", rows)

    def objects(self, rows: Rows) -> pa.Array:
        """The key and the columns that a rule reads, as JSON objects."""
        return self._of("objects", rows)

    def csv_keys(self, rows: Rows) -> pa.Array:
        """Their keys as fields of CSV, quoted where they are not numbers."""
        return self._of("csv_keys", rows)

    def csv_values(self, rows: Rows) -> pa.Array:
        """The columns that a rule reads, as quoted fields of CSV."""
        return self._of("csv_values", rows)

    def _of(self, what: str, rows: Rows) -> pa.Array:
        if self._often is None:
            return self._make(what, rows)
        if what not in self._made:
            self._made[what] = self._make(what, self._often)
        return self._made[what].take(pa.array(self._place[rows]))

    def _make(self, what: str, rows: Ints | Rows) -> pa.Array:
        table = self._names.rows(rows, self._columns)
        if what == "objects":
            return json_objects(table, table.column_names)
        if what in ("values", "csv_values"):
            return json_objects(table, self._columns, for_csv=what == "csv_values")
        keys = keys_of(table, self._names.columns)
        numbers = len(self._names.columns) == 1 and _is_number(table.schema.field(0).type)
        if what == "keys" or (what == "csv_keys" and numbers):
            return keys
        if what == "csv_keys":
            return side_by_side('"', pc.replace_substring(keys, '"', '""'), '"')
        return side_by_side('"', keys, '"') if numbers else json_strings(keys)


def _is_number(kind: pa.DataType) -> bool:
    """Whether texts of the type are bare digits, which no output has to quote."""
    return bool(pa.types.is_integer(kind))


def _or_null(texts: pa.Array) -> pa.Array:
    return texts.fill_null("null") if texts.null_count else texts


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
    )
