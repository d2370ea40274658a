"""The product with one fault put in, to see that the simulation finds it.

Each is a fault that somebody could make: a file deleted too early, a change forgotten, a file believed unseen. They are
put in for a block and taken out again; nothing on the disk changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from tests.simulation import query
from weever_stream.detect.shard import Shard
from weever_stream.detect.tail import Tail
from weever_stream.state import inspect
from weever_stream.state.keeper import Keeper
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import RunStore, StoredFile
from weever_stream.stream import work
from weever_stream.stream.messages import Message
from weever_stream.stream.operator import unpacker
from weever_stream.stream.progress import Ledger, ShardTally

__all__ = ["FAULTS"]


@contextmanager
def _deleted_one_batch_early() -> Iterator[None]:
    forget = Keeper._forget

    def early(self: Keeper, manifest: Manifest, batch: int) -> None:
        forget(self, manifest, batch + 1)

    with mock.patch.object(Keeper, "_forget", early):
        yield


@contextmanager
def _no_netting() -> Iterator[None]:
    def told_twice(told: Iterable[Any], setup: Any) -> pa.Table:
        rows = list(told)
        columns = [pa.array([getattr(row, name) for row in rows]) for name in rows[0]._fields]
        pieces = pa.RecordBatch.from_arrays(columns, list(rows[0]._fields))
        return pa.Table.from_batches(list(unpacker(setup)([pieces]))).drop_columns("moving")

    with mock.patch.object(query, "unpacked_here", told_twice):
        yield


@contextmanager
def _keys_not_dropped() -> Iterator[None]:
    unpack = Message.unpack

    def without(*given: Any, **named: Any) -> Message | None:
        message = unpack(*given, **named)
        return message and replace(message, drops=message.drops.slice(0, 0))

    with mock.patch.object(Message, "unpack", without):
        yield


@contextmanager
def _clear_ignored() -> Iterator[None]:
    unpack = Message.unpack

    def without(*given: Any, **named: Any) -> Message | None:
        message = unpack(*given, **named)
        return message and replace(message, clear=-1)

    with mock.patch.object(Message, "unpack", without):
        yield


@contextmanager
def _stale_changes_count() -> Iterator[None]:
    probe = Shard._held

    def always_newer(self: Shard, rows: Any, queries: Any) -> Any:
        held = probe(self, rows, queries)
        for part, stored, _ in held:
            if not isinstance(part, Tail):
                part.order = part.order.copy()
            part.order[stored] &= 1
        return held

    with mock.patch.object(Shard, "_held", always_newer):
        yield


@contextmanager
def _files_named_by_batch_alone() -> Iterator[None]:
    write = RunStore.write

    def plainly(self: RunStore, stem: str, *given: Any, **named: Any) -> StoredFile:
        file = write(self, stem, *given, **named)
        name = f"{stem}.run"
        Path(self._root, file.name).replace(Path(self._root, name))
        return replace(file, name=name)

    with mock.patch.object(RunStore, "write", plainly):
        yield


@contextmanager
def _gc_takes_files_under_way() -> Iterator[None]:
    with mock.patch.object(inspect, "_batch_of", return_value=-1):
        yield


@contextmanager
def _gc_takes_retired_files() -> Iterator[None]:
    with mock.patch.object(Manifest, "files", Manifest.live):
        yield


@contextmanager
def _dead_rows_come_back() -> Iterator[None]:
    saved = Keeper._saved

    def as_it_was(self: Keeper, stem: str, run: Any, opened: Any, *given: Any, **named: Any) -> Any:
        known = opened.saved.get(run.serial)
        there = known is not None and known.file is not None
        return known if there else saved(self, stem, run, opened, *given, **named)

    with mock.patch.object(Keeper, "_saved", as_it_was):
        yield


@contextmanager
def _counts_added_up() -> Iterator[None]:
    take = Ledger.take

    def adding(self: Ledger, shard: int, body: bytes) -> ShardTally:
        before = self.shards.get(shard)
        tally = take(self, shard, body)
        if before is not None:
            for rule, n in before.open.items():
                tally.open[rule] = max(n, tally.open.get(rule, 0))
        return tally

    with mock.patch.object(Ledger, "take", adding):
        yield


@contextmanager
def _rows_of_a_batch_not_moving() -> Iterator[None]:
    piece = work.Piece

    def still(*given: Any, **named: Any) -> Any:
        return replace(piece(*given, **named), moving=False)

    with mock.patch.object(work, "Piece", still):
        yield


@contextmanager
def _order_of_arrival() -> Iterator[None]:
    latest = Shard._latest

    def last_come(self: Shard, rows: Any, keys: Any) -> Any:
        order = rows.order
        rows.order = (np.arange(len(order)) << 1) | (order & 1)
        kept = latest(self, rows, keys)
        kept.order = kept.order if kept is not rows else order
        return kept

    with mock.patch.object(Shard, "_latest", last_come):
        yield


FAULTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "retired files are deleted one batch early": _deleted_one_batch_early,
    "pairs that moved are not set off": _no_netting,
    "pairs that moved are not marked": _rows_of_a_batch_not_moving,
    "keys to drop anywhere are forgotten": _keys_not_dropped,
    "an emptied table stays full": _clear_ignored,
    "stale changes count": _stale_changes_count,
    "the order of arrival counts": _order_of_arrival,
    "files are named by their batch alone": _files_named_by_batch_alone,
    "files under way are collected": _gc_takes_files_under_way,
    "retired files are collected": _gc_takes_retired_files,
    "rows that died in a file come back": _dead_rows_come_back,
    "published counts never fall": _counts_added_up,
}
