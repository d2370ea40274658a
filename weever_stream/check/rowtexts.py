"""The texts that stand for rows in a report: keys and values, as JSON and as fields of CSV.

Where rows stand in many pairs each row's texts are made only once. Cost: see `detect.texts`, per row or per pair,
whichever are fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.detect.texts import is_number, json_objects, json_strings, keys_of, side_by_side
from weever_stream.index.arrays import as_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.check.rownames import RowNames
    from weever_stream.index.arrays import Ints, Rows

__all__ = ["RowTexts"]


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
        return self._made[what].take(as_arrow(self._place[rows]))

    def _make(self, what: str, rows: Ints | Rows) -> pa.Array:
        table = self._names.rows(rows, self._columns)
        if what == "objects":
            return json_objects(table, table.column_names)
        if what in ("values", "csv_values"):
            return json_objects(table, self._columns, for_csv=what == "csv_values")
        keys = keys_of(table, self._names.columns)
        numbers = len(self._names.columns) == 1 and is_number(table.schema.field(0).type)
        if what == "keys" or (what == "csv_keys" and numbers):
            return keys
        if what == "csv_keys":
            return side_by_side('"', pc.replace_substring(keys, '"', '""'), '"')
        return side_by_side('"', keys, '"') if numbers else json_strings(keys)
