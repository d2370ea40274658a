"""The operator on Spark: three functions that Spark calls, each a thin shell around pure code.

    changes ─ mapInArrow(route) ─> ROUTED ─ groupBy(shard).applyInPandasWithState(work) ─> OUTPUT ─ unpack ─> deltas

Bodies are binary values, so neither numbers nor times nor nulls pass through pandas (where one null makes a bigint
column floats). The operator emits the deltas of a batch as packed pieces, a tally for each shard, and what was
rejected. A worker keeps run files mapped between calls; that is a cache and never the truth: the manifest is.

Memory: rejects pass through groups of their own, piece by piece, so no worker collects them. The driver unpacks small
batches itself; every shard marks the pieces that it may, up to an equal share of `DRIVER_BYTES`, so what the driver
collects is bounded whatever the number of shards, rules and runs.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.detect.culprits import Culprits
from weever_stream.detect.pairs import PAIRS_A_PIECE, unpack_pairs
from weever_stream.detect.sections import ipc, read_ipc
from weever_stream.detect.violations import OUTPUT_SCHEMA
from weever_stream.errors import DataError, EngineError
from weever_stream.feeds.changes import CHANGE, CLEAR, ORIGIN, PUT, PUT_ANYWHERE, REASON, RECORD
from weever_stream.state.manifest import HIDDEN
from weever_stream.state.revision import REBUILT
from weever_stream.state.store import opened
from weever_stream.stream.position import inside_a_commit, offset_of
from weever_stream.stream.routing import Router, split_rejects
from weever_stream.stream.work import CLOSED, ShardWork

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    import pandas as pd
    from pyspark.sql import DataFrame

    from weever_stream.state.manifest import Manifest
    from weever_stream.stream.setup import Setup
    from weever_stream.stream.work import Piece

    _InArrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = [
    "ASIDE", "DELTAS", "DRIVER_BYTES", "FILLED", "OUTPUT", "OUTPUT_COLUMNS", "REJECTS", "ROUTED", "STATE", "TALLY",
    "UNFILLED", "filler", "mapped", "read_counts", "reject_filler", "router", "unpack_rejects", "unpacker", "worker",
]  # fmt: skip

ROUTED = "shard int, body binary"
STATE = "manifest binary"
OUTPUT = "kind int, shard int, rule int, sign int, pairs bigint, moving boolean, collect boolean, body binary"
OUTPUT_COLUMNS = tuple(column.split()[0] for column in OUTPUT.split(", "))
DELTAS, TALLY, REJECTS = 0, 1, 2
"""Kinds of output: pieces of pairs; what became of a shard's part of the batch, in JSON; rejected records."""
ASIDE = -1
"""The group that passes on how many changes there were; it and those below pass on what was rejected."""
DRIVER_BYTES = 32 << 20
"""Bytes of violations, written out, that the driver unpacks itself in a batch. More go through Spark."""
FILLED, UNFILLED = "filled", "unfilled"
"""Counts of a backfill, which are no changes of the batch that they come with: rows, and records it could not read."""
_NO_REJECTS = pa.schema([(name, pa.string()) for name in (REASON, ORIGIN, RECORD)]).empty_table()
_REJECT_BYTES = 4 << 20
"""Of a piece of rejected records."""
_ROWS_AT_ONCE = 1 << 17
_MESSAGE_BYTES = 4 << 20
"""Of changes that are routed together, about. A row may go to every shard, so no message is much larger. Java holds
some messages of each task several times over: in its sorter, its shuffle files and on their way to Python."""
_BYTES_AT_ONCE = 32 << 20
_OUTPUT_BYTES = 8 << 20
_T = TypeVar("_T")
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)

_WORK: dict[str, ShardWork] = {}
"""By the folder of the run files, one for each that this process works in."""


def mapped(frame: DataFrame, function: _InArrow, schema: str) -> DataFrame:
    """`mapInArrow` for columns of any name. PySpark looks them up by name, and takes `a.b` for a field of `a`."""
    names = frame.columns

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

    return frame.toDF(*(f"_{number}" for number in range(len(names)))).mapInArrow(named, schema)


def router(setup: Setup) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: from a change frame to `ROUTED`."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routing = Router(setup, replace=_splits_a_commit(setup))
        group = _partition()
        for changes in _gathered(batches):
            good, bad = split_rejects(changes)
            kinds = good.column(CHANGE).to_numpy()
            puts = int(((kinds == PUT) | (kinds == PUT_ANYWHERE)).sum())
            counts = {"changes": len(kinds), "puts": puts, "clears": int((kinds == CLEAR).sum()), "rejected": len(bad)}
            yield _counted(counts)
            for piece in _cut(bad, _REJECT_BYTES):
                group += 1
                yield _routed(ASIDE - group % setup.shards, ipc(piece))
            for shard, message in routing.route(good) if len(kinds) else ():
                yield _routed(shard, message.pack())

    return route


