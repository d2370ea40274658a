"""The work of one shard in one batch: manifest and messages in, pieces of deltas and the next manifest out.

Pure but for the run store: no Spark, no clock. The same manifest and messages give the same deltas and the same next
manifest, so a task may run twice, or be thrown away half done. Only the families that a batch touches are opened. What
it tells is net within the shard; a pair whose rows both move to another shard is told by both, and is marked so that
the two can be set off against each other. Cost: that of `Shard.apply` for each family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.batch import RowsOfBatch
from weever_stream.detect.families import LEFT, RIGHT
from weever_stream.detect.pairs import pack_pairs
from weever_stream.index.arrays import as_arrow
from weever_stream.state.keeper import Keeper
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import RunStore
from weever_stream.stream.messages import PUT, ROW, SEQUENCE, Message, one_batch
from weever_stream.stream.routing import LEFT_ROLE, RIGHT_ROLE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.detect.shard import Shard
    from weever_stream.index.arrays import Ints
    from weever_stream.state.keeper import Opened
    from weever_stream.stream.setup import Setup

__all__ = ["Piece", "ShardWork", "Visits"]


@dataclass(frozen=True)
class Piece:
    """Some pairs of one rule that a batch added or removed."""

    rule: int
    """The number of the rule in the job."""
    sign: int
    pairs: int
    body: bytes
    """For `pairs.unpack_pairs`."""
    moving: bool
    """Whether both rows of each pair are of this batch: another shard may tell the opposite of the same pairs."""


@dataclass(frozen=True)
class Visits:
    """What a batch brings to a family in a shard: rows as it keeps them, and their order."""

    table: pa.RecordBatch
    order: Ints


class ShardWork:
    """Does the work of any shard of a job. One a process is enough: it keeps files mapped."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.store = RunStore(setup.store)
        self.keeper = Keeper(
            setup.kept_schema,
            self.store,
            inline_bytes=setup.inline_bytes,
            retain_batches=setup.retain_batches,
            remember_drops=setup.remember_drops,
        )

    def apply(
        self, shard: int, batch: int, state: bytes | None, bodies: Sequence[bytes]
    ) -> Generator[Piece, None, Manifest]:
        """Yields what the batch changes; returns, when it has been read to its end, the next manifest."""
        name = f"the state of shard {shard}"
        before = Manifest() if state is None else Manifest.load(state, name)
        message = Message.unpack(bodies)
        touched: list[Opened] = []
        for family in self.setup.families:
            visits = self._visits(family, message)
            if visits.table.num_rows or message.clear >= 0:
                opened = self.keeper.open(family, before, name)
                touched.append(opened)
                yield from self._applied(opened, self._cleared(opened.shard, visits, message.clear))
        return self.keeper.save(shard, batch, before, touched)

    def _applied(self, opened: Opened, visits: Visits) -> Iterator[Piece]:
        if not visits.table.num_rows:
            return
        drops = not bool((visits.order & 1).all())
        for found in opened.shard.apply(visits.table, visits.order, drops=drops):
            # A pair leaves one shard for another only if both of its rows do.
            moving = isinstance(found.left, RowsOfBatch) and isinstance(found.right, RowsOfBatch)
            for pairs, body in pack_pairs(found, opened.family):
                opened.open[found.rule] += found.sign * pairs
                yield Piece(opened.family.rules[found.rule], found.sign, pairs, body, moving)

    def _visits(self, family: FamilyPlan, message: Message) -> Visits:
        """The rows of a message that a family sees: those that visit it, and the keys to drop that do not."""
        mine = np.flatnonzero(message.visits.column("family").to_numpy() == family.number)
        row: Ints = message.visits.column("row").to_numpy()[mine]
        role: Ints = message.visits.column("role").to_numpy()[mine]
        sequence: Ints = message.rows.column(SEQUENCE).to_numpy()[row]
        put = message.rows.column(PUT).to_numpy(zero_copy_only=False)[row]
        columns = {name: message.rows.column(name).take(as_arrow(row)) for name in family.routed.columns}
        if family.roles:
            columns |= {LEFT: pa.array(role & LEFT_ROLE > 0), RIGHT: pa.array(role & RIGHT_ROLE > 0)}
        schema = pa.schema([self.setup.kept_schema.field(name) for name in family.kept.columns])
        table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        order = 2 * sequence + put
        if message.drops.num_rows:
            replaced = message.drops.column(ROW).to_numpy()
            gone = np.flatnonzero((replaced < 0) | ~np.isin(replaced, row))
            dropped = message.drops.take(as_arrow(gone))
            table = pa.concat_tables([table, _key_only(dropped, schema)])
            order = np.concatenate([order, 2 * dropped.column(SEQUENCE).to_numpy()])
        batch = one_batch(table) if table.num_rows else pa.RecordBatch.from_pylist([], schema)
        return Visits(batch, order.astype(np.int64))

    def _cleared(self, shard: Shard, visits: Visits, clear: int) -> Visits:
        """A table that was emptied: what came before is dropped, held or not."""
        if clear < 0:
            return visits
        later = visits.order >= 2 * clear
        tables = [visits.table.filter(pa.array(later))]
        for part in shard.forest:
            old = np.flatnonzero((part.order[: len(part)] & 1 > 0) & (part.order[: len(part)] < 2 * clear))
            if len(part.dead):
                old = old[part.dead.mask[old] == 0]
            keys = pa.Table.from_batches([part.table.take(as_arrow(old))])
            tables += _key_only(keys, visits.table.schema).to_batches()
        together = pa.Table.from_batches(tables)
        order = np.full(sum(table.num_rows for table in tables), 2 * clear, np.int64)
        order[: int(later.sum())] = visits.order[later]
        # A key that was put after the clearing and was held before it comes twice; the later one counts.
        return Visits(one_batch(together) if together.num_rows else visits.table.slice(0, 0), order)


def _key_only(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a schema of which only the key, the first columns, is known."""
    n = keys.num_rows
    return pa.table(
        [keys.column(field.name) if field.name in keys.schema.names else pa.nulls(n, field.type) for field in schema],
        schema=schema,
    )
