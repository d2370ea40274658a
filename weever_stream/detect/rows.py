"""Rows as a plan sees them: their values, and for every side the keys, codes and gate bits that the index needs.

`Encoder` turns a table into `Rows`, once for all rules; each code column is computed once however many rules read it.
Rows that a null keeps out of a family, or that pass no gate of a side, are not among that side's entries. Cost: one
vectorised pass a code column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.filters import passes
from weever_stream.detect.flood import FIRST, LUCK, is_mark, mark_passes
from weever_stream.index import hashing
from weever_stream.index.arrays import as_arrow, numbers
from weever_stream.index.codes import encode
from weever_stream.index.tree import Entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.detect.plan import Gate, Plan, Side
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.index.arrays import Rows as Positions

__all__ = ["Encoder", "Rows", "joined", "stored_equals", "take_rows"]


@dataclass(slots=True, eq=False)
class Rows:
    """Values, sequence and index entries of some rows, aligned by position."""

    table: pa.RecordBatch
    order: Ints
    """Sequence times two, plus one for a put: the later change of a key is the larger."""
    sides: tuple[Entries, ...]
    violating: tuple[Positions, ...]
    """Per one-row rule the positions that violate it."""

    def __len__(self) -> int:
        return len(self.order)

    def numbers(self, rows: Positions) -> Ints:
        """Rows that are not held yet have no numbers but their positions."""
        return rows.astype(np.int64)

    def take(self, rows: Positions, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The values of some rows."""
        return take_rows(self.table, rows, columns)

    def keep(self, kept: Mask) -> Rows:
        """Some of the rows, renumbered."""
        place = np.where(kept, np.cumsum(kept, dtype=np.int32) - np.int32(1), np.int32(-1))
        return Rows(
            self.table.filter(pa.array(kept)),
            self.order[kept],
            tuple(entries.at(place[entries.rows]) for entries in self.sides),
            tuple(place[rows][place[rows] >= 0] for rows in self.violating),
        )


