"""Columns in the types that a rule file gives them under `columns:`.

A value that does not fit is refused with its column and row; nothing becomes null. Cost: one Arrow cast a column, and
a search by halving where it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from weever_stream.errors import DataError
from weever_stream.rules.types import type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.rules.types import ColumnType

__all__ = ["typed"]


def typed(table: pa.Table, types: Mapping[str, ColumnType], source: str) -> pa.Table:
    """The table with some columns in the given types. Raises `DataError` at the first value that does not fit."""
    for at, name in enumerate(table.column_names):
        wanted = types.get(name)
        if wanted is None or type_of_arrow(table.schema.field(name).type) == wanted:
            continue
        target = wanted.to_arrow()
        try:
            table = table.set_column(at, name, table[name].cast(target))
        except pa.ArrowNotImplementedError:
            raise DataError(
                f"{source}: column {name} is of type {table[name].type} and cannot become a {wanted}",
                hint="change its type under `columns:`",
            ) from None
        except pa.ArrowInvalid:
            row = _first_misfit(table[name], target)
            raise DataError(
                f"{source}: column {name}: the value in row {row + 1} is not a {wanted}",
                hint="mend the value, or change the type under `columns:`",
            ) from None
    return table


def _first_misfit(column: pa.ChunkedArray, target: pa.DataType) -> int:
    """The first row that cannot be cast, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(target)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low