def filler(setup: Setup, generation: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: from the rows of a table, as puts, to messages that fill the families of a generation."""

    def fill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routing = Router(setup, generation)
        for rows in _gathered(batches):
            puts = pc.is_in(rows.column(CHANGE), pa.array([PUT, PUT_ANYWHERE], pa.int8()))
            yield _counted({FILLED: pc.sum(puts).as_py() or 0})
            for shard, message in routing.route(rows):
                yield _routed(shard, message.pack())

    return fill


def reject_filler(setup: Setup) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: from records that a backfill cannot read to messages that put them among the rejects."""

    def fill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        group = _partition()
        for bad in _gathered(batches):
            yield _counted({"rejected": len(bad), UNFILLED: len(bad)})
            for piece in _cut(bad.select([REASON, ORIGIN, RECORD]), _REJECT_BYTES):
                group += 1
                yield _routed(ASIDE - group % setup.shards, ipc(piece))

    return fill


def read_counts(body: bytes) -> dict[str, int]:
    """The counts in a message to the group `ASIDE`."""
    counts: dict[str, int] = json.loads((read_ipc(body).schema.metadata or {}).get(b"counts", b"{}"))
    return counts


def _counted(counts: dict[str, int]) -> pa.RecordBatch:
    return _routed(ASIDE, ipc(_NO_REJECTS.replace_schema_metadata({"counts": json.dumps(counts)})))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches cut and joined to what is worth routing together, in bounded memory."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch, _MESSAGE_BYTES):
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows >= _ROWS_AT_ONCE or size >= _MESSAGE_BYTES:
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _cut(rows: _Rows, size: int) -> Iterator[_Rows]:
    """Rows in pieces of about this many bytes, one row at least."""
    at_once = max(1, rows.num_rows * size // max(1, rows.nbytes))
    for at in range(0, rows.num_rows, at_once):
        yield rows.slice(at, at_once)


def _routed(shard: int, body: bytes | memoryview) -> pa.RecordBatch:
    return pa.record_batch({"shard": pa.array([shard], pa.int32()), "body": pa.array([bytes(body)], pa.binary())})


def worker(setup: Setup) -> Callable[[Any, Iterable[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """For `applyInPandasWithState`: from `ROUTED` by shard to `OUTPUT`, with `STATE`."""

    def work(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        shard = int(key[0])
        if shard < 0:
            yield from _frames(_set_aside(bytes(body) for frame in frames for body in frame["body"]))
            return
        batch, began = batch_id(), time.perf_counter()
        bodies = [bytes(body) for frame in frames for body in frame["body"]]
        culprits = Culprits(setup.key_names)
        before = bytes(state.get[0]) if state.exists else None
        emitting = _Emitting(shard, DRIVER_BYTES // setup.shards)
        repeated: dict[int, int] = {}
        steps = _work(setup).apply(shard, batch, before, bodies, culprits, repeated)
        manifest = yield from _frames(emitting.rows(steps))
        value = manifest.dump()
        state.update((value,))
        tally = _tally(setup, manifest) | emitting.told() | {"struck": culprits.told(), "repeated": repeated}
        tally |= {"bytes": len(value), "seconds": round(time.perf_counter() - began, 6)}
        yield _frame([_told(shard, tally)])

    return work


def _splits_a_commit(setup: Setup) -> bool:
    """Whether the source cut the batch inside a commit: then a new row may come before the old one goes."""
    if setup.offsets is None:
        return False
    number, (_, files, root) = batch_id(), opened(setup.offsets)
    texts = [str(files.open_input_stream(f"{root}/{n}").read(), "utf-8") for n in (number - 1, number) if n >= 0]
    return any(inside_a_commit(offset_of(text)) for text in texts)


def batch_id() -> int:
    """The number of the micro-batch that this task is of. Run files are named by it and kept for so many batches."""
    text = _property("streaming.sql.batchId")
    if text is None:
        raise EngineError(
            "this task belongs to no micro-batch, so its state cannot be saved",
            hint="changes must come as a streaming DataFrame, and Spark must pass on `streaming.sql.batchId`",
        )
    return int(text)


def _property(name: str) -> str | None:
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _tally(setup: Setup, manifest: Manifest) -> dict[str, Any]:
    """What a shard holds: open violations by the number of their rule, and what became of all changes so far."""
    held = [(family, state) for family in setup.families if (state := manifest.families.get(family.identity))]
    became: dict[str, int] = {}
    for _, state in held:
        for name, n in state.tally.items():
            became[name] = became.get(name, 0) + n
    counts = {rule: n for family, state in held for rule, n in zip(family.rules, state.open, strict=True) if n >= 0}
    unlisted = {
        rule: n
        for family, state in held
        for rule, n, reported in zip(family.rules, state.unlisted, state.open, strict=True)
        if n and reported >= 0
    }
    states = list(manifest.families.values())
    rows = sum(run.rows for state in states for run in state.runs) + sum(s.tail.rows for s in states if s.tail)
    files = sum(run.file.length for state in states for run in state.runs if run.file)
    filled = {family.generation: state.filled for family, state in held if family.generation in setup.fills}
    hidden = {family.generation for family, state in held if HIDDEN in state.open}
    done = sorted({family.generation for family, _ in held} - hidden)
    return {
        "open": counts,
        "unlisted": unlisted,
        "became": became,
        "rows": rows,
        "file_bytes": files,
        "filled": filled,
        "shown": done if setup.rebuilding else [],
    }


def _work(setup: Setup) -> ShardWork:
    """The work of a setup. It is made again when anything in the setup has changed, be it only an option."""
    work = _WORK.get(setup.store.uri)
    if work is None or not setup.same_as(work.setup):
        work = _WORK[setup.store.uri] = ShardWork(setup)
    return work


class _Emitting:
    """The pieces of a shard as rows of `OUTPUT`: counts them, and marks those that the driver may collect."""

    def __init__(self, shard: int, room: int) -> None:
        self._shard, self._room = shard, room
        self._pairs: Counter[tuple[int, int, bool]] = Counter()

    def rows(self, steps: Generator[Piece, None, Manifest]) -> Generator[tuple[Any, ...], None, Manifest]:
        """The rows of all pieces; returns what the steps return."""
        while True:
            try:
                piece = next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            yield self._row(piece)

    def _row(self, piece: Piece) -> tuple[Any, ...]:
        self._pairs[piece.rule, piece.sign, piece.moving] += piece.pairs
        self._room -= piece.written
        return (DELTAS, self._shard, piece.rule, piece.sign, piece.pairs, piece.moving, self._room >= 0, piece.body)

    def told(self) -> dict[str, Any]:
        """For the tally: the pairs by rule, sign and `moving`, and whether the driver may collect all pieces."""
        return {"pairs": [[*kind, n] for kind, n in self._pairs.items()], "collect": self._room >= 0}


def _frames(rows: Generator[tuple[Any, ...], None, _T]) -> Generator[pd.DataFrame, None, _T]:
    """Rows of `OUTPUT` in frames of bounded size; returns what the rows' generator returns."""
    held: list[tuple[Any, ...]] = []
    size = 0
    while True:
        try:
            row = next(rows)
        except StopIteration as end:
            if held:
                yield _frame(held)
            return end.value  # type: ignore[no-any-return]
        held.append(row)
        size += len(row[-1])
        if size >= _OUTPUT_BYTES:
            yield _frame(held)
            held, size = [], 0


def _set_aside(bodies: Iterable[bytes]) -> Generator[tuple[Any, ...], None, None]:
    """The rejects of a group, one piece at a time, and at last the counts that came with them."""
    counts: Counter[str] = Counter()
    for body in bodies:
        table = read_ipc(body)
        counts.update(json.loads((table.schema.metadata or {}).get(b"counts", b"{}")))
        if len(table):
            yield (REJECTS, ASIDE, -1, 0, len(table), False, False, body)
    yield _told(ASIDE, counts)


def _told(shard: int, tally: dict[str, Any]) -> tuple[Any, ...]:
    return (TALLY, shard, -1, 0, 0, False, True, json.dumps(tally).encode())


def _frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame.from_records(rows, columns=list(OUTPUT_COLUMNS))


def unpacker(setup: Setup) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: from pieces of `OUTPUT` to violations, with `reason` and `moving` behind `OUTPUT_SCHEMA`."""

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key, rules = setup.key_names, [bound.rule for bound in setup.rules]
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("kind", "pairs", "rule", "sign", "moving")]
            for kind, n, rule, sign, moving, body in zip(*columns, batch.column("body"), strict=True):
                if kind == REJECTS:
                    reason = read_ipc(body.as_buffer()).column(0)[0].as_py()
                    raise DataError(f"{n} changes cannot be read, the first because {reason}")
                told = unpack_pairs(rules[rule], key, "added" if sign > 0 else "removed", body.as_buffer())
                why = pa.array(
                    [setup.ended.get(rule, REBUILT) if sign == CLOSED else None] * told.num_rows, pa.string()
                )
                moves = pa.array([moving] * told.num_rows, pa.bool_())
                held.append(pa.RecordBatch.from_arrays([*told.columns, why, moves], schema=_UNPACKED))
                rows, size = rows + told.num_rows, size + told.nbytes
                if rows >= PAIRS_A_PIECE or size >= _BYTES_AT_ONCE:
                    yield from _joined(held)
                    held, rows, size = [], 0, 0
        yield from _joined(held)

    return unpack


def unpack_rejects(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: from rejects of `OUTPUT` to reason, origin and record."""
    for batch in batches:
        for body in batch.column("body"):
            for rejects in read_ipc(body.as_buffer()).to_batches():
                yield pa.RecordBatch.from_arrays(rejects.columns, ["reason", "origin", "record"])


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in as few batches as can be."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if len(batches) > 1 else batches


_UNPACKED = OUTPUT_SCHEMA.append(pa.field("reason", pa.string())).append(pa.field("moving", pa.bool_()))
