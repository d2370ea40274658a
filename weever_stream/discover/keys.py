"""The columns that identify a row, for the rule file that `discover` writes: `weever run` needs a key.

A key that was asked for is checked against the table. Otherwise the first column is taken that holds whole numbers or
text, has a value in every row, and never the same one twice. Cost: a pass over each column that is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["find_key"]


def find_key(table: pa.Table, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """The key of a table; nothing if no column is one. Raises `DataError` if what was asked for is no key."""
    if not asked:
        return next(((one.name,) for one in table.schema if table.num_rows > 1 and _identifies(table, one)), ())
    for name in asked:
        if nulls := table[name].null_count:
            raise DataError(f"{name} cannot be of the key: it is null in {nulls:,} rows", hint=_HINT)
    groups = table.select(list(asked)).group_by(list(asked)).aggregate([([], "count_all")]).num_rows
    if groups < table.num_rows:
        shared = f"{table.num_rows:,} rows have {groups:,} different values"
        raise DataError(f"{', '.join(asked)} is no key: {shared}", hint=_HINT)
    return tuple(asked)


_HINT = "name the columns that identify a row, or leave --key out"


def _identifies(table: pa.Table, one: pa.Field) -> bool:
    kind, column = one.type, table[one.name]
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    return bool(column.null_count == 0 and pc.count_distinct(column).as_py() == table.num_rows)
