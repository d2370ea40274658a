"""A Delta table's current rows in two Delta tables: `clean`, and `quarantined` with the reason, kept current.

After each batch the two hold, together, the rows of the source at the version that the batch completes: `quarantined`
those whose key is in `keys`, each with a column `_quarantine` (how many violations, of which rules, since when),
`clean` the others. Rows whose key is null are in neither: the job rejects them.

A batch changes rows whose key is in the source's change feed since the table's last batch, and rows whose violations
the batch changed. Each table takes it in one MERGE with a transaction id, so a batch that is repeated changes nothing.
The first batch, and one after which the source has other columns, writes the tables whole. Cost of a batch: the change
feed, `keys`, the source's rows under the changed keys, and a MERGE into each table. The keys are numbers or texts more
often than not: if there are few of them, Delta leaves out the files that cannot hold them.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from weever_stream.errors import DataError, OutputError, TypeMismatchError
from weever_stream.job.options import DeltaSource
from weever_stream.rules.types import type_of_name
from weever_stream.sinks.delta import as_transaction, child, retried
from weever_stream.sinks.failures import writing
from weever_stream.sinks.ownership import app_id, claim, owner_of, refuse_ahead
from weever_stream.sinks.tables import metadata_of, published

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from weever_stream.job.job import Job
    from weever_stream.rules.types import ColumnType
    from weever_stream.sinks.batch import Batch

__all__ = ["REASON", "Split"]

REASON = "_quarantine"
_BEFORE = "_weever_before"
_REASON_TYPE = StructType(
    [
        StructField("violations", LongType()),
        StructField("rules", ArrayType(StringType())),
        StructField("since", TimestampType()),
    ]
)
_PROPERTY = "weever.split"
"""Which of the two tables it is: a table without it is not ours, and must not be overwritten."""
_FEW = 1_000
"""So many keys are written out in a condition, so that files without them are left out."""
_WRITTEN_OUT = ("tinyint", "smallint", "int", "bigint", "string")
_PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
    "delta.autoOptimize.autoCompact": "true",
}


class Split:
    """The tables `clean` and `quarantined` of a job with a Delta source."""

    def __init__(self, spark: SparkSession, path: str, job: Job) -> None:
        source = job.source
        assert isinstance(source, DeltaSource)  # the job file is checked for it
        self._source, self._key = source, tuple(job.file.key)
        self._name = source.table or f"delta.`{str(source.path).replace('`', '``')}`"
        self._paths = {name: child(path, name) for name in ("clean", "quarantined")}
        schema = spark.table(self._name).schema
        if REASON in map(str.lower, schema.names):
            raise DataError(f"the source has a column {REASON}, which the quarantine needs", hint="rename it")
        self._types = {field.name: field.dataType.simpleString() for field in schema if field.name in self._key}
        for name, spelled in self._types.items():
            if name in job.file.columns and _type(spelled) != job.file.columns[name]:
                raise DataError(
                    f"the key {name} is read as another type than the source has, so the source cannot be split",
                    hint="leave it out of `columns:`, or write `tables: keys`",
                )
        for name, at in self._paths.items():
            _make(spark, at, name, _wanted(schema, name))
        self._done: dict[str, tuple[int, int] | None] | None = None
        """The batch and version that each table holds; None where it must be written whole."""

    def write(self, batch: Batch, changed: DataFrame | None, keys: str) -> None:
        """Brings both tables to the batch. `changed`: the keys, as texts, whose violations it changed."""
        position = json.loads(batch.position)
        if position is None:
            return  # no row was read yet
        session, version = batch.deltas.sparkSession, int(position["version"])
        rows = session.sql(f"SELECT * FROM {self._name} VERSION AS OF {version}")
        rows = rows.where(_all(fn.col(_quoted(name)).isNotNull() for name in self._key))
        reasons = self._reasons(session.read.format("delta").load(keys))
        told = None if changed is None else self._typed(changed)
        if self._done is None:
            self._done = {name: _last(session, path, batch, name) for name, path in self._paths.items()}
            told = self._astray(session, reasons, told)
        for name, path in self._paths.items():
            number, since = self._done[name] or (-1, -1)
            if number == batch.id:
                continue
            there = DeltaTable.forPath(session, path).toDF().schema
            if number < 0 or _columns(there) != _columns(_wanted(rows.schema, name)):
                self._rewrite(rows, reasons, name, path, batch)
            elif version > since or told is not None:
                self._merge(rows, reasons, self._changed(session, since, version, told), name, path, batch)
            else:
                continue
            self._done[name] = (batch.id, version)

    def _astray(self, session: SparkSession, reasons: DataFrame, told: DataFrame | None) -> DataFrame:
        """With them the keys whose reason is not that of `quarantined`: for a while the job may not have split."""
        there = session.read.format("delta").load(self._paths["quarantined"])
        if REASON not in there.columns or any(name not in there.columns for name in self._key):
            return reasons.select(*map(_quoted, self._key))
        before = there.select(*map(_quoted, self._key), fn.col(REASON).alias(_BEFORE))
        other = before.join(reasons, list(self._key), "full").where(~fn.col(REASON).eqNullSafe(fn.col(_BEFORE)))
        astray = other.select(*map(_quoted, self._key))
        return astray if told is None else astray.unionByName(told)

    def _reasons(self, keys: DataFrame) -> DataFrame:
        """Of each key that is in quarantine the reason, under the key's own columns."""
        reason = fn.struct(
            fn.count("*").alias("violations"),
            fn.sort_array(fn.collect_set("rule")).alias("rules"),
            fn.min("since").alias("since"),
        )
        return self._typed(keys.groupBy("key").agg(reason.alias(REASON)))

    def _typed(self, keys: DataFrame) -> DataFrame:
        """Keys as they are printed, turned into the key's columns: the other way round than `detect.texts` writes."""
        if len(self._key) == 1:
            texts = [fn.col("key")]
        else:
            parts = fn.from_json("key", "array<string>")
            texts = [parts[at] for at in range(len(self._key))]
        columns = [text.cast(self._types[name]).alias(name) for name, text in zip(self._key, texts, strict=True)]
        others = [fn.col(name) for name in keys.columns if name != "key"]
        return keys.select(*columns, *others)

    def _changed(self, session: SparkSession, since: int, version: int, told: DataFrame | None) -> DataFrame:
        """The keys whose row or violations are other than they were at a version."""
        frames = [] if told is None else [told]
        if version > since:
            feed = session.read.format("delta").option("readChangeFeed", "true")
            feed = feed.option("startingVersion", since + 1).option("endingVersion", version)
            changes = feed.table(self._name) if self._source.table else feed.load(self._source.path)
            frames.append(
                changes.select(*map(_quoted, self._key)).where(_all(fn.col(_quoted(k)).isNotNull() for k in self._key))
            )
        keys = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        return keys.distinct()

    def _rewrite(self, rows: DataFrame, reasons: DataFrame, name: str, path: str, batch: Batch) -> None:
        """Writes a table whole."""
        if name == "clean":
            frame = rows.join(reasons, list(self._key), "left_anti")
        else:
            frame = rows.join(reasons, list(self._key))
        frame = frame.select(*(_quoted(field.name) for field in _wanted(rows.schema, name)))
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer = writer.option("txnAppId", app_id(batch, name)).option("txnVersion", batch.id)
        with writing(f"the Delta table {path}"):
            retried(lambda: writer.option("userMetadata", metadata_of(batch)).save(path))

    def _merge(self, rows: DataFrame, reasons: DataFrame, keys: DataFrame, name: str, path: str, batch: Batch) -> None:
        kept = keys.persist()
        try:
            few = self._few(kept)
            if few is not None:
                rows = rows.where(fn.col(_quoted(self._key[0])).isin(few))
            there = rows.join(kept, list(self._key), "left_semi").dropDuplicates(list(self._key))
            belongs = fn.col(f"batch.{REASON}").isNull() if name == "clean" else fn.col(f"batch.{REASON}").isNotNull()
            source = kept.join(there.withColumn("_weever_there", fn.lit(True)), list(self._key), "left")
            source = source.join(reasons, list(self._key), "left")
            belongs = belongs & fn.col("batch._weever_there").isNotNull()
            same = _all(fn.col(f"table.{_quoted(key)}") == fn.col(f"batch.{_quoted(key)}") for key in self._key)
            if few is not None:
                same = fn.col(f"table.{_quoted(self._key[0])}").isin(few) & same
            columns = [field.name for field in _wanted(rows.schema, name)]
            values: dict[str, str | Column] = {_quoted(name): fn.col(f"batch.{_quoted(name)}") for name in columns}
            with writing(f"the Delta table {path}"), as_transaction(batch, name):
                table = DeltaTable.forPath(rows.sparkSession, path).alias("table")
                merge = table.merge(source.alias("batch"), same).whenMatchedDelete(~belongs)
                merge = merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(belongs, values)
                retried(merge.execute)
        finally:
            kept.unpersist()

    def _few(self, keys: DataFrame) -> list[object] | None:
        """The values of the key's first column, if there are few and they are of a type that comes back unchanged."""
        first = self._key[0]
        if self._types[first] not in _WRITTEN_OUT:
            return None
        values = keys.select(_quoted(first)).distinct().limit(_FEW + 1).collect()
        return [row[0] for row in values] if len(values) <= _FEW else None


