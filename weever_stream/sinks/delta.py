"""Delta tables under one path: `log`, every addition and removal, and `open`, the violations that are there now.

Exactly once: each table takes a batch in one commit with a transaction id (query id and table, batch id), so a batch
that is written again changes nothing. A batch without removals is a plain append to both. One with removals is an
append to `log` and one MERGE into `open`, which reads ids in the files that may hold rules of the batch and rewrites
those that hold a removed violation: files are written in the order of rules and are small. A commit that conflicts with
OPTIMIZE or other work on the tables is tried again. A task has one Parquet writer open, however many rules there are.

The tables must belong to the job: one that another query owns, or that is ahead of the checkpoint, is refused, because
its content would not add up. `take_over` closes what the earlier query left open and goes on.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from pyspark.sql import functions as fn

from weever_stream.sinks.batch import ADDED, REMOVED
from weever_stream.sinks.failures import writing
from weever_stream.sinks.ownership import app_id, claim, owner_of, refuse_ahead, refuse_lost, refuse_middle
from weever_stream.sinks.tables import LOG, OPEN, make_table, metadata_of
from weever_stream.state.owners import not_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from weever_stream.job.options import DeltaSink
    from weever_stream.sinks.batch import Batch, Identified

__all__ = [
    "FILE_SIZES",
    "DeltaTables",
    "append",
    "as_transaction",
    "by_rule",
    "child",
    "one_file_if_small",
    "retried",
    "settings",
]

_SMALL = 50_000
"""A batch of up to this many rows is written by one task, as one file."""
_TRIES, _FIRST_WAIT = 6, 0.2
_CONFLICTS = (
    # Listed one by one: DeltaConcurrentModificationException is not the base class of the others.
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
    DeltaConcurrentModificationException,
)
"""What Delta raises when a commit conflicts with another one."""
_LAYOUTS = {"log": LOG, "open": OPEN}
FILE_SIZES = {
    "spark.databricks.delta.autoCompact.maxFileSize": str(16 << 20),
    "spark.sql.files.maxRecordsPerFile": "250000",
}
"""How large a file may get: a removal rewrites the whole file that holds it. 250,000 violations are about 16 MB."""


class DeltaTables:
    """The sink of kind `delta`."""

    def __init__(self, spark: SparkSession, options: DeltaSink, *, take_over: bool = False) -> None:
        self._paths: dict[str, str] = {
            name: child(options.path, name) for name in ("log", "open") if name in options.tables
        }
        self._take_over = take_over
        self._first = True
        for name, path in self._paths.items():
            make_table(spark, path, _LAYOUTS[name])

    def write(self, batch: Batch) -> None:
        """Writes a batch into each table, in one commit each."""
        if self._first:
            for name, path in self._paths.items():
                self._begin(name, path, batch)
            self._first = False
        if not (batch.added or batch.removed):
            return
        session = batch.deltas.sparkSession
        for path in self._paths.values():
            refuse_lost(session, path, batch)
        with settings(session, FILE_SIZES), _read_once(batch, len(self._paths)) as deltas:
            if "log" in self._paths:
                append(one_file_if_small(deltas.select(*LOG.columns), batch), self._paths["log"], batch, "log")
            if "open" in self._paths:
                self._change_open(deltas, batch)

    def _change_open(self, deltas: DataFrame, batch: Batch) -> None:
        path = self._paths["open"]
        opened = deltas.withColumnRenamed("detected_at", "opened_at")
        if not batch.removed:
            append(by_rule(opened.select(*OPEN.columns), batch), path, batch, "open")
            return
        rules = _rules_in(deltas)
        with writing(f"the Delta table {path}"), as_transaction(batch, "open"):
            retried(lambda: _merge(path, by_rule(opened, batch), rules, batch))

    def _begin(self, name: str, path: str, batch: Batch) -> None:
        """Makes sure that the table's content is that of this query, up to the batch before this one or this one."""
        session = batch.deltas.sparkSession
        owner = owner_of(session, path)
        if owner == batch.query_id:
            refuse_ahead(session, path, batch, name)
            return
        if owner is not None:
            if not self._take_over:
                raise not_ours(path)
            refuse_middle(path, batch)
            self._close_all(name, batch)
        claim(session, path, batch.query_id)  # last: a take-over that was cut off is repeated

    def _close_all(self, name: str, batch: Batch) -> None:
        """Ends all that an earlier query left open: a removal of each in `log`, an empty `open`."""
        session = batch.deltas.sparkSession
        if name == "open":
            with writing(f"the Delta table {self._paths[name]}"), as_transaction(batch, "open/take-over"):
                retried(lambda: DeltaTable.forPath(session, self._paths[name]).delete())
            return
        log = session.read.format("delta").load(self._paths["log"])
        # Summed from the log itself: `open` may not be among the tables.
        closed = _still_open(log).withColumns(
            {
                "change": fn.lit(REMOVED),
                "reason": fn.lit("taken_over"),
                "source_position": fn.lit(batch.position),
                "batch_id": fn.lit(batch.id).cast("bigint"),
                "detected_at": fn.lit(batch.detected_at),
            }
        )
        append(closed.select(*LOG.columns), self._paths["log"], batch, "log/take-over")


