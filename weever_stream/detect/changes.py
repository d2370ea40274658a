"""What a user calls a change, as batches of the stored columns: rows to put, keys to drop, and mixed feeds.

Mixed feeds speak the words of Delta's change data feed: `_change_type` (insert, update_preimage, update_postimage,
delete, or upsert) and `_commit_version`. A drop needs nothing but its key.

Changes are ordered by one number, twice the sequence and one more for a put. Changes without a sequence get negative
ones in the order in which they arrive: they are older than every change that has a sequence, whenever either arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.detect.intake import Intake, refuse_null_keys, to_table
from weever_stream.errors import DataError
from weever_stream.index.arrays import as_arrow
from weever_stream.index.codes import flatten

if TYPE_CHECKING:
    from weever_stream.index.arrays import Ints, Mask

__all__ = [
    "CHANGE_TYPES",
    "ChangeReader",
    "Orders",
    "kinds_of",
    "versions_of",
    "whole",
]

_CHANGE_TYPE, _VERSION = "_change_type", "_commit_version"
CHANGE_TYPES = {
    "insert": True,
    "upsert": True,
    "update_postimage": True,
    "update_preimage": False,
    "delete": False,
}
"""Words of `_change_type`, and whether they put a row or drop it."""
_SEQUENCES = 1 << 62
"""Sequences are from 0 to one less."""


class ChangeReader:
    """Reads changes of one table; a table without a key has its rows numbered."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], *, numbered: bool) -> None:
        self._schema = schema
        self._key = tuple(key)
        self._numbered = numbered
        self._rows = Intake(schema.remove(0) if numbered else schema)
        self._keys = Intake(pa.schema([schema.field(name) for name in key]))

    def puts(self, data: pa.Table | list[Mapping[str, Any]], first: int) -> pa.RecordBatch:
        """Rows with all columns; numbered from `first` on where the table has no key."""
        batch = self._rows.batch(data)
        if not self._numbered:
            refuse_null_keys(batch, self._key)
            return batch
        numbers = as_arrow(np.arange(first, first + batch.num_rows))
        return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=self._schema)

    def drops(self, keys: Any) -> pa.RecordBatch:
        """Rows that hold nothing but their key: from values, tuples for a composite key, dicts, or a table."""
        batch = self._keys.batch(self._key_rows(keys))
        refuse_null_keys(batch, self._key)
        absent = [pa.nulls(batch.num_rows, field.type) for field in self._schema if field.name not in self._key]
        return pa.RecordBatch.from_arrays([*batch.columns, *absent], schema=self._schema)

    def mixed(self, data: pa.Table | list[Mapping[str, Any]], puts: Mask) -> pa.RecordBatch:
        """Rows to put and rows to drop together."""
        return self.puts(whole(data, puts, self._schema.names), 0)

    def _key_rows(self, keys: Any) -> pa.Table | list[Mapping[str, Any]]:
        several = isinstance(keys, Iterable) or hasattr(keys, "__arrow_c_stream__")
        single = isinstance(keys, (str, bytes)) or not several
        if single or (isinstance(keys, tuple) and len(self._key) > 1):
            keys = [keys]
        if isinstance(keys, (pa.Array, pa.ChunkedArray)):
            keys = keys.to_pylist()
        elif not hasattr(keys, "columns") and hasattr(keys, "to_list"):  # a column of a pandas or Polars frame
            keys = keys.to_list()
        if isinstance(keys, (Mapping, pa.Table, pa.RecordBatch)) or hasattr(keys, "__arrow_c_stream__"):
            return to_table(keys)
        return [key if isinstance(key, Mapping) else self._key_row(key) for key in keys]

    def _key_row(self, key: Any) -> dict[str, Any]:
        parts = key if isinstance(key, (tuple, list)) else (key,)
        if len(parts) != len(self._key):
            raise DataError(f"a key has {len(self._key)} parts ({', '.join(self._key)}), and here are {len(parts)}")
        return dict(zip(self._key, parts, strict=True))


def whole(data: pa.Table | list[Mapping[str, Any]], puts: Mask, names: Sequence[str]) -> Any:
    """The same changes where drops that came as bare keys have nulls in the other columns."""
    if isinstance(data, pa.Table) or puts.all():
        return data
    blank = dict.fromkeys(names)
    return [row if put else {**blank, **row} for row, put in zip(data, puts, strict=True)]


def kinds_of(data: pa.Table | list[Mapping[str, Any]]) -> Mask:
    """Which changes are puts, by their `_change_type`."""
    words = _column(data, _CHANGE_TYPE)
    if words is None:
        raise DataError(f"there is no column {_CHANGE_TYPE}", hint="one of " + ", ".join(CHANGE_TYPES))
    for at, word in enumerate(words):
        if word not in CHANGE_TYPES:
            raise DataError(f"row {at + 1}: unknown {_CHANGE_TYPE}", hint="one of " + ", ".join(CHANGE_TYPES))
    return np.array([CHANGE_TYPES[word] for word in words], np.bool_)


def versions_of(data: pa.Table | list[Mapping[str, Any]]) -> list[Any] | None:
    """The `_commit_version` of each change, if there is such a column."""
    return _column(data, _VERSION)


@dataclass(slots=True)
class Orders:
    """Gives changes their order."""

    arrived: int = 0
    """Changes so far that had no sequence."""
    sequenced: bool = False
    """Whether a change had one: from then on a late change may arrive."""

    def of(self, sequence: Any, puts: Mask | bool, n: int) -> Ints:
        """The order of the next n changes, of which `sequence` is one number, one for each, or None."""
        if sequence is None:
            first = self.arrived - _SEQUENCES
            self.arrived += n
            return np.arange(first, first + n) * 2 + np.asarray(puts, np.int64)
        order = _order_of(sequence, puts, n)
        self.sequenced = True
        return order


def _order_of(sequence: Any, puts: Mask | bool, n: int) -> Ints:
    given = np.asarray(sequence)
    if isinstance(sequence, bool) or given.dtype.kind not in "iu" or given.shape not in ((), (n,)):
        if not (n == 0 and given.shape == (0,)):
            raise DataError("a sequence is one whole number, or one for each change", hint="from 0 to 2^62 - 1")
        given = given.astype(np.int64)
    if n and (given.min() < 0 or given.max() >= _SEQUENCES):
        raise DataError("a sequence lies outside its range", hint="from 0 to 2^62 - 1")
    return np.full(n, given, np.int64) * 2 + np.asarray(puts, np.int64)


def _column(data: pa.Table | list[Mapping[str, Any]], name: str) -> list[Any] | None:
    if isinstance(data, pa.Table):
        return list(flatten(data.column(name)).to_pylist()) if name in data.schema.names else None
    return [row.get(name) for row in data] if any(name in row for row in data) else None