def _last(session: SparkSession, path: str, batch: Batch, name: str) -> tuple[int, int] | None:
    """The batch and version that a table holds, if this query has written it. Another's table is written whole."""
    if owner_of(session, path) != batch.query_id:
        claim(session, path, batch.query_id)  # `keys` beside it is ours by now, and says that this may be replaced
        return None
    refuse_ahead(session, path, batch, name)
    last = published(session, path)
    if last is None or last.query_id != batch.query_id:
        return None
    return last.batch_id, int(json.loads(last.position)["version"])


def _wanted(source: StructType, name: str) -> StructType:
    """The columns of a table: those of the source, without what only its own table knows of them."""
    fields = [StructField(field.name, field.dataType, True) for field in source]
    if name == "quarantined":
        fields.append(StructField(REASON, _REASON_TYPE, True))
    return StructType(fields)


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _type(spelled: str) -> ColumnType | None:
    try:
        return type_of_name(spelled)
    except TypeMismatchError:
        return None


def _make(spark: SparkSession, path: str, table: str, schema: StructType) -> None:
    """Makes a table if it is not there. Refuses one that somebody else has made."""
    with writing(f"the Delta table {path}", {"NON_EMPTY_LOCATION": "the folder holds other files: name another path"}):
        if DeltaTable.isDeltaTable(spark, path):
            (detail,) = DeltaTable.forPath(spark, path).detail().select("properties").collect()
            if dict(detail["properties"]).get(_PROPERTY) != table:
                raise OutputError(
                    f"{path} holds a Delta table that is not ours", hint="name another path for the quarantine"
                )
            return
        maker = DeltaTable.createIfNotExists(spark).location(path).addColumns(schema)
        for name, value in {**_PROPERTIES, _PROPERTY: table}.items():
            maker = maker.property(name, value)
        maker.execute()


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)
