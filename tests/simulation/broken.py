"""The product with one fault put in, to see that the simulation finds it.

Each is a fault that somebody could make: a file deleted too early, a change forgotten, a file believed unseen. They are
put in for a block and taken out again; nothing on the disk changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from weever_stream.stream import revising, work
from weever_stream.stream.messages import Message
from weever_stream.stream.operator import unpacker
from weever_stream.stream.progress import Ledger, ShardTally
from weever_stream.stream.query import ONE_BATCH, WHAT_IS_THERE
from weever_stream.stream.setup import Setup
from weever_stream.stream.work import ShardWork

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


@contextmanager
def _retry_does_nothing() -> Iterator[None]:
    apply, done = ShardWork.apply, set[tuple[int, int, int]]()

    def once(self: ShardWork, shard: int, batch: int, state: bytes | None, bodies: Sequence[bytes]) -> Any:
        task = (id(self), shard, batch)
        again = task in done
        done.add(task)
        return apply(self, shard, batch, state, [] if again else bodies)

    with mock.patch.object(ShardWork, "apply", once):
        yield


@contextmanager
def _tallies_forgotten() -> Iterator[None]:
    begin = Ledger.__init__

    def anew(self: Ledger, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.shards = {}

    with mock.patch.object(Ledger, "__init__", anew):
        yield


@contextmanager
def _ended_stay_open() -> Iterator[None]:
    with mock.patch.object(ShardWork, "_closed", return_value=()):
        yield


@contextmanager
def _drops_forgotten_while_filling() -> Iterator[None]:
    with mock.patch.object(Setup, "awaited", return_value=0):
        yield


@contextmanager
def _filled_from_the_past() -> Iterator[None]:
    position = revising._position

    def earlier(context: Any) -> Any:
        found = position(context)
        return found and {"units": max(found["units"] - 1, 0)}

    with mock.patch.object(revising, "_position", earlier):
        yield


@contextmanager
def _not_finished_before(what: str) -> Iterator[None]:
    finish = revising.finish

    def hastily(context: Any, noted: Any, trigger: str) -> None:
        if trigger != what:
            finish(context, noted, trigger)

    with mock.patch.object(revising, "finish", hastily):
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
    "a task that is tried again does nothing": _retry_does_nothing,
    "a restart forgets what shards have told": _tallies_forgotten,
    "violations of ended rules stay open": _ended_stay_open,
    "drops are forgotten while a rule is filled": _drops_forgotten_while_filling,
    "rules are filled from an older table": _filled_from_the_past,
    "a planned batch is run with new rules": lambda: _not_finished_before(ONE_BATCH),
    "a rule comes again before it is closed": lambda: _not_finished_before(WHAT_IS_THERE),
}
