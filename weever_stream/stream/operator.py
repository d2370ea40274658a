"""The operator on Spark: three functions that Spark calls, each a thin shell around pure code.

    changes ─ mapInArrow(route) ─> ROUTED ─ groupBy(shard).applyInPandasWithState(work) ─> OUTPUT ─ unpack ─> deltas

Bodies are binary values, so neither numbers nor times nor nulls pass through pandas (where one null makes a bigint
column floats). Of every batch the operator tells deltas as packed pieces, for each shard a tally, and what was
rejected. A worker keeps run files mapped between calls; that is a cache and never the truth: the manifest is.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weever_stream.detect.culprits import Culprits
from weever_stream.detect.pairs import PAIRS_A_PIECE, unpack_pairs
from weever_stream.detect.sections import ipc, read_ipc
from weever_stream.detect.violations import OUTPUT_SCHEMA
from weever_stream.errors import DataError
from weever_stream.feeds.changes import CHANGE, CLEAR, PUT, PUT_ANYWHERE
from weever_stream.stream.routing import Router, split_rejects
from weever_stream.stream.work import CLOSED, ShardWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd
    from pyspark.sql import DataFrame

    from weever_stream.state.manifest import Manifest
    from weever_stream.stream.setup import Setup
    from weever_stream.stream.work import Piece

    _InArrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = [
    "ASIDE", "DELTAS", "OUTPUT", "OUTPUT_COLUMNS", "REJECTS", "ROUTED", "STATE", "TALLY",
    "filler", "mapped", "router", "unpack_rejects", "unpacker", "worker",
]  # fmt: skip

ROUTED = "shard int, body binary"
STATE = "manifest binary"
OUTPUT = "kind int, shard int, rule int, sign int, pairs bigint, moving boolean, body binary"
OUTPUT_COLUMNS = tuple(column.split()[0] for column in OUTPUT.split(", "))
DELTAS, TALLY, REJECTS = 0, 1, 2
"""Kinds of output: pieces of pairs; what became of a shard's part of the batch, in JSON; rejected records."""
ASIDE = -1
"""The shard that holds nothing: it passes on what was rejected, and how many changes there were."""
_ROWS_AT_ONCE = 1 << 17
_BYTES_AT_ONCE = 32 << 20
_OUTPUT_BYTES = 8 << 20

_WORK: dict[str, ShardWork] = {}
"""By the setup's identity and store: one a process."""


def mapped(frame: DataFrame, function: _InArrow, schema: str) -> DataFrame:
    """`mapInArrow` for columns of any name. PySpark looks them up by name, and takes `a.b` for a field of `a`."""
    names = frame.columns

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

    return frame.toDF(*(f"_{number}" for number in range(len(names)))).mapInArrow(named, schema)


def router(setup: Setup) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: from a change frame to `ROUTED`."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routing = Router(setup)
        for changes in _gathered(batches):
            good, bad = split_rejects(changes)
            kinds = good.column(CHANGE).to_numpy()
            puts = int(((kinds == PUT) | (kinds == PUT_ANYWHERE)).sum())
            counts = {"changes": len(kinds), "puts": puts, "clears": int((kinds == CLEAR).sum()), "rejected": len(bad)}
            yield _routed(ASIDE, ipc(bad.replace_schema_metadata({"counts": json.dumps(counts)})))
            for shard, message in routing.route(good) if len(kinds) else ():
                yield _routed(shard, message.pack())

    return route


def filler(setup: Setup, generation: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: from the rows of a table, as puts, to messages that fill the families of a generation."""

    def fill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routing = Router(setup, generation)
        for rows in _gathered(batches):
            for shard, message in routing.route(rows):
                yield _routed(shard, message.pack())

    return fill


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined until they are worth routing together."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _routed(shard: int, body: bytes | memoryview) -> pa.RecordBatch:
    return pa.record_batch({"shard": pa.array([shard], pa.int32()), "body": pa.array([bytes(body)], pa.binary())})


def worker(setup: Setup) -> Callable[[Any, Iterable[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """For `applyInPandasWithState`: from `ROUTED` by shard to `OUTPUT`, with `STATE`."""

    def work(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        from pyspark import TaskContext

        shard = int(key[0])
        bodies = [bytes(body) for frame in frames for body in frame["body"]]
        if shard == ASIDE:
            for row in _set_aside(bodies):
                yield _frame([row])
            return
        context = TaskContext.get()
        batch = int((context.getLocalProperty("streaming.sql.batchId") if context else None) or 0)
        began = time.perf_counter()
        culprits = Culprits(setup.key_names)
        steps = _work(setup).apply(shard, batch, bytes(state.get[0]) if state.exists else None, bodies, culprits)
        manifest = yield from _bounded(shard, steps)
        value = manifest.dump()
        state.update((value,))
        tally = _tally(setup, manifest) | {"struck": culprits.told()}
        tally |= {"bytes": len(value), "seconds": round(time.perf_counter() - began, 6)}
        yield _frame([(TALLY, shard, -1, 0, 0, False, json.dumps(tally).encode())])

    return work


def _tally(setup: Setup, manifest: Manifest) -> dict[str, Any]:
    """What a shard holds: open violations by the number of their rule, and what became of all changes so far."""
    held = [(family, state) for family in setup.families if (state := manifest.families.get(family.identity))]
    became: dict[str, int] = {}
    for _, state in held:
        for name, n in state.tally.items():
            became[name] = became.get(name, 0) + n
    counts = {rule: n for family, state in held for rule, n in zip(family.rules, state.open, strict=True) if n >= 0}
    unlisted = {rule: n for family, state in held for rule, n in zip(family.rules, state.unlisted, strict=True) if n}
    states = list(manifest.families.values())
    rows = sum(run.rows for state in states for run in state.runs) + sum(s.tail.rows for s in states if s.tail)
    files = sum(run.file.length for state in states for run in state.runs if run.file)
    return {"open": counts, "unlisted": unlisted, "became": became, "rows": rows, "file_bytes": files}


def _work(setup: Setup) -> ShardWork:
    known = f"{setup.identity} {setup.max_pairs} {setup.store.uri}"
    if known not in _WORK:
        for other in [name for name in _WORK if name.endswith(f" {setup.store.uri}")]:
            del _WORK[other]  # of the same state: rules have changed
        _WORK[known] = ShardWork(setup)
    return _WORK[known]


def _bounded(shard: int, steps: Any) -> Any:
    """Pieces in frames of bounded size; returns what the steps return."""
    held: list[tuple[Any, ...]] = []
    size = 0
    while True:
        try:
            piece: Piece = next(steps)
        except StopIteration as end:
            if held:
                yield _frame(held)
            return end.value
        held.append((DELTAS, shard, piece.rule, piece.sign, piece.pairs, piece.moving, piece.body))
        size += len(piece.body)
        if size >= _OUTPUT_BYTES:
            yield _frame(held)
            held, size = [], 0


def _set_aside(bodies: list[bytes]) -> list[tuple[Any, ...]]:
    """The counts of all changes of a batch, and its rejects."""
    counts: dict[str, int] = {}
    told: list[tuple[Any, ...]] = []
    for body in bodies:
        table = read_ipc(body)
        for name, n in json.loads(table.schema.metadata[b"counts"]).items():
            counts[name] = counts.get(name, 0) + n
        if len(table):
            told.append((REJECTS, ASIDE, -1, 0, len(table), False, body))
    return [(TALLY, ASIDE, -1, 0, 0, False, json.dumps(counts).encode()), *told]


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
                why = pa.array([setup.ended.get(rule) if sign == CLOSED else None] * told.num_rows, pa.string())
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
