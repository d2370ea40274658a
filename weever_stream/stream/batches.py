"""One micro-batch after the operator: computed once, written to every sink, its position published last.

The operator's output is persisted before anything reads it, or each sink would run the state function again. Pairs that
moved between shards are set off only in batches that have any. If a sink fails, the batch fails and is repeated as a
whole; sinks bear that (see `sinks.batch`). Cost: one pass over the operator's output, and what the sinks take.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F

from weever_stream.errors import DataError
from weever_stream.sinks.batch import DELTA_COLUMNS, REJECT_COLUMNS, Batch
from weever_stream.stream.deltas import DELTA_SCHEMA, net, unpacked, unpacked_here
from weever_stream.stream.operator import ASIDE, DELTAS, REJECTS, TALLY, unpack_rejects
from weever_stream.stream.position import planned, read_text
from weever_stream.stream.progress import BatchReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from weever_stream.job.options import Rejects
    from weever_stream.sinks.batch import Sink
    from weever_stream.stream.position import Planned
    from weever_stream.stream.progress import Ledger
    from weever_stream.stream.setup import Setup

__all__ = ["Batches"]

_SMALL = 64 << 10
"""Bytes up to which a piece of pairs is unpacked in the driver. A batch has a few pieces for each shard and rule."""
_REJECTED = "reason string, origin string, record string"


@dataclass(frozen=True)
class Batches:
    """What is done with every batch of a query."""

    spark: SparkSession
    setup: Setup
    checkpoint: str
    sinks: Sequence[Sink]
    dead_letters: Sink
    rejects: Rejects
    ledger: Ledger
    observe: Callable[[BatchReport], None]

    def __call__(self, output: DataFrame, batch: int) -> None:
        """For `foreachBatch`."""
        began = time.perf_counter()
        output.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._write(output, batch, began)
        finally:
            output.unpersist()

    def _write(self, output: DataFrame, number: int, began: float) -> None:
        when = planned(self.spark, self.checkpoint, number)
        told = _told(output)
        tallies = [self.ledger.take(r.shard, bytes(r.body)) for r in told if r.kind == TALLY and r.shard != ASIDE]
        counts: dict[str, int] = next(
            (json.loads(bytes(row.body)) for row in told if row.kind == TALLY and row.shard == ASIDE), {}
        )
        deltas, moved, added, removed = self._net(output, told)
        try:
            batch = Batch(
                id=number,
                query_id=self._query_id,
                position=when.position,
                detected_at=when.at,
                deltas=_stamped(deltas, when, number).select(*DELTA_COLUMNS),
                rejects=_stamped(_rejects(output), when, number).select(*REJECT_COLUMNS),
                added=added,
                removed=removed,
                rejected=counts.get("rejected", 0),
                open=self.ledger.open(),
            )
            self.dead_letters.write(batch)
            self._refuse_too_many(counts)
            for sink in self.sinks:
                sink.write(batch)
        finally:
            if moved is not None:
                moved.unpersist()
        report = BatchReport(
            batch=number,
            position=when.position,
            detected_at=when.at,
            changes=counts.get("changes", 0),
            rejected=batch.rejected,
            added=added,
            removed=removed,
            open=dict(batch.open),
            seconds=round(time.perf_counter() - began, 6),
            shard_seconds=round(sum(tally.seconds for tally in tallies), 6),
            stale=self.ledger.stale(),
            behind=self._behind(),
            unlisted=self.ledger.unlisted(),
        )
        self.ledger.note(report)
        self.observe(report)

    def _net(self, output: DataFrame, told: list[Row]) -> tuple[DataFrame, DataFrame | None, int, int]:
        """The deltas, what of them is kept in memory, and how many were added and removed."""
        pieces = [row for row in told if row.kind == DELTAS]
        if all(row.body is not None for row in pieces):
            return self._net_here(pieces)
        pairs = {(sign, moving): 0 for sign in (1, -1) for moving in (True, False)}
        for row in pieces:
            pairs[1 if row.sign > 0 else -1, row.moving] += row.pairs
        deltas = unpacked(output, self.setup)
        added, removed = (pairs[sign, True] + pairs[sign, False] for sign in (1, -1))
        if not (pairs[1, True] and pairs[-1, True]):
            return deltas.drop("moving"), None, added, removed
        moved = net(deltas.where("moving")).persist()
        left = {row.change: row.n for row in moved.groupBy("change").agg(F.count("*").alias("n")).collect()}
        whole = deltas.where("not moving").unionByName(moved).drop("moving")
        added, removed = pairs[1, False] + left.get("added", 0), pairs[-1, False] + left.get("removed", 0)
        return whole, moved, added, removed

    def _net_here(self, pieces: list[Row]) -> tuple[DataFrame, None, int, int]:
        """The same for a batch whose pieces are all here: no further job, however many sinks read it."""
        if not pieces:
            return self.spark.createDataFrame([], DELTA_SCHEMA), None, 0, 0
        table = unpacked_here(pieces, self.setup)
        added = table.column("change").to_pylist().count("added")
        return self.spark.createDataFrame(table), None, added, len(table) - added

    @cached_property
    def _query_id(self) -> str:
        """The id that the query keeps for the life of its checkpoint."""
        return str(json.loads(read_text(self.spark, f"{self.checkpoint}/metadata"))["id"])

    def _behind(self) -> dict[str, str]:
        """What the source said, when it was last asked, of what it has not read yet."""
        for query in self.spark.streams.active:
            progress = query.lastProgress if str(query.id) == self._query_id else None
            for source in progress["sources"] if progress else ():
                metrics = source["metrics"] or {}
                return {
                    name: metrics[name] for name in ("maxOffsetsBehindLatest", "numFilesOutstanding") if name in metrics
                }
        return {}

    def _refuse_too_many(self, counts: dict[str, int]) -> None:
        """Stops the job when too large a share cannot be read: a feed of another kind, most likely."""
        rejected, all_of = counts.get("rejected", 0), counts.get("rejected", 0) + counts.get("changes", 0)
        strict = self.rejects.max_share == 0
        if (strict or all_of >= self.rejects.judged_from) and rejected > self.rejects.max_share * all_of:
            where = getattr(self.rejects.sink, "path", None) or f"{self.checkpoint}/weever/rejects"
            raise DataError(
                f"{rejected} of {all_of} records cannot be read, more than a share of {self.rejects.max_share:g}",
                hint=f"their reasons are in {where}; mend the feed, or raise `source.rejects.max_share`",
            )


def _told(output: DataFrame) -> list[Row]:
    """All that the operator said, without rejects and large pieces of pairs. The first pass: it runs the operator."""
    few = (F.col("kind") == DELTAS) & (F.octet_length("body") <= _SMALL)
    body = F.when((F.col("kind") == TALLY) | few, F.col("body")).alias("body")
    return output.select("kind", "shard", "rule", "sign", "pairs", "moving", body).collect()


def _rejects(output: DataFrame) -> DataFrame:
    return output.where(F.col("kind") == REJECTS).select("body").mapInArrow(unpack_rejects, _REJECTED)


def _stamped(rows: DataFrame, when: Planned, batch: int) -> DataFrame:
    return rows.withColumns(
        {
            "source_position": F.lit(when.position),
            "batch_id": F.lit(batch).cast("bigint"),
            "detected_at": F.lit(when.at),
        }
    )
