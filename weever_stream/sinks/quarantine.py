"""Which rows are in an open violation of some severity: the Delta table `keys`, and the table split by it (`split.py`).

`keys` has a row for each key and each violation that it is in, so nothing is counted up and down: a violation that ends
takes its own rows with it, whatever else they are in and whatever severity its rule has by now. Exactly once, as in
`delta.py`: one commit a batch with a transaction id. A batch that only adds is an append; one with removals is a MERGE
that reads the files of the rules in the batch and rewrites those that hold a removed violation.

A violation counts by the severity that its rule had when it began. What was open before the sink was there is known to
nobody, so a table that begins in the middle is refused, and so is another `min_severity`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as fn

from weever_stream.errors import OutputError
from weever_stream.rules.model import SEVERITIES
from weever_stream.sinks.batch import ADDED, REMOVED
from weever_stream.sinks.delta import (
    FILE_SIZES,
    append,
    as_transaction,
    by_rule,
    child,
    retried,
    settings,
)
from weever_stream.sinks.failures import writing
from weever_stream.sinks.ownership import claim, owner_of, refuse_ahead, refuse_lost
from weever_stream.sinks.tables import QUARANTINE, make_table
from weever_stream.state.owners import not_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from weever_stream.job.options import QuarantineSink
    from weever_stream.sinks.batch import Batch
    from weever_stream.sinks.split import Split

__all__ = ["Quarantine"]

_PROPERTY = "weever.minSeverity"
_ANEW = "an empty checkpoint, started with --take-over, finds everything again"


@dataclass(frozen=True)
class _Told:
    """What a batch says of `keys`."""

    rows: DataFrame
    """The columns of `keys` and `change`: a row for each row of each violation."""
    added: list[str]
    """The rules of those that are added."""
    removed: list[str]


class Quarantine:
    """The sink of kind `quarantine`."""

    def __init__(
        self, spark: SparkSession, options: QuarantineSink, split: Split | None = None, *, take_over: bool = False
    ) -> None:
        self._path = child(options.path, "keys")
        self._severities = SEVERITIES[SEVERITIES.index(options.min_severity) :]
        self._split, self._take_over, self._first = split, take_over, True
        make_table(spark, self._path, QUARANTINE)
        if not take_over and owner_of(spark, self._path) is not None:
            self._check_severity(spark)
        there = DeltaTable.forPath(spark, self._path).toDF().select("rule").distinct().collect()
        self._rules = {str(row["rule"]) for row in there}
        """The rules that may have rows in the table."""

    def write(self, batch: Batch) -> None:
        """Brings `keys`, and then the tables that are split by it, to where the batch ends."""
        if self._first:
            self._begin(batch)
            self._first = False
        with settings(batch.deltas.sparkSession, FILE_SIZES), self._told(batch) as told:
            if told is not None:
                self._change(told, batch)
            if self._split is not None:
                self._split.write(batch, told.rows.select("key") if told is not None else None, self._path)

    @contextmanager
    def _told(self, batch: Batch) -> Iterator[_Told | None]:
        """What the batch says of `keys`, kept in memory; None for nothing."""
        if not (batch.added or batch.removed):
            yield None
            return
        kinds = batch.deltas.select("rule", "severity", "change").distinct().collect()
        added = sorted({row.rule for row in kinds if row.change == ADDED and row.severity in self._severities})
        # By the rule and not by its severity: that may be another one than when the violation began.
        removed = sorted({row.rule for row in kinds if row.change == REMOVED} & self._rules)
        if not (added or removed):
            yield None
            return
        self._rules |= set(added)
        coming = fn.col("severity").isin(*self._severities) & (fn.col("change") == ADDED)
        going = fn.col("rule").isin(removed) & (fn.col("change") == REMOVED)
        kept = _rows(batch.deltas.where(coming | going)).persist()
        try:
            yield _Told(kept, added, removed)
        finally:
            kept.unpersist()

    def _change(self, told: _Told, batch: Batch) -> None:
        refuse_lost(batch.deltas.sparkSession, self._path, batch)
        rows = by_rule(told.rows, batch)
        if not told.removed:
            append(rows.select(*QUARANTINE.columns), self._path, batch, "keys")
            return
        with writing(f"the Delta table {self._path}"), as_transaction(batch, "keys"):
            retried(lambda: self._merge(rows, told))

    def _merge(self, rows: DataFrame, told: _Told) -> None:
        same = (
            # Written out, the rules let Delta leave out files of other rules before it reads anything.
            fn.col("keys.rule").isin(sorted({*told.added, *told.removed}))
            & (fn.col("keys.rule") == fn.col("batch.rule"))
            & (fn.col("keys.violation_id") == fn.col("batch.violation_id"))
            & (fn.col("keys.key") == fn.col("batch.key"))
        )
        table = DeltaTable.forPath(rows.sparkSession, self._path).alias("keys")
        merge = table.merge(rows.alias("batch"), same).whenMatchedDelete(fn.col("batch.change") == REMOVED)
        if told.added:
            values: dict[str, str | Column] = {name: fn.col(f"batch.{name}") for name in QUARANTINE.columns}
            merge = merge.whenNotMatchedInsert(fn.col("batch.change") == ADDED, values)
        merge.execute()

    def _begin(self, batch: Batch) -> None:
        """Refuses a table of another query, one that is ahead, and a beginning in the middle."""
        session = batch.deltas.sparkSession
        owner = owner_of(session, self._path)
        if owner == batch.query_id:
            self._check_severity(session)
            refuse_ahead(session, self._path, batch, "keys")
            return
        if owner is not None and not self._take_over:
            raise not_ours(self._path)
        if batch.open_before > 0:  # before anything of the other run is deleted
            raise OutputError(
                f"{self._path} begins in the middle: which rows are in the violations that are open is not known",
                hint=_ANEW,
            )
        if owner is not None:
            with writing(f"the Delta table {self._path}"), as_transaction(batch, "keys/take-over"):
                retried(lambda: DeltaTable.forPath(session, self._path).delete())
            self._rules = set()
        self._note_severity(session)
        claim(session, self._path, batch.query_id)  # last: a start that was cut off begins again

    def _check_severity(self, spark: SparkSession) -> None:
        (detail,) = DeltaTable.forPath(spark, self._path).detail().select("properties").collect()
        noted = dict(detail["properties"]).get(_PROPERTY)
        if noted != self._severities[0]:
            raise OutputError(
                f"{self._path} was begun with the severity {noted}, now `min_severity` is {self._severities[0]}",
                hint=f"change it back, or: {_ANEW}",
            )

    def _note_severity(self, spark: SparkSession) -> None:
        name = self._path.replace("`", "``")
        with writing(f"the Delta table {self._path}"):
            spark.sql(f"ALTER TABLE delta.`{name}` SET TBLPROPERTIES ('{_PROPERTY}' = '{self._severities[0]}')")


def _rows(deltas: DataFrame) -> DataFrame:
    """A row for each row of each violation."""
    sides = fn.array(
        fn.struct(fn.col("left_key").alias("key"), fn.col("right_key").alias("other_key")),
        fn.struct(fn.col("right_key").alias("key"), fn.col("left_key").alias("other_key")),
    )
    told = [name for name in QUARANTINE.columns if name not in ("key", "other_key", "since")]
    rows = deltas.select(*told, "change", fn.col("detected_at").alias("since"), fn.inline(sides))
    return rows.where(fn.col("key").isNotNull())
