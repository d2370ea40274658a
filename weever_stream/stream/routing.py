"""Routing: which shards each change of a batch must reach, and in which role.

A row goes to the shard of its key in every family it takes part in: rows that a null or a filter keeps out of a family
are not sent. Where a row has two roles, or its family is spread over a grid (1-Bucket theta join), it goes to every
shard in which a partner may be, and each pair meets in exactly one of them: as a left row it fills a row of the grid,
as a right row a column. A drop goes where the old row is, if that is known, and to every shard if not.

Works on Arrow batches, whole columns at a time, with the very codes that the shards compare: what is equal there has
one key here. Cost: one pass a code column, and one copy of a row for each shard it reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.feeds.changes import CHANGE, CLEAR, DROP, DROP_ANYWHERE, ORIGIN, PUT_ANYWHERE, REASON, RECORD, REJECT
from weever_stream.feeds.changes import PUT as PUT_KNOWN
from weever_stream.feeds.changes import SEQUENCE as CHANGE_SEQUENCE
from weever_stream.index.arrays import as_arrow
from weever_stream.stream.messages import ONLY, PUT, ROW, SEQUENCE, Message, one_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.detect.rows import Encoder
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.index.arrays import Rows as Positions
    from weever_stream.stream.setup import Setup

    Hashes = NDArray[np.uint64]

__all__ = ["LEFT_ROLE", "RIGHT_ROLE", "Router", "split_rejects"]

LEFT_ROLE, RIGHT_ROLE = 1, 2
_BOTH = LEFT_ROLE | RIGHT_ROLE
_NONE: Ints = np.empty(0, np.int64)


class Router:
    """Routes the changes of one job."""

    def __init__(self, setup: Setup, generation: int | None = None, *, replace: bool = False) -> None:
        """For all families that are kept, or for those of a generation that is filled.

        `replace`: the old row of a put may not be gone yet, so whatever a shard holds of its key is replaced.
        """
        self._setup, self._replace = setup, replace
        self._fills = {} if generation is None else {generation: 1}
        self._families = [
            (family, family.encoder) for family in setup.living if generation is None or family.generation == generation
        ]

    def nothing(self) -> Message:
        """A message without changes: it brings a shard to look at what its rules are."""
        rows = self._setup.columns.empty_table()
        told = rows.append_column(SEQUENCE, as_arrow(_NONE)).append_column(PUT, pa.array([], pa.bool_()))
        return self._message(told, np.empty((0, 4), np.int64), np.empty(0, np.int32), -1)

    def route(self, changes: pa.Table) -> Iterator[tuple[int, Message]]:
        """The messages of some changes, a change frame in Arrow without rejects, to the shards they concern."""
        # A table that fills some families has the columns of those families only.
        columns = pa.schema([field for field in self._setup.columns if field.name in changes.column_names])
        rows = changes.select(columns.names)
        rows = (rows if rows.schema == columns else rows.cast(columns)).combine_chunks()
        kind: Ints = changes.column(CHANGE).to_numpy().astype(np.int64)
        if self._replace:
            kind = np.where(kind == PUT_KNOWN, PUT_ANYWHERE, kind)
        sequence: Ints = changes.column(CHANGE_SEQUENCE).to_numpy().astype(np.int64)
        visits = self._visits(rows, kind)
        anywhere = np.flatnonzero((kind == PUT_ANYWHERE) | (kind == DROP_ANYWHERE)).astype(np.int32)
        clear = int(sequence[kind == CLEAR].max(initial=-1))
        put = (kind == PUT_KNOWN) | (kind == PUT_ANYWHERE)
        told = rows.append_column(SEQUENCE, as_arrow(sequence)).append_column(PUT, pa.array(put))
        for shard in range(self._setup.shards):
            mine = visits[visits[:, 1] == shard]
            if len(mine) or len(anywhere) or clear >= 0:
                yield shard, self._message(told, mine, anywhere, clear)

    def _visits(self, rows: pa.Table, kind: Ints) -> Ints:
        """n x 4: row, shard, family, role."""
        known = (kind == DROP) | (kind == PUT_KNOWN) | (kind == PUT_ANYWHERE)
        where = np.flatnonzero(known).astype(np.int32)
        if not len(where) or not self._families:
            return np.empty((0, 4), np.int64)
        table = rows if len(where) == rows.num_rows else rows.take(as_arrow(where))
        parts = [self._family_visits(family, encoder, table, where) for family, encoder in self._families]
        return np.concatenate(parts)

    def _family_visits(self, family: FamilyPlan, encoder: Encoder, table: pa.Table, where: Positions) -> Ints:
        batch = one_batch(table.select(family.routed.columns))
        coded = encoder.rows(batch, np.ones(batch.num_rows, np.int64), drops=False)
        keys = _unsigned(coded.sides[-1].keys)
        if family.routed.one_row:
            violating = np.unique(np.concatenate(coded.violating))
            return self._visit(family, where[violating], keys[violating], _BOTH)
        sides = family.routed.families[0]
        if not family.roles:
            entries = coded.sides[sides.left]
            return self._visit(family, where[entries.rows], _unsigned(entries.keys), _BOTH)
        parts = []
        for side, role in ((sides.left, LEFT_ROLE), (sides.right, RIGHT_ROLE)):
            entries = coded.sides[side]
            part = keys[entries.rows] >> np.uint64(32)
            parts += [
                self._visit(family, where[entries.rows], _unsigned(entries.keys) + cell, role)
                for cell in _cells(part % np.uint64(family.spread), family.spread, role)
            ]
        return _joined_roles(np.concatenate(parts))

    def _visit(self, family: FamilyPlan, rows: Positions, keys: Hashes, role: int) -> Ints:
        # Families without equality have one key, 0: their number keeps them from meeting in the same few shards.
        home = family.number if family.home is None else family.home
        shards = (keys + np.uint64(home * 7919)) % np.uint64(self._setup.shards)
        n = len(rows)
        return np.stack([rows, shards.astype(np.int64), np.full(n, family.number), np.full(n, role)], 1)

    def _message(self, rows: pa.Table, visits: Ints, anywhere: Positions, clear: int) -> Message:
        here, place = np.unique(visits[:, 0], return_inverse=True)
        replaced = np.full(len(anywhere), -1, np.int32)
        if len(here) and len(anywhere):
            at = np.minimum(np.searchsorted(here, anywhere), len(here) - 1)
            replaced = np.where(here[at] == anywhere, at, -1).astype(np.int32)
        visiting = pa.table(
            {
                "family": as_arrow(visits[:, 2].astype(np.int32)),
                "row": as_arrow(place.astype(np.int32)),
                "role": as_arrow(visits[:, 3].astype(np.int32)),
            }
        )
        drops = rows.select([*self._setup.key_names, SEQUENCE]).take(as_arrow(anywhere))
        only = np.full(len(anywhere), next(iter(self._fills), -1), np.int32)
        dropping = drops.append_column(ROW, as_arrow(replaced)).append_column(ONLY, as_arrow(only))
        return Message(rows.take(as_arrow(here)), visiting, dropping, clear, self._fills)


def _unsigned(keys: Ints) -> Hashes:
    return np.ascontiguousarray(keys).view(np.uint64)


def _cells(part: Hashes, parts: int, role: int) -> Iterator[Hashes]:
    """The cells of a grid that rows of some parts fill: a row of it for left rows, a column for right ones."""
    for other in range(parts):
        yield part * np.uint64(parts) + np.uint64(other) if role == LEFT_ROLE else np.uint64(other * parts) + part


def _joined_roles(visits: Ints) -> Ints:
    """A row that visits a shard in both roles visits it once."""
    visits = visits[np.lexsort((visits[:, 1], visits[:, 0]))]
    first = np.ones(len(visits), np.bool_)
    first[1:] = (visits[1:, :2] != visits[:-1, :2]).any(axis=1)
    starts = np.flatnonzero(first)
    roles = np.bitwise_or.reduceat(visits[:, 3], starts) if len(starts) else visits[:, 3]
    joined: Ints = visits[starts]
    joined[:, 3] = roles
    return joined


def split_rejects(changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The changes that can be read, and of the others reason, origin and record."""
    rejected: Mask = changes.column(CHANGE).to_numpy() == REJECT
    if not rejected.any():
        return changes, changes.select([REASON, ORIGIN, RECORD]).slice(0, 0)
    return changes.filter(pa.array(~rejected)), changes.filter(pa.array(rejected)).select([REASON, ORIGIN, RECORD])
