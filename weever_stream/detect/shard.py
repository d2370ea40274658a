"""The heart: a set of rows kept under changes, and the violations that each batch of changes adds and removes.

`Shard.apply` promises: the rows held afterwards are the last change of every key by sequence; the pairs it yields are
the exact net difference between the violations before and after. Stale and repeated changes do nothing. A batch that
is not read to its end, or fails, leaves the shard as it was. No ledger of violations is kept: what a row's departure
ends is found by probing once more.

A row that comes with more than `cap` partners under a rule lists only some of its pairs (see `flood`, `moving`); the
others are counted in `unlisted`. That needs a capped plan.

Cost of a batch: the probes of the rows that come and go, the pairs they make, and O(log n) copies of each new row over
its life; nothing else grows with the number of rows held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.batch import Held, RowsOfBatch, split_by_cancelling
from weever_stream.detect.flood import Marker
from weever_stream.detect.forest import Forest
from weever_stream.detect.found import Found, cancel, confirmed, resolve
from weever_stream.detect.moving import Finder, Moving, in_key_order
from weever_stream.detect.rows import Encoder, Rows, joined
from weever_stream.detect.run import Run, Shape
from weever_stream.detect.tail import Tail
from weever_stream.index.arrangement import UNORDERED
from weever_stream.index.tree import FANOUT, LEAF
from weever_stream.index.tuples import TupleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyroaring import BitMap

    from weever_stream.detect.plan import Plan
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.index.arrays import Rows as Positions
    from weever_stream.index.tree import Entries, Tree

__all__ = ["DROPS_REMEMBERED", "Shard", "Tally", "Tools"]

DROPS_REMEMBERED = 1_000_000
"""As many as `Detector` asks for."""


@dataclass
class Tally:
    """What became of the changes so far."""

    puts: int = 0
    drops: int = 0
    replaced: int = 0
    """Puts of a key that was held."""
    stale: int = 0
    """Changes that were older than, or the same as, what was held or came later in their batch."""
    superseded: int = 0
    """Of these, the ones that a change of their own batch overtook: an update's old row, for example."""
    unknown_drops: int = 0
    """Drops of a key that was not held; where drops are remembered, they count as drops."""


class Tools:
    """What all shards of a plan have in common. Making it takes as long as a small batch, so a keeper makes it once."""

    def __init__(self, plan: Plan, schema: pa.Schema, *, leaf: int = LEAF, fanout: int = FANOUT) -> None:
        self.plan = plan
        self.marker = Marker(plan, schema) if plan.capped else None
        self.schema = self.marker.schema if self.marker else schema
        self.shape = Shape(plan, leaf, fanout)
        self.encoder = Encoder(plan)
        self.symmetric = [bound.rule.symmetric for bound in plan.rules]


