"""The tail: the newest few rows of a shard, unsorted, looked at one by one until there are enough for a run.

A change of one row must not pay for sorting and packing. Rows are appended to plain arrays, a side each; a probe scans
them all, which for up to `CAPACITY` rows is about as cheap as walking a tree. Appending is O(1), probing O(rows).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.rows import Rows, joined, stored_equals, take_rows
from weever_stream.index.probing import EVERY, OTHERS, scan_rows
from weever_stream.index.tree import ALIVE, PAIRS_AT_ONCE, Entries, Pairs
from weever_stream.index.tuples import TupleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weever_stream.detect.plan import Plan, Probe, Side
    from weever_stream.index.arrays import Bytes, Ints
    from weever_stream.index.arrays import Rows as Positions

__all__ = ["CAPACITY", "SMALL", "Tail", "scan"]

CAPACITY = 1024
"""Rows at which the tail becomes a run."""
SMALL = 256
"""A batch of more rows becomes a run at once."""


def scan(
    stored: Entries,
    n: int,
    probe: Probe,
    queries: Entries,
    *,
    within: bool,
    rule: int | None = None,
    dead: Bytes = ALIVE,
) -> Iterable[Pairs]:
    """Pairs of the queries with the first n stored entries; `within`: the queries are those entries' rows."""
    wanted, meets = probe.wanted(within=within, rule=rule), OTHERS if within else EVERY
    if len(queries) > SMALL:
        return _steps(stored, n, probe, queries, wanted, meets, dead)
    _, found, _, pairs = scan_rows(
        n, dead, stored.matrix, stored.rows, stored.codes, queries.matrix, queries.rows, queries.codes,
        stored.equals, probe.programs.packed, len(probe.programs.heads), wanted, meets, 0, _NO_LIMIT,
    )  # fmt: skip
    return (Pairs.of(pairs),) if found else ()


def _steps(
    stored: Entries, n: int, probe: Probe, queries: Entries, wanted: int, meets: int, dead: Bytes
) -> Iterator[Pairs]:
    """The pairs of many queries, a bounded number at a time."""
    at = 0
    while at < len(queries):
        at, found, _, pairs = scan_rows(
            n, dead, stored.matrix, stored.rows, stored.codes, queries.matrix, queries.rows, queries.codes,
            stored.equals, probe.programs.packed, len(probe.programs.heads), wanted, meets, at, PAIRS_AT_ONCE,
        )  # fmt: skip
        if found:
            yield Pairs.of(pairs)


_NO_LIMIT = np.iinfo(np.int64).max


class _Growing:
    """The entries of one side, with room for more."""

    def __init__(self, side: Side) -> None:
        self.n = 0
        equals, codes, gates = stored_equals(side), len(side.codes), (len(side.gates) + 63) // 64
        matrix = np.full((_ROOM, 1 + equals + codes + gates), -1, np.int64)
        self.entries = Entries(matrix, np.zeros(_ROOM, np.int32), equals, codes)

    def append(self, more: Entries, row: int) -> None:
        """Takes entries in; gates that they do not store are open, as all of the matrix is from the start."""
        end = self.n + len(more)
        self.entries.matrix[self.n : end, : more.matrix.shape[1]] = more.matrix
        self.entries.rows[self.n : end] = more.rows + np.int32(row)
        self.n = end

    def view(self) -> Entries:
        """What has been appended so far."""
        mine = self.entries
        return Entries(mine.matrix[: self.n], mine.rows[: self.n], mine.equals, mine.codes)


class Tail:
    """The newest rows of a shard."""

    def __init__(self, serial: int, plan: Plan, schema: pa.Schema) -> None:
        self.serial = serial
        self.n = 0
        self.order: Ints = np.zeros(_ROOM, np.int64)
        self.dead = TupleSet(_ROOM)
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._sides = [_Growing(side) for side in plan.sides]

    def __len__(self) -> int:
        return self.n

    def numbers(self, rows: Positions) -> Ints:
        """A number for each of some rows that no other row of the shard has."""
        return rows.astype(np.int64) + (self.serial << 32)

    @property
    def table(self) -> pa.RecordBatch:
        """The values of all rows. Joined when asked for: the stream of single changes never asks."""
        if len(self._batches) != 1:
            whole = pa.Table.from_batches(self._batches, self._schema).combine_chunks()
            self._batches, self._starts = whole.to_batches() or [pa.RecordBatch.from_pylist([], self._schema)], [0]
        return self._batches[0]

    def take(self, rows: Positions, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The values of some rows. A few are picked out of the batches they came in."""
        if not 0 < len(rows) <= _FEW or len(self._batches) == 1:
            return take_rows(self.table, rows, columns)
        picked = []
        for row in rows.tolist():
            batch = bisect_right(self._starts, row) - 1
            picked.append(self._batches[batch].slice(row - self._starts[batch], 1))
        one = joined(picked)
        return one if columns is None else one.select(columns)

    def append(self, rows: Rows) -> None:
        """Takes rows in, behind those it has."""
        end = self.n + len(rows)
        self.order[self.n : end] = rows.order
        self._batches.append(rows.table)
        self._starts.append(self.n)
        for side, entries in zip(self._sides, rows.sides, strict=True):
            side.append(entries, self.n)
        self.n = end

    def probe(
        self, probe: Probe, queries: Entries, *, within: bool = False, rule: int | None = None
    ) -> Iterable[Pairs]:
        """Pairs of the queries with the living rows; `within`: the queries are rows of the tail."""
        side = self._sides[probe.stored]
        return scan(side.entries, side.n, probe, queries, within=within, rule=rule, dead=self.dead.mask)

    def entries(self, side: int) -> Entries:
        """The rows as a side sees them, the dead too."""
        return self._sides[side].view()

    def rows(self) -> Rows:
        """Everything in it, the dead too."""
        return Rows(self.table, self.order[: self.n].copy(), tuple(side.view() for side in self._sides), ())

    def _check(self) -> None:
        """Asserts that all parts hold the same rows."""
        assert self.table.num_rows == self.n <= _ROOM, "values of every row"
        assert all(side.n <= self.n for side in self._sides), "no side has more rows than there are"
        self.dead._check()


_ROOM = CAPACITY + SMALL
_FEW = 8
