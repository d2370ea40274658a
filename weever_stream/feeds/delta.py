"""The change data feed of a Delta table: its snapshot first, as inserts of the version it has, then every change.

The sequence is the version of the commit. Old rows are known (`update_preimage`, `delete`), so drops go where the row
is. The frame is a projection of the table's own columns: no decoding, no cost beyond reading.

A batch is bounded by `BATCH_BYTES` of files. Delta cuts the snapshot and commits without change files (appends,
overwrites) there; a commit with change files it reads whole. After a cut new rows of an overwrite may come before the
old ones go: the router then replaces what shards hold of their keys (`routing.Router`).

A commit is read with the schema that the table had then. The stream keeps a log of schemas for that (`tracking`, a
folder below its checkpoint), and every change of schema stops it once, with DELTA_STREAMING_METADATA_EVOLUTION; opened
and started again it goes on. Delta's own limits on such changes are lifted, because they compare whole schemas. Here
only columns that are read are compared, when `changes` opens the stream: see `delta_log`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from weever_stream.errors import DataError
from weever_stream.feeds.changes import BATCH_BYTES, DROP, PUT
from weever_stream.feeds.conversion import recast
from weever_stream.feeds.delta_log import (
    START_AGAIN,
    first_version,
    may_skip,
    refuse_changed_columns,
    refuse_lost_versions,
    refuse_other_table,
    tracked_schemas,
)
from weever_stream.feeds.readings import Reading, Trace, change_frame, changes_by_name, check_names, column
from weever_stream.feeds.types import schema_of_spark
from weever_stream.job.options import revealed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from weever_stream.job.options import DeltaSource
    from weever_stream.rules.types import ColumnType
    from weever_stream.state.store import StoreOptions

__all__ = ["DeltaFeed", "read_commits", "reader_options"]

_CHANGES = {"insert": PUT, "update_postimage": PUT, "update_preimage": DROP, "delete": DROP}
_PROPERTY = "delta.enableChangeDataFeed"
_MISSING = (
    "DELTA_MISSING_DELTA_TABLE",
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
)
_ANY_TYPE_CHANGE = "spark.databricks.delta.typeWidening.bypassStreamingTypeChangeCheck"
"""For streams with a schema log: without it a column that changes its type stops a stream that does not read it."""
_OTHERS_MAY_CHANGE = {
    "allowSourceColumnRename": "always",
    "allowSourceColumnDrop": "always",
    "allowSourceColumnTypeChange": "always",
}


def reader_options(source: DeltaSource) -> dict[str, str]:
    """What Delta's reader is told besides the table. Delta's own limit, 1,000 files, says little about bytes."""
    return {"maxBytesPerTrigger": BATCH_BYTES, **revealed(source.options)}


class DeltaFeed:
    """A Delta table with its change data feed."""

    def __init__(
        self,
        spark: SparkSession,
        source: DeltaSource,
        key: Sequence[str],
        columns: Mapping[str, ColumnType],
        tracking: StoreOptions | None = None,
    ) -> None:
        if (source.path is None) == (source.table is None):
            raise DataError("a Delta source needs a path or a table", hint="give one of them, not both")
        self._spark, self._source, self._key, self._declared, self._tracking = spark, source, key, columns, tracking
        self._where = str(source.table or source.path)
        self._position: Mapping[str, Any] | None = None
        self._name = source.table or f"delta.`{str(source.path).replace('`', '``')}`"
        self._detail = self._described()
        self._properties = dict(self._detail["properties"])
        if self._properties.get(_PROPERTY, "false").lower() != "true":
            raise DataError(
                f"the change data feed of {self._where} is off",
                hint=f"ALTER TABLE {self._name} SET TBLPROPERTIES ({_PROPERTY} = true); "
                "changes are kept from then on, the snapshot holds what was before",
            )
        self._found = schema_of_spark(spark.table(self._name).schema)
        check_names((*key, *columns), self._found, f"the table {self._where}")

    @property
    def schema(self) -> dict[str, ColumnType | str]:
        """The table's columns, with the declared types in place of their own."""
        return {**self._found, **self._declared}

    def changes(self, names: Sequence[str]) -> DataFrame:
        """The streaming change frame."""
        check_names(names, self._found, f"the table {self._where}")
        reader = self._spark.readStream.format("delta").option("readChangeFeed", "true")
        if self._source.starting_version is not None:
            reader = reader.option("startingVersion", str(self._source.starting_version))
        if self._tracking is not None and not may_skip(self._source):
            self._spark.conf.set(_ANY_TYPE_CHANGE, "true")
            reader = reader.options(schemaTrackingLocation=self._tracking.uri, **_OTHERS_MAY_CHANGE)
        reader = reader.options(**reader_options(self._source))
        rows = reader.table(self._source.table) if self._source.table else reader.load(self._source.path)
        self._refuse_changes(names)
        found = schema_of_spark(rows.schema)
        check_names(names, found, f"the table {self._where}, where the job goes on,")
        return read_commits(rows, names, self._key, found, self._declared)

    def _refuse_changes(self, names: Sequence[str]) -> None:
        """Refuses a schema that the stream reads next if it changes a column in a way that cannot be followed."""
        read = (self._position or {}).get("version")
        if self._tracking is None or read is None:
            return
        schemas = tracked_schemas(self._tracking)
        before = [columns for version, columns in schemas if version <= int(read)]
        if before:
            later = [one for one in schemas if one[0] > int(read)]
            refuse_changed_columns(self._where, dict.fromkeys(names, "the job"), before[-1], later)

    @property
    def replays(self) -> bool:
        """Only of a job that began with a version all changes are read again."""
        return self._source.starting_version is not None

    def history(
        self, names: Sequence[str], position: Mapping[str, Any], since: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """The table as of a version; its changes up to there if the job began with a version."""
        check_names(names, self._found, f"the table {self._where}")
        version, first = int(position["version"]), self._source.starting_version
        options = {name.lower() for name in self._source.options}
        if first == "latest" or {"startingversion", "startingtimestamp"} & options:
            raise DataError(
                "it is not known at which version the job began, so rules cannot be filled from the table",
                hint=f"name an empty checkpoint with a `starting_version`; {START_AGAIN}",
            )
        if first is None:
            rows = self._spark.sql(f"SELECT * FROM {self._name} VERSION AS OF {version}").withColumns(
                {"_change_type": F.lit("insert"), "_commit_version": F.lit(version).cast("bigint")}
            )
        else:
            begin = first if since is None else int(since["version"]) + 1
            feed = self._spark.read.option("readChangeFeed", "true").option("startingVersion", str(begin))
            feed = feed.option("endingVersion", str(version)).format("delta")
            rows = feed.table(self._source.table) if self._source.table else feed.load(self._source.path)
        return read_commits(rows, names, self._key, self._found, self._declared)

    def locate(self, rejects: DataFrame) -> DataFrame:
        """As they are: the version of a commit is all that there is."""
        return rejects

    def recognize(self, noted: Mapping[str, Any] | None, position: Mapping[str, Any] | None) -> dict[str, Any]:
        """Refuses another table, and one whose log no longer has the commits after the position."""
        self._position = position
        now = {"table": str(self._detail["id"]), "where": self._where}
        if noted is not None:
            refuse_other_table(self._where, now["table"], noted)
            refuse_lost_versions(self._where, position, self._first_version())
        return now

    def _first_version(self) -> int | None:
        """The oldest commit in the log. One listing of its folder."""
        jvm: Any = self._spark._jvm
        folder = jvm.org.apache.hadoop.fs.Path(f"{self._detail['location']}/_delta_log")
        listed = folder.getFileSystem(self._spark._jsc.hadoopConfiguration()).listStatus(folder)
        return first_version(str(file.getPath().getName()) for file in listed)

    def _described(self) -> Row:
        where = self._where
        try:
            (detail,) = self._spark.sql(f"DESCRIBE DETAIL {self._name}").collect()
        except AnalysisException as error:
            if error.getCondition() in _MISSING:
                raise DataError(f"there is no Delta table {where}", hint="check the path or the name") from None
            raise DataError(
                f"{where} is not a Delta table that can be read: {error.getCondition() or 'no reason given'}",
                hint="check the path or the name, and that the session has Delta's extension",
            ) from None
        return detail


def read_commits(
    rows: DataFrame,
    names: Sequence[str],
    key: Sequence[str],
    found: Mapping[str, ColumnType | str],
    declared: Mapping[str, ColumnType],
    changes: Mapping[str, int] = _CHANGES,
    origin: Mapping[str, Column] | None = None,
) -> DataFrame:
    """The change frame of typed rows with `_change_type` and `_commit_version`."""
    trace = Trace(origin or {"version": column("_commit_version")}, F.lit(None).cast("string"))
    readings = []
    for name in dict.fromkeys((*key, *names)):
        value, wanted = column(name), declared.get(name)
        if wanted is None or found[name] == wanted:
            readings.append(Reading(name, value))
        else:
            readings.append(Reading(name, recast(value, found[name], wanted, name), wanted, value.isNotNull()))
    return change_frame(
        rows,
        readings,
        key,
        names=names,
        change=changes_by_name(column("_change_type"), changes),
        sequence=column("_commit_version"),
        trace=trace,
    )