def child(path: str, name: str) -> str:
    """A path below another, local or remote."""
    return f"{path.rstrip('/')}/{name}"


def one_file_if_small(frame: DataFrame, batch: Batch) -> DataFrame:
    """Few rows are not worth a file for each of the state's partitions."""
    return frame.coalesce(1) if max(batch.added + batch.removed, batch.rejected) <= _SMALL else frame


def by_rule(frame: DataFrame, batch: Batch) -> DataFrame:
    """Rows for a table that is searched by rule: Delta leaves out files whose rules are others."""
    return one_file_if_small(frame, batch).sortWithinPartitions("rule")


def append(frame: DataFrame, path: str, batch: Identified, table: str) -> None:
    """Appends in one commit, once: the second time that a table is given this batch, nothing happens."""
    writer = (
        frame.write.format("delta")
        .mode("append")
        .option("txnAppId", app_id(batch, table))
        .option("txnVersion", batch.id)
        .option("userMetadata", metadata_of(batch))
    )
    with writing(f"the Delta table {path}"):
        retried(lambda: writer.save(path))


def _merge(path: str, deltas: DataFrame, rules: list[str], batch: Batch) -> None:
    """Deletes what was removed and inserts what was added, in one commit."""
    same = (
        # Written out, the rules let Delta leave out files of other rules before it reads anything.
        fn.col("open.rule").isin(rules)
        & (fn.col("open.rule") == fn.col("batch.rule"))
        & (fn.col("open.violation_id") == fn.col("batch.violation_id"))
    )
    table = DeltaTable.forPath(deltas.sparkSession, path).alias("open")
    merge = table.merge(deltas.alias("batch"), same).whenMatchedDelete(fn.col("batch.change") == REMOVED)
    if batch.added:  # without insertions Delta can broadcast the batch, and need not shuffle the table's files
        merge = merge.whenNotMatchedInsert(
            fn.col("batch.change") == ADDED, {name: fn.col(f"batch.{name}") for name in OPEN.columns}
        )
    merge.execute()


def _rules_in(deltas: DataFrame) -> list[str]:
    """The rules that a batch is about. `batch.open` may not name them all: a job can close a rule that it gave up."""
    return sorted(row["rule"] for row in deltas.select("rule").distinct().collect())


def _still_open(log: DataFrame) -> DataFrame:
    """The last row of each violation in a log, where that is an addition."""
    sign = fn.when(fn.col("change") == ADDED, 1).otherwise(-1)
    last = fn.max_by(fn.struct(*(fn.col(name) for name in LOG.columns)), fn.struct("batch_id", "detected_at"))
    return (
        log.groupBy("violation_id")
        .agg(fn.sum(sign).alias("open"), last.alias("last"))
        .where("open > 0")
        .select("last.*")
    )


@contextmanager
def _read_once(batch: Batch, tables: int) -> Iterator[DataFrame]:
    """The deltas, kept in memory if they are read more than once: unpacking them is the expensive part."""
    if tables == 1 and not batch.removed:
        yield batch.deltas
        return
    # A selection, so that letting go of it does not let go of what the job itself may have kept.
    kept = batch.deltas.select("*", fn.lit(True).alias("_weever_kept")).persist()
    try:
        yield kept
    finally:
        kept.unpersist()


@contextmanager
def settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Session settings within a block. The session of a streaming query is its own: nobody else sees them."""
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


@contextmanager
def as_transaction(batch: Batch, table: str) -> Iterator[None]:
    """What are options of a write are session settings for MERGE and DELETE."""
    wanted = {
        "spark.databricks.delta.write.txnAppId": app_id(batch, table),
        "spark.databricks.delta.write.txnVersion": str(batch.id),
        "spark.databricks.delta.commitInfo.userMetadata": metadata_of(batch),
    }
    with settings(batch.deltas.sparkSession, wanted):
        yield


def retried(action: Callable[[], object]) -> None:
    """Runs an action again if another commit got in its way."""
    for attempt in range(_TRIES):
        try:
            action()
            return
        except _CONFLICTS:
            if attempt == _TRIES - 1:
                raise
            time.sleep(_FIRST_WAIT * 2**attempt)