def take_rows(table: pa.RecordBatch, rows: Positions, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Some rows of a batch, all columns or some."""
    return (table if columns is None else table.select(columns)).take(as_arrow(rows))


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several that share a schema."""
    schema = batches[0].schema
    arrays = [pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(slots=True, eq=False)
class _Seen:
    """What is known of some rows while they are encoded."""

    table: pa.RecordBatch
    valid: dict[str, Mask]
    """The columns that have nulls, and where they have none."""
    known: dict[int, Mask]
    """The same by code."""
    filtered: dict[object, Mask]
    """The rows that pass a filter, of those that were looked at so far."""
    puts: Mask | None
    calm: bool


class Encoder:
    """Makes `Rows` for one plan, from batches that hold the plan's columns in the plan's order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._one_row = [gate for _, gate in plan.one_row]
        places = {name: at for at, name in enumerate(plan.stored_columns)}
        codes = [(number, code.column, places[code.column]) for number, code in enumerate(plan.codes)]
        self._codes = [(*code, plan.codes[code[0]].coding) for code in codes if not is_mark(code[1])]
        self._marks = [(number, at) for number, name, at in codes if is_mark(name)]
        self._levels = [at for name, at in places.items() if is_mark(name) and name != LUCK]
        self._luck = places.get(LUCK, -1)
        sampled = {probe.stored for probe in plan.probes[len(plan.counting) :]} if plan.capped else set()
        sampled |= {probe.queries for probe in plan.probes[len(plan.counting) :]} if plan.capped else set()
        self._sides = [
            (side, _places(side.equals), _places((*side.equals[: stored_equals(side)], *side.codes)), at in sampled)
            for at, side in enumerate(plan.sides)
        ]

    def rows(self, table: pa.RecordBatch, order: Ints, *, drops: bool = True) -> Rows:
        """Encodes a batch. Drops (even order; `drops` tells whether there may be any) are on the key side only."""
        n = table.num_rows
        matrix = np.empty((n, len(self._plan.codes)), np.int64)
        valid: dict[str, Mask] = {}
        known: dict[int, Mask] = {}
        filtered: dict[object, Mask] = {}
        columns = table.columns
        for number, name, at, how in self._codes:
            matrix[:, number], present = encode(columns[at], how)
            if present is not None:
                valid[name] = known[number] = present
        puts = (order & 1).astype(np.bool_) if drops else None
        if puts is not None and puts.all():
            puts = None
        positions = np.arange(n, dtype=np.int32)
        few, calm = (positions[:0], True) if self._luck < 0 else self._few(columns)
        seen = _Seen(table, valid, known, filtered, puts, calm)
        some = self._some(seen, matrix, few) if len(few) else None
        sides = tuple(
            (self._entries(side, hashing.keyed(some[1], equals, stored), few, some[0]) if some else _nothing(side))
            if sampled
            else self._entries(side, hashing.keyed(matrix, equals, stored), positions, seen)
            for side, equals, stored, sampled in self._sides
        )
        if not self._one_row:
            return Rows(table, order, sides, ())
        opens = (self._opens(gate, table, valid, filtered) for gate in self._one_row)
        violating = (np.flatnonzero(open_ if puts is None else open_ & puts) for open_ in opens)
        return Rows(table, order, sides, tuple(rows.astype(np.int32) for rows in violating))

    def _few(self, columns: Sequence[pa.Array]) -> tuple[Positions, bool]:
        """The rows that the index of samples is about, and whether all rows are calm."""
        useful = numbers(columns[self._luck], "i") >= FIRST
        calm = True
        for at in self._levels:
            levels = numbers(columns[at], "i")
            if levels.any():
                useful |= levels > 0
                calm = False
        return np.flatnonzero(useful).astype(np.int32), calm

    def _some(self, seen: _Seen, matrix: Ints, few: Positions) -> tuple[_Seen, Ints]:
        """Some of the rows, with the codes of luck and levels that only they need."""
        codes = matrix[few]
        for number, at in self._marks:
            codes[:, number] = numbers(seen.table.column(at), "i")[few]
        valid = {name: mask[few] for name, mask in seen.valid.items()}
        known = {number: mask[few] for number, mask in seen.known.items()}
        puts = None if seen.puts is None else seen.puts[few]
        return _Seen(seen.table.take(as_arrow(few)), valid, known, {}, puts, seen.calm), codes

    def _entries(self, side: Side, matrix: Ints, positions: Positions, seen: _Seen) -> Entries:
        kept, known = None if side.role == "key" else seen.puts, seen.known
        if seen.valid or not side.always_open or not seen.calm:
            gates = self._gates(side, seen.table, seen.valid, seen.filtered)
            if not (gates == -1).all():  # gates that are not stored are open
                matrix = np.ascontiguousarray(np.hstack([matrix, gates]))
                if side.gated:
                    useful: Mask = np.any(gates & _bits(len(side.gates)), axis=1)
                    kept = useful if kept is None else kept & useful
        entries = Entries(matrix, positions, stored_equals(side), len(side.codes))
        for number in side.equals if known else ():
            if number in known:
                kept = known[number] if kept is None else kept & known[number]
        return entries if kept is None else entries.take(np.flatnonzero(kept))

    def _gates(self, side: Side, table: pa.RecordBatch, valid: dict[str, Mask], known: dict[object, Mask]) -> Ints:
        """Gate bits of every row."""
        bits = np.full((table.num_rows, (len(side.gates) + 63) // 64), -1, np.int64)
        for gate, number in side.gates.items():
            if gate.filters or not valid.keys().isdisjoint(gate.not_null):
                closed = ~self._opens(gate, table, valid, known)
                bits[closed, number >> 6] &= ~(np.int64(1) << np.int64(number & 63))
        return bits

    def _opens(self, gate: Gate, table: pa.RecordBatch, valid: dict[str, Mask], known: dict[object, Mask]) -> Mask:
        """Which rows pass a gate. A filter that several gates share is looked at once."""
        opens = np.ones(table.num_rows, np.bool_)
        for filtered in gate.filters:
            if filtered not in known:
                mark = is_mark(filtered.left.name)
                known[filtered] = mark_passes(table, filtered) if mark else passes(table, [filtered])
            opens &= known[filtered]
        for name in gate.not_null & valid.keys():
            opens &= valid[name]
        return opens


def _nothing(side: Side) -> Entries:
    """No entries of a side."""
    width = 1 + stored_equals(side) + len(side.codes)
    return Entries(np.empty((0, width), np.int64), np.empty(0, np.int32), stored_equals(side), len(side.codes))


def _bits(n: int) -> Ints:
    """The first n bits, in words of 64."""
    return np.array([-1 if left >= 64 else (1 << left) - 1 for left in range(n, 0, -64)], np.int64)


def _places(codes: Sequence[int]) -> Ints:
    return np.array(codes, np.int64)


def stored_equals(side: Side) -> int:
    """How many equality codes lie beside the key: none for one column, whose mixed key proves equality alone."""
    return 0 if len(side.equals) < 2 and hashing.HASH_BITS == 64 else len(side.equals)
