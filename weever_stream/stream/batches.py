"""One micro-batch after the operator: computed once, written to every sink, its position published last.

The operator's output is persisted before anything reads it, or each sink would run the state function again. Pairs that
moved between shards are set off only in batches that have any. If a sink fails, the batch fails and is repeated as a
whole; sinks bear that (see `sinks.batch`). Cost: one pass over the operator's output, and what the sinks take. The
driver collects tallies, and up to `operator.DRIVER_BYTES` of violations: a batch with more is unpacked by Spark.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import functions as F

from weever_stream.errors import DataError
from weever_stream.learn.drift import Observation
from weever_stream.sinks.batch import DELTA_COLUMNS, REJECT_COLUMNS, Batch
from weever_stream.stream.deltas import DELTA_SCHEMA, net, unpacked, unpacked_here
from weever_stream.stream.drifting import struck
from weever_stream.stream.failures import shorten_failures
from weever_stream.stream.operator import ASIDE, DELTAS, REJECTS, TALLY, UNFILLED, unpack_rejects
from weever_stream.stream.position import planned, read_text
from weever_stream.stream.progress import BatchReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from weever_stream.job.options import Rejects
    from weever_stream.learn.drift import Drift
    from weever_stream.sinks.batch import Sink
    from weever_stream.stream.position import Planned
    from weever_stream.stream.progress import Ledger
    from weever_stream.stream.setup import Setup

__all__ = ["Batches", "too_many"]

_REJECTED = "reason string, origin string, record string"
_LOCATED = 10_000
"""With more rejects in a batch nobody looks for them one by one."""
_Changed: TypeAlias = "Counter[tuple[str, str]]"
"""How many violations of a rule were added, and removed."""


@dataclass(frozen=True)
class Batches:
    """What is done with every batch of a query."""

    spark: SparkSession
    setup: Setup
    checkpoint: str
    sinks: Sequence[Sink]
    guard: Sink
    """Raises where the checkpoint has come to belong to another: before anything is written."""
    dead_letters: Sink
    rejects: Rejects
    locate: Callable[[DataFrame], DataFrame]
    """Adds to the origin of rejects (see `Feed.locate`)."""
    ledger: Ledger
    drift: Drift
    observe: Callable[[BatchReport], None]

    def __call__(self, output: DataFrame, batch: int) -> None:
        """For `foreachBatch`."""
        began = time.perf_counter()
        with shorten_failures():
            output.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                self._write(output, batch, began)
            finally:
                output.unpersist()

    def _write(self, output: DataFrame, number: int, began: float) -> None:
        when = planned(self.spark, self.checkpoint, number)
        said = _said(output)
        tallies = [self.ledger.take(shard, tally) for shard, tally in said.shards.items()]
        counts = said.counts
        deltas, moved, changed = self._net(output, said)
        by_rule = {change: self._by_rule(changed, change) for change in ("added", "removed")}
        added, removed = (sum(by_rule[change].values()) for change in ("added", "removed"))
        try:
            batch = Batch(
                id=number,
                query_id=self._query_id,
                position=when.position,
                detected_at=when.at,
                deltas=_stamped(deltas, when, number).select(*DELTA_COLUMNS),
                rejects=_stamped(self._rejects(output, counts), when, number).select(*REJECT_COLUMNS),
                added=added,
                removed=removed,
                rejected=counts.get("rejected", 0),
                open=self.ledger.open(),
                unlisted=self.ledger.unlisted(),
                collected=said.collected,
                backfilling=self.ledger.backfilling().keys(),
            )
            self.guard.write(batch)
            self.dead_letters.write(batch)
            self._refuse_too_many(counts)
            for sink in self.sinks:
                self.guard.write(batch)  # each may take long, and a machine may be suspended in between
                sink.write(batch)
            self.guard.write(batch)
        finally:
            if moved is not None:
                moved.unpersist()
        notices = self.drift.observe(self._observed(batch, said, counts.get("changes", 0)))
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
            duplicates=self.ledger.duplicates(tallies),
            stale=self.ledger.stale(),
            behind=self._behind(),
            unlisted=self.ledger.unlisted(),
            added_by_rule=by_rule["added"],
            removed_by_rule=by_rule["removed"],
            operations=_operations(counts),
            held=self.ledger.held(),
            backfilling=self.ledger.backfilling(),
            drifting=list(self.drift.drifting),
            drift=[notice.as_json() for notice in notices],
        )
        self.ledger.note(report, self.drift)
        self.observe(report)

    def _observed(self, batch: Batch, said: _Said, changes: int) -> Observation:
        """What is looked at for drift."""
        still = {name: n + batch.unlisted.get(name, 0) for name, n in batch.open.items()}
        broken = struck(said.shards.values(), self._names)
        return Observation(
            batch.id, changes, batch.position, batch.detected_at.isoformat(timespec="seconds"), broken, still
        )

    def _net(self, output: DataFrame, said: _Said) -> tuple[DataFrame, DataFrame | None, _Changed]:
        """The deltas, what of them is kept in memory, and how many of each rule were added and removed."""
        if said.collected:
            return self._net_here(said.pieces, output.sparkSession)
        still: _Changed = Counter()
        moving: _Changed = Counter()
        for tally in said.shards.values():
            for rule, sign, moves, n in tally["pairs"]:
                counts = moving if moves else still
                counts[self._names[rule], "added" if sign > 0 else "removed"] += n
        deltas = unpacked(output, self.setup)
        if len({change for _, change in +moving}) < 2:
            return deltas.drop("moving"), None, still + moving
        moved = net(deltas.where("moving")).persist()
        left = moved.groupBy("rule", "change").agg(F.count("*").alias("n")).collect()
        whole = deltas.where("not moving").unionByName(moved).drop("moving")
        return whole, moved, still + Counter({(row.rule, row.change): row.n for row in left})

    def _net_here(self, pieces: list[Row], session: SparkSession) -> tuple[DataFrame, None, _Changed]:
        """The same for a batch whose pieces are all here: no further job, however many sinks read it.

        In the query's own session: sinks change its settings, and no other query may see that.
        """
        if not pieces:
            return session.createDataFrame([], DELTA_SCHEMA), None, Counter()
        table = unpacked_here(pieces, self.setup)
        counted = table.group_by(["rule", "change"], use_threads=False).aggregate([([], "count_all")])
        changed = Counter({(row["rule"], row["change"]): row["count_all"] for row in counted.to_pylist()})
        return session.createDataFrame(table), None, changed

    @cached_property
    def _names(self) -> list[str]:
        """The names of rules by their numbers."""
        return [bound.rule.name for bound in self.setup.rules]

    def _by_rule(self, changed: _Changed, change: str) -> dict[str, int]:
        """How many of each rule were added, or removed, in the order of the rules."""
        return {name: n for name in dict.fromkeys(self._names) if (n := changed[name, change])}

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

    def _rejects(self, output: DataFrame, counts: dict[str, int]) -> DataFrame:
        rejects = output.where(F.col("kind") == REJECTS).select("body").mapInArrow(unpack_rejects, _REJECTED)
        return self.locate(rejects) if 0 < counts.get("rejected", 0) <= _LOCATED else rejects

    def _refuse_too_many(self, counts: dict[str, int]) -> None:
        """Stops the job when too large a share cannot be read: a feed of another kind, most likely."""
        # What a backfill could not read was judged when it was filled.
        rejected = counts.get("rejected", 0) - counts.get(UNFILLED, 0)
        all_of = rejected + counts.get("changes", 0)
        if too_many(self.rejects, rejected, all_of):
            where = getattr(self.rejects.sink, "path", None) or f"{self.checkpoint}/weever/rejects"
            raise DataError(
                f"{rejected} of {all_of} records cannot be read, more than a share of {self.rejects.max_share:g}",
                hint=f"their reasons are in {where}; mend the feed, or raise `source.rejects.max_share`",
            )


def too_many(rejects: Rejects, rejected: int, all_of: int) -> bool:
    """Whether more records are rejected than a job allows. Few records are not judged, unless none may be rejected."""
    judged = rejects.max_share == 0 or all_of >= rejects.judged_from
    return judged and rejected > rejects.max_share * all_of


@dataclass(frozen=True)
class _Said:
    """What the operator said of a batch, as far as the driver collects it."""

    shards: dict[int, dict[str, Any]]
    """The tally of each shard."""
    counts: Counter[str]
    """What was counted where changes were routed."""
    pieces: list[Row]
    """Pieces of pairs that may be unpacked in the driver."""

    @property
    def collected(self) -> bool:
        """Whether these are all pieces."""
        return all(tally["collect"] for tally in self.shards.values())


def _said(output: DataFrame) -> _Said:
    """The first pass: it runs the operator."""
    rows = output.where("collect").select("kind", "shard", "rule", "sign", "pairs", "moving", "body").collect()
    tallies = [(row.shard, json.loads(bytes(row.body))) for row in rows if row.kind == TALLY]
    counts: Counter[str] = Counter()
    for shard, tally in tallies:
        if shard == ASIDE:
            counts.update(tally)
    shards = {shard: tally for shard, tally in tallies if shard != ASIDE}
    return _Said(shards, counts, [row for row in rows if row.kind == DELTAS])


def _operations(counts: dict[str, int]) -> dict[str, int]:
    """The changes by what they do, from what was counted where they were routed."""
    puts, clears = counts.get("puts", 0), counts.get("clears", 0)
    return {"put": puts, "drop": counts.get("changes", 0) - puts - clears, "clear": clears}


def _stamped(rows: DataFrame, when: Planned, batch: int) -> DataFrame:
    return rows.withColumns(
        {
            "source_position": F.lit(when.position),
            "batch_id": F.lit(batch).cast("bigint"),
            "detected_at": F.lit(when.at),
        }
    )
