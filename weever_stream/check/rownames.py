"""How a report names rows: by the table's key, or by number where it has none.

A key must name every row: a null in it, or two rows that share it, is an error that says where. `rank` orders rows as
their keys do, by type and not as text (9 before 10), so that a symmetric pair always stands with the smaller key on the
left. Cost: one sort of the key's codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.check.exact import codes_of_column
from weever_stream.check.keys import Part, packed
from weever_stream.errors import DataError
from weever_stream.index.arrays import as_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.index.arrays import Ints, Rows

__all__ = ["NUMBER", "RowNames", "name_rows"]

NUMBER = "_row"
"""The column that numbers rows from 1 where there is no key; underscored further where the table has such a column."""
_HINT = "mend the key, or remove `key:` to number the rows instead"


@dataclass(frozen=True)
class RowNames:
    """The rows of a table with their names."""

    table: pa.Table
    key: tuple[str, ...]
    rank: Ints | None
    """The order of the rows by key; None where it is the order of the table."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that name a row."""
        number = NUMBER
        while number in self.table.column_names:
            number = "_" + number
        return self.key or (number,)

    def rows(self, positions: Ints | Rows, columns: Sequence[str]) -> pa.Table:
        """Some rows: the columns that name them, then the others asked for."""
        others = [name for name in columns if name not in self.key]
        taken = self.table.select([*self.key, *others]).take(as_arrow(positions))
        return taken if self.key else taken.add_column(0, self.columns[0], as_arrow(positions.astype(np.int64) + 1))

    def ordered(self, left: Rows, right: Rows) -> tuple[Rows, Rows]:
        """The pairs, each with the smaller key on the left."""
        one, other = (left, right) if self.rank is None else (self.rank[left], self.rank[right])
        turned = one > other
        return np.where(turned, right, left), np.where(turned, left, right)


def name_rows(table: pa.Table, key: Sequence[str]) -> RowNames:
    """Checks that the key, columns of the table, names every row."""
    if not key:
        return RowNames(table, (), None)
    parts = []
    for name in key:
        codes = codes_of_column(table, name)
        if codes.valid is not None and not codes.valid.all():
            missing = np.flatnonzero(~codes.valid)
            raise DataError(
                f"the key column {name} is null in {len(missing)} row{'s' * (len(missing) != 1)}, first in row "
                f"{int(missing[0]) + 1}",
                hint=_HINT,
            )
        parts.append(Part(codes.values, codes.values))
    rank = packed(parts, (table.num_rows, table.num_rows)).left
    _refuse_repeats(rank, key)
    return RowNames(table, tuple(key), rank)


def _refuse_repeats(rank: Ints, key: Sequence[str]) -> None:
    ordered = np.sort(rank)
    again = ordered[1:] == ordered[:-1]
    if not again.any():
        return
    order = np.argsort(rank, kind="stable")
    repeats = np.flatnonzero(rank[order][1:] == rank[order][:-1])
    first, second = min((int(order[at + 1]), int(order[at])) for at in repeats[:100_000])[::-1]
    keys = len(np.unique(rank[order[repeats]]))
    raise DataError(
        f"the key ({', '.join(key)}) is not unique: {keys} value{'s' * (keys != 1)} stand{'s' * (keys == 1)} in more "
        f"than one row, first in rows {first + 1} and {second + 1}",
        hint=_HINT,
    )
