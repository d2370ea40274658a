"""Who may write a Delta table: the query whose id the table has in its property `weever.owner`.

A query claims a table before its first batch. The property is part of the table's metadata, so neither OPTIMIZE nor the
clean-up of the log hides it, and RESTORE brings it back with the content that it belongs to. How far the owner has come
is in the table's transaction identifiers (`txn` actions), which every snapshot has too. Reading both costs one look at
the log, once a start; the owner is looked at before every write, because another query may have taken the table over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from weever_stream.errors import OutputError
from weever_stream.sinks.failures import writing
from weever_stream.sinks.tables import published
from weever_stream.state.owners import PROPERTY, UNKNOWN, ahead, not_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Batch, Identified

__all__ = ["app_id", "claim", "owner_of", "refuse_ahead", "refuse_lost", "refuse_middle"]


def owner_of(spark: SparkSession, path: str) -> str | None:
    """The id of the query that owns a table. None for a table without an owner and without rows."""
    table = DeltaTable.forPath(spark, path)
    (detail,) = table.detail().select("properties").collect()
    owner = dict(detail["properties"]).get(PROPERTY)
    if owner is None and table.toDF().limit(1).count():
        return UNKNOWN
    return owner


def claim(spark: SparkSession, path: str, query_id: str) -> None:
    """Makes a query the owner of a table."""
    name = path.replace("`", "``")
    with writing(f"the Delta table {path}"):
        spark.sql(f"ALTER TABLE delta.`{name}` SET TBLPROPERTIES ('{PROPERTY}' = '{query_id}')")


def app_id(batch: Identified, table: str) -> str:
    """The application id of the transactions in which a query writes a table."""
    return f"{batch.query_id}/{table}"


def refuse_ahead(spark: SparkSession, path: str, batch: Identified, table: str) -> None:
    """Refuses a table of this query that holds a later batch than this one, or another one under its number."""
    last = _last_batch(spark, path, app_id(batch, table))
    if last is None or last < batch.id:
        return
    if last == batch.id:
        held = published(spark, path) or published(spark, path, all_commits=True)
        if held is None or held[:2] != (batch.query_id, batch.id) or held.position == batch.position:
            return
    raise ahead(path, last, batch.id)


def refuse_lost(spark: SparkSession, path: str, batch: Identified, what: str = "violations") -> None:
    """Refuses a table that this query owned, and that another has taken over since. Costs a look at the log."""
    owner = _snapshot(spark, path).metadata().configuration().get(PROPERTY)
    if not owner.isDefined() or str(owner.get()) != batch.query_id:
        raise not_ours(path, what)


def refuse_middle(path: str, batch: Batch) -> None:
    """Refuses to take over a place in the middle of a query: what it found before would be missing."""
    if batch.open_before > 0:
        raise OutputError(
            f"{path} holds the violations of another run, and this checkpoint is not empty: what it has found before "
            "would be missing",
            hint="name an empty checkpoint with --take-over, or another path for the sink",
        )


def _last_batch(spark: SparkSession, path: str, app: str) -> int | None:
    """The last batch that a table has taken from an application."""
    version = _snapshot(spark, path).transactions().get(app)
    return int(version.get()) if version.isDefined() else None


def _snapshot(spark: SparkSession, path: str) -> Any:
    """A table as its log has it now."""
    jvm: Any = spark._jvm
    none = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    return log.update(False, none, none)