class Shard:
    """Rows, their indexes, and the rules over them.

    `remember_drops` keeps the sequence of that many dropped keys too, so that a change which arrives after the drop of
    its row is known to be stale. The newest are kept, twice as many at most: state must not grow with the history.
    `cap` is the number of partners above which a row lists only some of its pairs; 0 for none. It may differ from one
    batch to the next.
    """

    def __init__(
        self, plan: Plan, schema: pa.Schema, *, remember_drops: int = 0, cap: int = 0, leaf: int = LEAF,
        fanout: int = FANOUT, tools: Tools | None = None,
    ) -> None:  # fmt: skip
        """`tools`: those of the same plan, schema, leaf size and fan-out, if they have been made."""
        assert plan.by_key is not None, "a shard's plan has a key"
        assert plan.capped or not cap, "only rows of a capped plan have levels"
        self.plan = plan
        self.cap = cap
        self.by_key = plan.by_key
        self.remember_drops = remember_drops
        self.counts: list[int] = [0] * len(plan.rules)
        """Living violations that are listed."""
        self.unlisted: list[int] = [0] * len(plan.rules)
        """Those that are not."""
        self.tally = Tally()
        self.duplicates = 0
        """Puts of a key that had a row, and nothing dropped it: of an update the old row is dropped. Not saved."""
        self.backfilled = False
        """Whether rows may arrive twice, from a backfill and from a snapshot: then a put of the same order as the
        stored row is no duplicate. Not saved."""
        self.drops_held = 0
        """Remembered drops, at most."""
        self.numbered = 0
        """The last row number given out, for a table without a key."""
        self._rows_held: int | None = None
        """Rows held, once somebody has asked."""
        tools = tools or Tools(plan, schema, leaf=leaf, fanout=fanout)
        self._marker, self._encoder, self._symmetric = tools.marker, tools.encoder, tools.symmetric
        self.forest = Forest(tools.shape, tools.schema)
        self._finder = Finder(plan, self.forest, self._encoder)

    def apply(self, table: pa.RecordBatch, order: Ints, *, drops: bool = True) -> Iterator[Found]:
        """Applies changes: rows with the plan's columns (a drop needs only its key) and their order (see `Rows`).

        `drops`: whether there may be any among them.
        """
        before, held, duplicates = vars(self.tally).copy(), Held(), self.duplicates
        try:
            rows = self._encode(table, order, drops=drops)
            keys = self._keys(rows)
            latest, dropped = self._latest(rows, keys[0])
            if latest is not rows:
                rows, keys = latest, self._keys(latest)
            found = self._held(rows, keys[0])
            for part, stored, changes in found:
                was, now = part.order[stored], rows.order[changes]
                again = (was & now & 1 > 0) & ~dropped[changes]
                if self.backfilled:
                    again &= was != now
                self.duplicates += int(again.sum())
            all_fresh = True
            if found.parts or drops:
                rows, found, all_fresh = self._fresh(rows, found)
            held = found
            for part, dying, _ in held:
                part.dead.add(dying)
            yield from self._difference(rows, held, keys[1] if all_fresh else None, drops=drops)
        except BaseException:
            self.tally, self.duplicates = Tally(**before), duplicates
            for part, dying, _ in held:
                part.dead.discard(dying)
            raise
        self._tidy(wilting=bool(held.parts))

    def restore(self, runs: Iterable[Run], newest: tuple[pa.RecordBatch, Ints, BitMap] | None) -> None:
        """Takes in the runs of an empty shard that was saved, and the rows, order and dead of its tail."""
        self._rows_held = None
        for run in runs:
            self.forest.plant(run)
        if newest is not None:
            table, order, dead = newest
            tail = self.forest.tail
            tail.append(self._encoder.rows(table, order))
            tail.dead = TupleSet(tail.dead.n, dead)

    def _encode(self, table: pa.RecordBatch, order: Ints, *, drops: bool) -> Rows:
        """The rows of a batch that comes from outside, without the columns that only the cap has."""
        return self._encoder.rows(self._marker.marked(table) if self._marker else table, order, drops=drops)

    def _keys(self, rows: Rows) -> tuple[Entries, Tree | None]:
        """The keys of a batch in order, so that look-ups walk memory in one direction; the tree of a large one."""
        entries = rows.sides[-1]
        if self.forest.fits_tail(len(rows)):
            return in_key_order(entries), None
        tree = self.forest.shape.build(len(self.plan.sides) - 1, entries, UNORDERED)
        return tree.entries(), tree

    def held(self) -> int:
        """Rows held, remembered drops aside. Counted the first time, and kept from then on."""
        if self._rows_held is None:
            self._rows_held = sum(int((part.order[_living(part)] & 1).sum()) for part in self.forest)
        return self._rows_held

    def repeated(self, table: pa.RecordBatch) -> Positions:
        """Rows whose key is stored already or occurs twice among them."""
        rows = self._encode(table, np.ones(table.num_rows, np.int64), drops=False)
        again = np.zeros(len(rows), np.bool_)
        for part, stored, changes in self._held(rows, self._keys(rows)[0]):
            again[changes[part.order[stored] & 1 > 0]] = True
        seen: set[tuple[object, ...]] = set()
        for row, key in enumerate(self._identities(rows, np.ones(len(rows), np.bool_))):
            again[row] |= key in seen
            seen.add(key)
        return np.flatnonzero(again).astype(np.int32)

    def _difference(self, rows: Rows, held: Held, keys: Tree | None, *, drops: bool) -> Iterator[Found]:
        """The net change of the violations; the rows come in once it is read."""
        serial = self.forest.serial()
        gone, gone_set, come_set = self._sets(rows, held, serial)
        counts, unlisted = self.counts.copy(), self.unlisted.copy()
        removed: list[Found] = []
        added: list[Found] = []
        trees = None
        if not self.forest.fits_tail(len(rows)):
            trees = self.forest.shape.trees(rows, self.forest.largest, keys=keys)
        going, coming = Moving(gone, gone_set, -1), Moving(rows, come_set, 1, trees)
        before = after = self._finder.census() if self.plan.capped else None
        if self.cap and len(rows):
            after = self._finder.cap(coming, self.cap, before)
        for moving, later, census in ((going, removed, before), (coming, added, after)):
            if not len(moving.rows):
                continue
            if census is not None:
                self._finder.count(moving, census)
            for found in self._finder.pairs(moving):
                for piece, again in split_by_cancelling(found, moving.known):
                    counts[found.rule] += moving.sign * len(piece)
                    if again:
                        later.append(piece)
                    else:
                        yield piece
            for rule, n in enumerate(moving.unlisted or ()):
                unlisted[rule] += moving.sign * n
        if removed or added:
            yield from cancel(removed, added, self._symmetric)
        self._commit(serial, coming.rows, coming.trees, drops=drops)
        self.counts, self.unlisted = counts, unlisted
        if self._rows_held is not None:
            self._rows_held += int((rows.order & 1).sum()) - len(gone)

    def _commit(self, serial: int, rows: Rows, trees: tuple[Tree | None, ...] | None, *, drops: bool) -> None:
        """Lets the rows in; drops only where their sequence must be remembered."""
        if drops:
            puts = (rows.order & 1).astype(np.bool_)
            self.tally.drops += int(len(rows) - puts.sum())
            if not puts.all() and not self.remember_drops:
                rows = rows.keep(puts)
                trees = None if trees is None else self.forest.shape.trees(rows, self.forest.largest)
            self.tally.puts += int(puts.sum())
            self.drops_held += int(len(puts) - puts.sum()) if self.remember_drops else 0
        else:
            self.tally.puts += len(rows)
        self.forest.add(serial, rows, trees)

    def _tidy(self, *, wilting: bool) -> None:
        """Work that changes nothing but the room things take."""
        if self.drops_held > 2 * self.remember_drops:
            self.forget_drops()
        if wilting:
            self.forest.prune()

    def forget_drops(self) -> None:
        """Counts the remembered drops and lets go of the oldest. Rare enough to look at every row."""
        drops = [(part, rows[part.order[rows] & 1 == 0]) for part in self.forest for rows in [_living(part)]]
        self.drops_held = sum(len(rows) for _, rows in drops)
        if self.drops_held > self.remember_drops:
            orders = np.concatenate([part.order[rows] for part, rows in drops])
            oldest = np.zeros(len(orders), np.bool_)
            oldest[np.argsort(orders)[: self.drops_held - self.remember_drops]] = True
            at = 0
            for part, rows in drops:
                part.dead.add(rows[oldest[at : at + len(rows)]])
                at += len(rows)
            self.drops_held = self.remember_drops
            self.forest.prune()

    def _latest(self, rows: Rows, keys: Entries) -> tuple[Rows, Mask]:
        """One change per key: the last by order, and of equal ones the last that came. And which have a drop."""
        dropped = np.zeros(len(rows), np.bool_)
        again = keys.keys[1:] == keys.keys[:-1]
        if not again.any():
            return rows, dropped
        shared = np.zeros(len(rows), np.bool_)
        shared[keys.rows[:-1][again]] = shared[keys.rows[1:][again]] = True
        latest: dict[tuple[object, ...], int] = {}
        gone: set[tuple[object, ...]] = set()
        kept = ~shared
        for row, key in zip(np.flatnonzero(shared).tolist(), self._identities(rows, shared), strict=True):
            order, before = rows.order[row], latest.setdefault(key, row)
            if not order & 1:
                gone.add(key)
            elif before != row and order == rows.order[before]:
                self.duplicates += 1
            if order >= rows.order[before]:
                latest[key] = row
        kept[list(latest.values())] = True
        dropped[[row for key, row in latest.items() if key in gone]] = True
        self.tally.stale += int(len(rows) - kept.sum())
        self.tally.superseded += int(len(rows) - kept.sum())
        return (rows, dropped) if kept.all() else (rows.keep(kept), dropped[kept])

    def _identities(self, rows: Rows, which: Mask) -> Iterator[tuple[object, ...]]:
        """Keys that are equal if and only if the rows' keys are: codes where they are exact, values elsewhere."""
        side, table = rows.sides[-1], rows.table.filter(pa.array(which))
        values = [table.column(predicate.left.name).to_pylist() for predicate in self.by_key.targets[0].verify]
        return zip(*side.matrix[which, : 1 + side.equals].T.tolist(), *values, strict=True)

    def _held(self, rows: Rows, queries: Entries) -> Held:
        """The living row of every key that the batch touches."""
        held = Held()
        target = self.by_key.targets[0]
        for part in self.forest:
            for pairs in part.probe(self.by_key, queries):
                changes, stored = queries.rows[pairs.query], pairs.row
                if target.verify:
                    same = confirmed(target, rows, changes, part, stored)
                    changes, stored = changes[same], stored[same]
                if len(stored):
                    held.add(part, stored, changes)
        return held

    def _fresh(self, rows: Rows, held: Held) -> tuple[Rows, Held, bool]:
        """The changes that are newer than what is held, what they find, and whether that is all of them.

        Drops of keys that are not held are left out too, unless they must be remembered.
        """
        kept = np.ones(len(rows), np.bool_)
        if not self.remember_drops:
            kept = (rows.order & 1).astype(np.bool_)
            for changes in held.changes:
                kept[changes] = True
            self.tally.unknown_drops += int(len(rows) - kept.sum())
        fresh = Held()
        for part, stored, changes in held:
            newer = rows.order[changes] > part.order[stored]
            kept[changes[~newer]] = False
            self.tally.stale += int(len(changes) - newer.sum())
            if newer.any():
                fresh.add(part, stored[newer], changes[newer])
        if kept.all():
            return rows, fresh, True
        place = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        return rows.keep(kept), Held(fresh.parts, fresh.rows, [place[changes] for changes in fresh.changes]), False

    def _sets(self, rows: Rows, held: Held, serial: int) -> tuple[Rows, RowsOfBatch, RowsOfBatch]:
        """The rows that the batch ends, and both sets of rows under numbers that a key keeps through the batch."""
        numbers = np.arange(serial << 32, (serial << 32) + len(rows), dtype=np.int64)
        if not held.parts:
            return _EMPTY_ROWS, RowsOfBatch(rows.table, _NOTHING), RowsOfBatch(rows.table, numbers)
        replacing = np.zeros(len(rows), np.bool_)
        puts = (rows.order & 1).astype(np.bool_)
        tables, orders, gids, replaced = [], [], [], []
        for part, stored, changes in held:
            was_put = (part.order[stored] & 1).astype(np.bool_)
            stored, changes = stored[was_put], changes[was_put]
            old = part.numbers(stored)
            numbers[changes] = old
            replacing[changes] = puts[changes]
            tables.append(part.take(stored))
            orders.append(part.order[stored])
            gids.append(old)
            replaced.append(puts[changes])
        self.tally.replaced += int(replacing.sum())
        table, order = joined(tables), np.concatenate(orders)
        gone = self._encoder.rows(table, order)
        if not replacing.any():
            return gone, RowsOfBatch(table, np.concatenate(gids)), RowsOfBatch(rows.table, numbers)
        gone_set = RowsOfBatch(table, np.concatenate(gids), np.concatenate(replaced))
        return gone, gone_set, RowsOfBatch(rows.table, numbers, replacing)

    def violations(self, rule: int) -> Iterator[Found]:
        """All living violations of a rule, found anew. Cost: a probe of every row held, and the pairs."""
        parts = list(self.forest)
        gates = [gate for number, gate in self.plan.one_row if number == rule]
        for at, part in enumerate(parts):
            if gates:
                rows = self._encoder.rows(part.table, part.order[: len(part)])
                violating = rows.violating[[number for number, _ in self.plan.one_row].index(rule)]
                yield Found(rule, 1, part, violating[_alive(part, violating)])
            for probe in self.plan.probes:
                if not probe.wanted(within=False, rule=rule):
                    continue
                queries = self._entries(part, probe.queries)
                for other in parts[at:]:
                    for pairs in other.probe(probe, queries, within=other is part, rule=rule):
                        yield from resolve(pairs, probe, part, queries.rows, other, 1)

    def _entries(self, part: Run | Tail, side: int) -> Entries:
        """The living rows of a part as a side sees them."""
        if isinstance(part, Tail):
            entries = part.entries(side)
        elif (tree := part.trees[side]) is not None:
            entries = tree.entries()
        else:
            entries = in_key_order(self._encoder.rows(part.table, part.order).sides[side])
        return entries.take(np.flatnonzero(_alive(part, entries.rows))) if len(part.dead) else entries

    def _check(self) -> None:
        """Asserts every invariant of the shard and its parts, and that a key lives once."""
        self.forest._check()
        keys = [
            key
            for part in self.forest
            for alive in [_alive(part, np.arange(len(part), dtype=np.int32))]
            for key in self._identities(self._encoder.rows(part.table, part.order[: len(part)]), alive)
        ]
        assert len(set(keys)) == len(keys), "a key lives once"
        held, self._rows_held = self._rows_held, None
        assert held in (None, self.held()), "rows are counted as they come and go"


def _living(part: Run | Tail) -> Positions:
    rows = np.arange(len(part), dtype=np.int32)
    return rows[_alive(part, rows)]


def _alive(part: Run | Tail, rows: Positions) -> Mask:
    return part.dead.mask[rows] == 0 if len(part.dead) else np.ones(len(rows), np.bool_)


_NOTHING: Ints = np.empty(0, np.int64)
_EMPTY_ROWS = Rows(pa.RecordBatch.from_pylist([], pa.schema([])), _NOTHING, (), ())
