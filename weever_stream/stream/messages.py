"""What travels to a shard: rows, which families they visit in which role, and keys to drop wherever they are held.

A message is one binary value, so numbers and times cross Spark's pandas boundary as Arrow wrote them: exact, with nulls
that stay nulls. A shard gets several messages a batch and reads them as one. Messages of the lane (see `lane`) come
among them: those that fill a new generation of families say which, and are counted; what moves to other shards is
filled in silence. Cost: linear in the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.sections import Format, ipc, pieces, read_ipc, unpacked
from weever_stream.index.arrays import as_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.index.arrays import Ints

__all__ = ["ONLY", "PUT", "ROW", "SEQUENCE", "Message", "joined_tables", "one_batch"]

_FORMAT = Format(b"WEEVERMS", 1, "a message to a shard", "this is an error of ours; please report it")
SEQUENCE, PUT, ROW, ONLY = "_weever_sequence", "_weever_put", "_weever_row", "_weever_only"


@dataclass
class Message:
    """A part of a batch for one shard."""

    rows: pa.Table
    """Rows that visit some family here, with `SEQUENCE`, and `PUT`: whether they come or go."""
    visits: pa.Table
    """`family`, `row` (a position in `rows`), and `role`: 1 for left, 2 for right, 3 for both."""
    drops: pa.Table
    """Keys to drop from every family; `SEQUENCE`, in `ROW` the position in `rows` that replaces it here, or -1, and in
    `ONLY` the generation whose families they are for, or -1."""
    clear: int = -1
    """All rows with a smaller sequence go."""
    fills: Mapping[int, int] = field(default_factory=dict)
    """Generations of families that it helps to fill, with the number of messages that do."""

    def pack(self, *, silent: bool = False) -> bytes:
        """The message as one value. `silent`: the pairs of its rows have been told."""
        sections = [("rows", ipc(self.rows)), ("visits", ipc(self.visits)), ("drops", ipc(self.drops))]
        contents = {"clear": self.clear, "fills": list(self.fills), "silent": silent}
        return b"".join(pieces(_FORMAT, contents, sections))

    @classmethod
    def unpack(cls, bodies: Sequence[bytes], *, silent: bool = False) -> Message | None:
        """Several messages as one: the silent ones, or the others. None if there are none."""
        rows, visits, drops, clear, start = [], [], [], -1, 0
        fills: dict[int, int] = {}
        for body in bodies:
            contents, sections = unpacked(_FORMAT, "a message", body, trusted=True)
            if contents["silent"] is not silent:
                continue
            mine, visiting, dropping = (read_ipc(section) for section in sections)
            rows.append(mine)
            visits.append(_moved(visiting, "row", start))
            drops.append(_moved(dropping, ROW, start))
            clear, start = max(clear, contents["clear"]), start + mine.num_rows
            for generation in contents["fills"]:
                fills[generation] = fills.get(generation, 0) + 1
        if not rows:
            return None
        return cls(joined_tables(rows), joined_tables(visits), joined_tables(drops), clear, fills)


def joined_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other, in one piece. One of an earlier set of rules may lack columns: they are null."""
    if len(tables) > 1:
        return pa.concat_tables(tables, promote_options="default").combine_chunks()
    return tables[0].combine_chunks()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table of at least one row in one piece."""
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _moved(table: pa.Table, name: str, by: int) -> pa.Table:
    """Positions further on by the rows that came before; -1 stays."""
    if not by or not table.num_rows:
        return table
    old: Ints = table.column(name).to_numpy()
    return table.set_column(table.schema.names.index(name), name, as_arrow(np.where(old < 0, old, old + np.int32(by))))
