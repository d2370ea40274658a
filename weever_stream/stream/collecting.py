"""The changes of a micro-batch, brought to the driver: the last one of each key, as Arrow.

For what lives in the driver, as a learner does. Values come as Arrow columns and never through pandas, where a null
would turn numbers into floats; they get the types in which shards store them too. The last change of a key wins, by
sequence, and at one sequence a put comes after a drop, as in a shard. All changes of the batch cross to the driver: for
the first batch of a job that is the table, and `spark.driver.maxResultSize` (1 GB by default) must allow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from weever_stream.feeds.changes import CHANGE, CLEAR, PUT, PUT_ANYWHERE, REJECT, SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

__all__ = ["DELETE", "TYPE", "UPSERT", "VERSION", "Collected", "collected", "last_of_each", "removals"]

TYPE, VERSION = "_change_type", "_commit_version"
UPSERT, DELETE = "upsert", "delete"
_PLACE = "_weever_place"


@dataclass(frozen=True)
class Collected:
    """What a batch changes."""

    changes: pa.Table
    """The columns, `_change_type` (upsert, delete) and `_commit_version`; one row for each key."""
    cleared: int | None
    """The sequence at which the whole table was emptied; changes are those since."""
    records: int
    """Changes as the source told them."""
    rejected: int

    def after_clearing(self, keys: pa.Table) -> pa.Table:
        """The changes, with those keys removed that were held when the table was emptied."""
        if self.cleared is None:
            return self.changes
        gone = removals(keys, self.changes.schema, self.cleared)
        return last_of_each(pa.concat_tables([gone, self.changes]), keys.schema.names)


def collected(frame: DataFrame, key: Sequence[str], columns: pa.Schema) -> Collected:
    """The changes of a batch's change frame."""
    quoted = [F.col("`" + name.replace("`", "``") + "`") for name in columns.names]
    told = frame.select(*quoted, CHANGE, SEQUENCE).toArrow()
    kind = told.column(CHANGE).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    sequence = told.column(SEQUENCE).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    clears = sequence[kind == CLEAR]
    cleared = int(clears.max()) if len(clears) else None
    chosen = np.flatnonzero((kind != CLEAR) & (kind != REJECT) & (sequence >= (-1 if cleared is None else cleared)))
    put = (kind == PUT) | (kind == PUT_ANYWHERE)
    chosen = chosen[np.argsort(2 * sequence[chosen] + put[chosen], kind="stable")]
    rows = told.select(list(columns.names)).take(pa.array(chosen)).cast(columns)
    names = pa.array(np.where(put[chosen], UPSERT, DELETE), pa.string())
    rows = rows.append_column(TYPE, names).append_column(VERSION, pa.array(sequence[chosen], pa.int64()))
    rejected = int((kind == REJECT).sum())
    return Collected(last_of_each(rows, key), cleared, told.num_rows - rejected, rejected)


def last_of_each(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order in which they stand."""
    if not changes.num_rows:
        return changes
    numbered = changes.select(list(key)).append_column(_PLACE, pa.array(np.arange(changes.num_rows)))
    last = numbered.group_by(list(key), use_threads=False).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    if len(last) == changes.num_rows:
        return changes
    return changes.take(last.combine_chunks().sort())


def removals(keys: pa.Table, schema: pa.Schema, sequence: int) -> pa.Table:
    """Changes that remove these keys."""
    n = keys.num_rows
    fixed = {TYPE: pa.repeat(DELETE, n), VERSION: pa.array(np.full(n, sequence), pa.int64())}
    columns = {name: keys.column(name) for name in keys.schema.names} | fixed
    return pa.table([columns.get(field.name, pa.nulls(n, field.type)) for field in schema], schema=schema)
