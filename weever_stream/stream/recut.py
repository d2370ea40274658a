"""Which rows go where when a job gets another number of shards. Pure: manifests and run files in, messages out.

Each family that is kept becomes a generation of its own under the new number, so that what was stored together stays
together. Works shard by shard; only families whose rows are in several shards at a time are held in memory as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.feeds.changes import CHANGE, DROP_ANYWHERE, PUT, PUT_ANYWHERE, SEQUENCE
from weever_stream.index.arrays import as_arrow
from weever_stream.state.noted import Generation
from weever_stream.stream.routing import Router
from weever_stream.stream.work import ShardWork

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.state.manifest import Manifest
    from weever_stream.state.noted import Noted
    from weever_stream.stream.setup import Setup

__all__ = ["moved", "recut"]

_ROWS_AT_ONCE = 1 << 17
_PLACE, _ORDER = "_weever_place", "_weever_order"


def recut(noted: Noted, before: Setup, shards: int) -> Noted:
    """Each family that is kept as a generation of its own: what was stored together stays together."""
    first = 1 + max(one.number for one in noted.generations)
    rules = noted.rules
    generations = tuple(
        Generation(
            first + place,
            tuple(replace(rules[number], replaces=None) for number in family.rules if number not in before.ended),
        )
        for place, family in enumerate(before.living)
    )
    again = noted.revision + 1
    return replace(noted, generations=generations, shards=shards, families=(), revision=again, numbering=again)


def moved(before: Setup, after: Setup, found: Mapping[int, Manifest]) -> Iterator[tuple[int, bytes]]:
    """The rows of all families, for their new shards."""
    work = ShardWork(before)
    for family, generation in zip(before.living, after.generations, strict=True):
        router = Router(after, generation)
        tables = _held(work, family, found)
        if family.roles or before.remember_drops:  # a row, or what is known of a key, is in several shards
            whole = list(tables)
            tables = iter([_once(pa.concat_tables(whole), before.key_names)] if whole else [])
        for table in tables:
            for at in range(0, table.num_rows, _ROWS_AT_ONCE):
                for shard, message in router.route(table.slice(at, _ROWS_AT_ONCE)):
                    yield shard, message.pack(silent=True)


def _held(work: ShardWork, family: FamilyPlan, found: Mapping[int, Manifest]) -> Iterator[pa.Table]:
    """What each shard holds of a family, as a change frame."""
    remembers = work.setup.remember_drops > 0
    for shard, manifest in sorted(found.items()):
        opened = work.keeper.open(family, manifest, f"the state of shard {shard}")
        for part in opened.shard.forest:
            rows = np.arange(len(part), dtype=np.int32)
            rows = rows[part.dead.mask[rows] == 0] if len(part.dead) else rows
            if not len(rows):
                continue
            order = part.order[rows]
            kind = np.where(order & 1, PUT_ANYWHERE if remembers else PUT, DROP_ANYWHERE).astype(np.int8)
            table = pa.Table.from_batches([part.take(rows, list(family.routed.columns))])
            yield table.append_column(CHANGE, pa.array(kind)).append_column(SEQUENCE, as_arrow(order >> 1))


def _once(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last that is known of every key."""
    place = pa.array(np.arange(table.num_rows))
    put = pc.not_equal(table.column(CHANGE), DROP_ANYWHERE)
    order = pc.add(pc.multiply(table.column(SEQUENCE), 2), pc.cast(put, pa.int64()))
    keys = table.select(list(key)).append_column(_PLACE, place).append_column(_ORDER, order)
    ordered = keys.sort_by([(_ORDER, "ascending")])
    last = ordered.group_by(list(key), use_threads=False).aggregate([(_PLACE, "last")])
    return table.take(last.column(f"{_PLACE}_last"))
