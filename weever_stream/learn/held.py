"""The rows of a table that is learned from, by key and by number, and which change of a key is the last.

Rows get ascending numbers as they come; a row that is changed goes and comes again under another one. The last change
of a key, by sequence, wins; older and repeated ones are stale and change nothing. Where changes have sequences of their
own the newest million of drops is remembered, so that what arrives after the drop of its row is known to be stale.

Cost: a look-up in a dictionary for each change, about 150 bytes a key besides the row itself.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.detect.identity import python_values
from weever_stream.detect.rows import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.index.arrays import Ints, Mask, Rows

__all__ = ["Change", "Held"]

_DROPS_REMEMBERED = 1_000_000
_NAN = "NaN"


class Change:
    """What a batch of changes does: rows that go, rows that come with their keys, and keys that are dropped."""

    def __init__(
        self, gone: Rows, rows: pa.RecordBatch, orders: Ints, keys: list[Any], dropped: dict[Any, int]
    ) -> None:
        self.gone, self.rows, self.orders, self.keys, self.dropped = gone, rows, orders, keys, dropped

    def __len__(self) -> int:
        """Changes that are not stale."""
        return int(self.rows.num_rows) + len(self.dropped)


class Held:
    """Rows by key and by number."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self.schema, self.key = schema, tuple(key)
        self.places: dict[Any, int] = {}
        self.orders: Ints = np.empty(0, np.int64)
        self.drops: dict[Any, int] = {}
        """Dropped keys that are remembered, the oldest first, with their order."""
        self._chunks: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self.size = 0

    def planned(self, batch: pa.RecordBatch, orders: Ints, puts: Mask) -> Change:
        """What some changes do, in whatever order they come; nothing is changed yet."""
        keys = self._keys(batch)
        if puts.all() and not self.drops and len(set(keys)) == len(keys) and self.places.keys().isdisjoint(keys):
            return Change(np.empty(0, np.int32), batch, orders, keys, {})
        last: dict[Any, int] = {}
        for at, key in enumerate(keys):
            if orders[at] >= orders[last.setdefault(key, at)]:
                last[key] = at
        gone: list[int] = []
        kept: list[int] = []
        dropped: dict[Any, int] = {}
        for key, at in last.items():
            place, order = self.places.get(key), int(orders[at])
            known = self.drops.get(key) if place is None else self.orders[place]
            if known is not None and order <= known:
                continue
            if place is not None:
                gone.append(place)
            if puts[at]:
                kept.append(at)
            else:
                dropped[key] = order  # of what is not there too: it may come later, and be older
        rows = batch.take(pa.array(kept, pa.int64()))
        return Change(np.array(gone, np.int32), rows, orders[kept], [keys[at] for at in kept], dropped)

    def take(self, change: Change, *, remember: bool) -> None:
        """Does what was planned."""
        for key, order in change.dropped.items():
            self.places.pop(key, None)
            self.drops[key] = order
        first = self.size
        for at, key in enumerate(change.keys):
            self.places[key] = first + at
            self.drops.pop(key, None)
        self.orders = np.concatenate([self.orders, change.orders])
        if change.rows.num_rows:
            self._add(change.rows)
        if not remember:
            self.drops.clear()
        while len(self.drops) > _DROPS_REMEMBERED:
            del self.drops[next(iter(self.drops))]

    def _add(self, rows: pa.RecordBatch) -> None:
        """Chunks of rows grow geometrically: the last are joined while they are of a size."""
        self._chunks.append(rows)
        self._starts.append(self.size)
        self.size += rows.num_rows
        while len(self._chunks) > 1 and self._chunks[-2].num_rows < 2 * self._chunks[-1].num_rows:
            self._chunks[-2:] = [joined(self._chunks[-2:])]
            self._starts.pop()

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Some rows, those included that have gone since the last `renumber`."""
        found = []
        for number in numbers:
            at = bisect_right(self._starts, number) - 1
            row = self._chunks[at].slice(number - self._starts[at], 1)
            found.append({name: python_values(row.column(name))[0] for name in self.schema.names})
        return found

    def table(self) -> pa.RecordBatch:
        """The rows that live, in the order in which they came."""
        if not self._chunks:
            return pa.RecordBatch.from_pylist([], self.schema)
        alive = np.zeros(self.size, np.bool_)
        alive[list(self.places.values())] = True
        return joined(self._chunks).filter(pa.array(alive))

    def renumber(self, places: Ints) -> None:
        """Rows have other numbers from now on, ascending as before; those at -1 are forgotten."""
        self._chunks, self._starts = [self.table()], [0]
        self.orders = self.orders[places >= 0]
        self.size = len(self.orders)
        self.places = {key: int(places[place]) for key, place in self.places.items()}

    def _keys(self, batch: pa.RecordBatch) -> list[Any]:
        columns = [_named(batch.column(name)) for name in self.key]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _check(self) -> None:
        """Asserts that keys and rows belong together."""
        assert len(set(self.places.values())) == len(self.places), "a row has one key"
        assert len(self.orders) == self.size == sum(chunk.num_rows for chunk in self._chunks), "every row has an order"
        assert not self.places.keys() & self.drops.keys(), "what is held is not dropped"
        assert sorted(self._keys(self.table()), key=repr) == sorted(self.places, key=repr), "keys are those of the rows"


def _named(column: pa.Array) -> list[object]:
    """Values as they name rows: NaN is equal to itself, and times are ticks, of which Python has them all."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    values = column.to_pylist()
    return [_NAN if value != value else value for value in values] if pa.types.is_floating(column.type) else values
