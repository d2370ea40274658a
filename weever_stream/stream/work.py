"""The work of one shard in one batch: manifest and messages in, pieces of deltas and the next manifest out.

Pure but for the run store: no Spark, no clock. The same manifest and messages give the same deltas and the same next
manifest, so a task may run twice, or be thrown away half done. Only the families that a batch touches are opened. What
it tells is net within the shard; a pair whose rows both move to another shard is told by both, and is marked so that
the two can be set off against each other. A rule that has ended since the last visit is closed: every violation that
is open under it is removed, once. A rule that is built again stays hidden until all its rows have come; then it takes
the place of the old one in one batch, and only the difference is left. Cost: that of `Shard.apply` for each family.
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
from weever_stream.state.manifest import ENDED, HIDDEN, Manifest
from weever_stream.state.store import RunStore
from weever_stream.stream.messages import ONLY, PUT, ROW, SEQUENCE, Message, one_batch
from weever_stream.stream.routing import LEFT_ROLE, RIGHT_ROLE

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from weever_stream.detect.culprits import Culprits
    from weever_stream.detect.families import FamilyPlan
    from weever_stream.detect.shard import Shard
    from weever_stream.index.arrays import Ints
    from weever_stream.state.keeper import Opened
    from weever_stream.stream.setup import Setup

__all__ = ["CLOSED", "Piece", "ShardWork", "Visits"]

CLOSED = -2


@dataclass(frozen=True)
class Piece:
    """Some pairs of one rule that a batch added or removed."""

    rule: int
    """The number of the rule in the job."""
    sign: int
    """+1 added, -1 removed, `CLOSED` removed because the rule has ended."""
    pairs: int
    body: bytes
    """For `pairs.unpack_pairs`."""
    moving: bool
    """Whether the opposite of the same pairs may be told as well: by another shard, because both rows of each pair are
    of this batch, or because the rule is replaced by itself, built again."""
    written: int = 0
    """Bytes that the piece takes when it is unpacked, about."""


@dataclass(frozen=True)
class Visits:
    """What a batch brings to a family in a shard: rows as it keeps them, and their order."""

    table: pa.RecordBatch
    order: Ints


class ShardWork:
    """Does the work of any shard of a job. One a process is enough: it keeps files mapped."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._living = frozenset(family.number for family in setup.living)
        self.store = RunStore(setup.store)
        self.keeper = Keeper(
            setup.kept_schema,
            self.store,
            inline_bytes=setup.inline_bytes,
            retain_batches=setup.retain_batches,
            remember_drops=setup.remember_drops,
            max_pairs=setup.max_pairs,
        )

    def apply(
        self,
        shard: int,
        batch: int,
        state: bytes | None,
        bodies: Sequence[bytes],
        culprits: Culprits | None = None,
        repeated: dict[int, int] | None = None,
    ) -> Generator[Piece, None, Manifest]:
        """Yields what the batch changes; returns, when it has been read to its end, the next manifest.

        `culprits` is given the pairs that changes added. What the fill of a new rule finds was there before.
        `repeated` is given, by family, the new rows whose key had a row already.
        """
        name = f"the state of shard {shard}"
        before = Manifest() if state is None else Manifest.load(state, name)
        message, moved = Message.unpack(bodies), Message.unpack(bodies, silent=True)
        rebuilt = self._rebuilt(shard, before, message)
        touched: list[Opened] = []
        for family in self.setup.families:
            if family.number not in self._living:
                if family.identity in before.families:
                    yield from self._closed(self.keeper.open(family, before, name))
                continue
            opened = self._opened(shard, family, before, message, moved, rebuilt)
            if opened is None:
                continue
            touched.append(opened)
            yield from self._closed(opened)
            if moved is not None:
                self._move(opened, moved)
            if message is not None:
                filling = bool(message.fills.get(family.generation))
                opened.shard.backfilled = self.setup.awaited(family, shard) > 0
                before_it = opened.shard.duplicates
                yield from self._changed(opened, message, None if filling else culprits, rebuilt.values())
                # A put that goes anywhere replaces what is there: that is no mistake of the source.
                if repeated is not None and not filling and not message.drops.num_rows:
                    repeated[family.number] = opened.shard.duplicates - before_it
            yield from self._closed(opened, rebuilt.values())
            yield from self._shown(opened, rebuilt)
        over = before.families.keys() - {family.identity for family in self.setup.living}
        return self.keeper.save(shard, batch, before, touched, over)

    def _rebuilt(self, shard: int, before: Manifest, message: Message | None) -> dict[int, int]:
        """Rules that take the place of others in this batch, because all rows have come to this shard; and those."""
        found: dict[int, int] = {}
        for new, old in self.setup.rebuilding.items():
            family = self.setup.family_of(new)
            held = before.families.get(family.identity)
            filled = (held.filled if held else 0) + (message.fills.get(family.generation, 0) if message else 0)
            hidden = held is None or held.open[family.rules.index(new)] == HIDDEN
            if hidden and filled >= self.setup.awaited(family, shard):
                found[new] = old
        return found

    def _opened(
        self,
        shard: int,
        family: FamilyPlan,
        before: Manifest,
        message: Message | None,
        moved: Message | None,
        rebuilt: Mapping[int, int],
    ) -> Opened | None:
        """A family, if there is anything to do for it."""
        held = before.families.get(family.identity)
        ended = held is not None and any(
            rule in self.setup.ended and n != ENDED for rule, n in zip(family.rules, held.open, strict=True)
        )
        changes = any(rule in rebuilt or rule in rebuilt.values() for rule in family.rules)
        if not (ended or changes or any(one is not None and self._concerns(family, one) for one in (message, moved))):
            return None
        awaited = self.setup.awaited(family, shard)
        opened = self.keeper.open(family, before, f"the state of shard {shard}", awaited=awaited)
        if held is None:
            opened.open = [HIDDEN if rule in self.setup.rebuilding else 0 for rule in family.rules]
        return opened

    def _concerns(self, family: FamilyPlan, message: Message) -> bool:
        """Whether a message has anything for a family."""
        if message.clear >= 0 or family.generation in message.fills:
            return True
        only = message.drops.column(ONLY).to_numpy()
        if ((only < 0) | (only == family.generation)).any():
            return True
        return bool((message.visits.column("family").to_numpy() == family.number).any())

    def _closed(self, opened: Opened, replaced: Collection[int] = ()) -> Iterator[Piece]:
        """Removes the violations of rules that have ended, when that is first seen, and of those that are `replaced`.

        What replaces them adds its own in the same batch; all that is told of either is marked, to be set off.
        """
        for rule, number in enumerate(opened.family.rules):
            if not (number in self.setup.ended or number in replaced) or opened.open[rule] == ENDED:
                continue
            for found in opened.shard.violations(rule) if opened.open[rule] > 0 else ():
                for packed in pack_pairs(found, opened.family):
                    yield Piece(number, CLOSED, packed.pairs, packed.body, number in replaced, packed.written)
            opened.open[rule], opened.unlisted[rule] = ENDED, 0

    def _shown(self, opened: Opened, rebuilt: Collection[int]) -> Iterator[Piece]:
        """Adds the violations of rules that take the place of others."""
        for rule, number in enumerate(opened.family.rules):
            if number not in rebuilt:
                continue
            opened.open[rule] = 0
            for found in opened.shard.violations(rule):
                for packed in pack_pairs(found, opened.family):
                    opened.open[rule] += packed.pairs
                    yield Piece(number, 1, packed.pairs, packed.body, True, packed.written)

    def _move(self, opened: Opened, message: Message) -> None:
        """Takes in rows whose pairs were told before they moved here, and all of them listed."""
        cap, opened.shard.cap = opened.shard.cap, 0
        for _ in self._changed(opened, message):
            pass
        opened.shard.cap = cap

    def _changed(
        self, opened: Opened, message: Message, culprits: Culprits | None = None, replaced: Collection[int] = ()
    ) -> Iterator[Piece]:
        """What a message changes of a family."""
        visits = self._visits(opened.family, message)
        cleared = self._cleared(opened.shard, visits, message.clear, opened.cleared)
        opened.cleared = max(opened.cleared, message.clear)
        opened.filled += message.fills.get(opened.family.generation, 0)
        yield from self._applied(opened, cleared, culprits, replaced)

    def _applied(
        self, opened: Opened, visits: Visits, culprits: Culprits | None, replaced: Collection[int]
    ) -> Iterator[Piece]:
        if not visits.table.num_rows:
            return
        drops = not bool((visits.order & 1).all())
        before, mirrored = opened.shard.unlisted.copy(), opened.family.mirrored
        for found in opened.shard.apply(visits.table, visits.order, drops=drops):
            number = opened.family.rules[found.rule]
            if number in self.setup.ended or opened.open[found.rule] == ENDED:
                continue
            hidden = opened.open[found.rule] == HIDDEN
            # A pair leaves one shard for another only if both of its rows do.
            moving = isinstance(found.left, RowsOfBatch) and isinstance(found.right, RowsOfBatch)
            if culprits is not None and found.sign > 0 and not hidden:
                culprits.take(number, found, moving=moving)
            opened.unlisted[found.rule] += found.sign * len(found) if mirrored[found.rule] else 0
            for packed in pack_pairs(found, opened.family):
                opened.unlisted[found.rule] -= 2 * found.sign * packed.pairs if mirrored[found.rule] else 0
                if not hidden:
                    opened.open[found.rule] += found.sign * packed.pairs
                    moves = moving or number in replaced
                    yield Piece(number, found.sign, packed.pairs, packed.body, moves, packed.written)
        for rule, (was, now) in enumerate(zip(before, opened.shard.unlisted, strict=True)):
            if opened.family.rules[rule] not in self.setup.ended and opened.open[rule] != ENDED:
                opened.unlisted[rule] += (now - was) * (1 if mirrored[rule] else 2)

    def _visits(self, family: FamilyPlan, message: Message) -> Visits:
        """The rows of a message that a family sees: those that visit it, and the keys to drop that do not."""
        mine = np.flatnonzero(message.visits.column("family").to_numpy() == family.number)
        row: Ints = message.visits.column("row").to_numpy()[mine]
        role: Ints = message.visits.column("role").to_numpy()[mine]
        sequence: Ints = message.rows.column(SEQUENCE).to_numpy()[row]
        put = message.rows.column(PUT).to_numpy(zero_copy_only=False)[row]
        there = [name for name in family.routed.columns if len(row) or name in message.rows.schema.names]
        visiting = message.rows.select(there).take(as_arrow(row))
        columns = dict(zip(there, visiting.columns, strict=True))
        if family.roles:
            columns |= {LEFT: pa.array(role & LEFT_ROLE > 0), RIGHT: pa.array(role & RIGHT_ROLE > 0)}
        schema = pa.schema([self.setup.kept_schema.field(name) for name in family.kept.columns])
        absent = [name for name in schema.names if name not in columns]  # of no row, then
        columns |= {name: pa.nulls(0, schema.field(name).type) for name in absent}
        table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        order = 2 * sequence + put
        if message.drops.num_rows:
            replaced, only = (message.drops.column(name).to_numpy() for name in (ROW, ONLY))
            mine_too = (only < 0) | (only == family.generation)
            here = np.zeros(message.rows.num_rows + 1, np.bool_)  # the last is for -1, which is never here
            here[row] = True
            gone = np.flatnonzero(mine_too & ~here[replaced])
            dropped = message.drops.take(as_arrow(gone))
            table = pa.concat_tables([table, _key_only(dropped, schema)])
            order = np.concatenate([order, 2 * dropped.column(SEQUENCE).to_numpy()])
        batch = one_batch(table) if table.num_rows else pa.RecordBatch.from_pylist([], schema)
        return Visits(batch, order.astype(np.int64))

    def _cleared(self, shard: Shard, visits: Visits, clear: int, before: int) -> Visits:
        """A table that was emptied, now or `before`: what is older is dropped, held or not."""
        if clear < 0:
            if before < 0:
                return visits
            young = visits.order >= 2 * before
            return Visits(visits.table.filter(pa.array(young)), visits.order[young])
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
