"""How a table that does not fit one machine is cut into parts, so that all pairs of rows that matter meet in a part.

A *route* is a column, or none. By a column rows go to buckets by the hash of their value: rows that agree on it meet in
their bucket, and a row without a value meets nobody. Without a column all rows are in one bucket. A bucket that is too
large is cut into blocks of rows at random, and each two blocks are a part: so all its pairs meet, however skewed the
column is, and no part has more than about `rows_at_once` rows.

A rule with `t.A = s.A` can take the route of A, any rule the route without a column, whose parts grow with the square
of the rows. Each rule takes the route that copies the rows least often. No Spark in here: `Cover.routed` is what a
Spark task does with its rows. Cost: a hash a row and route, and the copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.index.codes import coding, encode
from weever_stream.index.hashing import mix_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weever_stream.index.arrays import Ints
    from weever_stream.rules.types import ColumnType

__all__ = ["Cover", "Part", "Route", "buckets_of", "choose_routes"]

_BLOCKS = 0x5EED
"""Keeps the blocks of a row from following its bucket, where a column holds the numbers of rows."""


@dataclass(frozen=True)
class Route:
    """A column by whose values rows meet (None: all do), and in how many blocks each of its buckets is cut."""

    column: str | None
    blocks: Ints
    copies: float
    """How often a row goes to a part."""

    @classmethod
    def of(cls, column: str | None, sizes: Ints, rows_at_once: int) -> Route:
        """The route whose buckets have so many rows: one part if they fit, else two blocks to a part."""
        half = max(1, rows_at_once // 2)
        blocks = np.where(sizes <= rows_at_once, 1, -(-sizes // half))
        copied = (sizes * np.maximum(1, blocks - 1)).sum()
        return cls(column, blocks, float(copied / max(1, sizes.sum())))


@dataclass(frozen=True)
class Part:
    """What is known of a part by its number."""

    route: int
    again: Mapping[int, int]
    """Blocks of which this part must take away what all parts together count too often, and how often."""


@dataclass(frozen=True)
class Cover:
    """Some routes, with their parts numbered one after the other."""

    routes: tuple[Route, ...]
    types: Mapping[str, ColumnType]

    @cached_property
    def _firsts(self) -> list[Ints]:
        """For each route the number of the first part of each bucket. A bucket of k blocks has room for k * k."""
        first, found = 0, []
        for route in self.routes:
            ends = first + np.cumsum(route.blocks**2)
            found.append(np.concatenate([[first], ends]))
            first = int(ends[-1])
        return found

    def part(self, number: int) -> Part:
        """The part of a number."""
        route = next(at for at, firsts in enumerate(self._firsts) if number < firsts[-1])
        firsts = self._firsts[route]
        bucket = int(np.searchsorted(firsts, number, "right")) - 1
        blocks = int(self.routes[route].blocks[bucket])
        one, other = divmod(number - int(firsts[bucket]), blocks)
        # Each block is in blocks - 1 parts. The part with its successor answers for it; the last has none.
        mine = [one] if other == one + 1 else []
        if other == blocks - 1 == one + 1:
            mine.append(other)
        return Part(route, dict.fromkeys(mine, blocks - 2))

    def routed(self, rows: pa.RecordBatch, ids: Ints) -> Iterator[tuple[Ints, Ints, pa.RecordBatch]]:
        """The rows with the number of a part and their block in it, once for each part that they go to."""
        for route, firsts in zip(self.routes, self._firsts, strict=True):
            if route.column is None:
                places, bucket = np.arange(rows.num_rows), np.zeros(rows.num_rows, np.int64)
            else:
                places, bucket = buckets_of(rows[route.column], self.types[route.column], len(route.blocks))
            blocks = route.blocks[bucket]
            own = _chosen(np.stack([ids[places], np.full(len(places), _BLOCKS)], 1), blocks)
            alone = np.flatnonzero(blocks == 1)
            if len(alone):
                yield firsts[bucket[alone]], own[alone], rows.take(pa.array(places[alone]))
            for step in range(1, int(blocks.max(initial=1))):
                some = np.flatnonzero(blocks > step)
                mine, size = own[some], blocks[some]
                other = (mine + step) % size
                part = firsts[bucket[some]] + np.minimum(mine, other) * size + np.maximum(mine, other)
                yield part, mine, rows.take(pa.array(places[some]))


def buckets_of(column: pa.Array, kind: ColumnType, buckets: int) -> tuple[Ints, Ints]:
    """The rows that have a value, and the bucket of each. Equal values have equal codes, however they are written."""
    codes, valid = encode(column, coding(kind, ordered=False))
    places = np.arange(len(codes)) if valid is None else np.flatnonzero(valid)
    return places, _chosen(codes[places].reshape(-1, 1), np.full(len(places), buckets, np.int64))


def _chosen(codes: Ints, sizes: Ints) -> Ints:
    """One of so many, by the hash of some codes."""
    if not len(codes):
        return np.empty(0, np.int64)
    return (mix_keys(codes).view(np.uint64) % sizes.astype(np.uint64)).astype(np.int64)


def choose_routes(
    equalities: Sequence[frozenset[str]], routes: Mapping[str | None, Route]
) -> list[tuple[Route, list[int]]]:
    """For rules with these columns equal on both rows: routes, few of them, each with the rules that take it."""
    chosen: dict[str | None, list[int]] = {}
    wanted: dict[int, list[str]] = {}
    for at, columns in enumerate(equalities):
        least = min((routes[name].copies for name in columns), default=np.inf)
        if least >= routes[None].copies:
            chosen.setdefault(None, []).append(at)
        else:
            wanted[at] = sorted(name for name in columns if routes[name].copies <= least)
    while wanted:
        asked = [name for names in wanted.values() for name in names]
        best = max(sorted(set(asked)), key=asked.count)
        chosen[best] = [at for at, names in wanted.items() if best in names]
        wanted = {at: names for at, names in wanted.items() if best not in names}
    return [(routes[name], rules) for name, rules in chosen.items()]
