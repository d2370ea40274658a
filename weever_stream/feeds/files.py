"""A folder to which files of changes are added: JSON lines, CSV with a header, or Parquet.

Every row carries `_change_type` and `_commit_version`, as in Delta's change feed, or `upsert` for a put without the
old row; a delete may hold only its key. A record that cannot be read is rejected with its file as the origin, and the
row or line in it (see `lines`). A file that cannot be read (a broken Parquet footer, a CSV header unlike the others)
stops the stream with the file's name: it is never skipped. A file is read once, by its name: change a folder by adding
files under new names.

Types: Parquet has its own, from the files already there, else from `columns:`; JSON and CSV take theirs from
`columns:`. CSV columns go by the header of the first file, or in the order of `columns:` with the two extra columns
last if there is none yet.

CSV is read by RFC 4180, as `weever check` reads it: a quote inside a quoted value is doubled, a quoted value may hold
line breaks, spaces count, an empty cell is null and `""` is the empty text. Spark's parser reads more than that without
a word, so what it cannot be sure of is refused: a single quote inside a quoted value stops the stream, text that is not
UTF-8 and a line that ends unlike the header are rejects. Blank lines mean nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, LongType, StringType, StructField, StructType

from weever_stream.errors import DataError
from weever_stream.feeds.changes import BATCH_BYTES
from weever_stream.feeds.changes import WORDS as _CHANGES
from weever_stream.feeds.conversion import from_text, whole
from weever_stream.feeds.delta import read_commits
from weever_stream.feeds.documents import NOT_ONE_DOCUMENT, OBJECT, Document, parsed
from weever_stream.feeds.lines import add_lines
from weever_stream.feeds.readings import (
    Fault,
    Reading,
    Trace,
    change_frame,
    changes_by_name,
    check_names,
    column,
    not_utf8,
)
from weever_stream.feeds.types import schema_of_spark, spark_type
from weever_stream.job.options import revealed
from weever_stream.rules.reserved import refuse_reserved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from weever_stream.job.options import FilesSource
    from weever_stream.rules.types import ColumnType

__all__ = ["FilesFeed", "read_cells", "read_lines", "read_parquet_rows", "reader_options"]

_TYPE, _VERSION = "_change_type", "_commit_version"
_MISREAD, _FILE, _CELLS, _ROW = "_weever_misread", "_weever_file", "_weever_cells", "_weever_row"
_READER = {
    # Spark forgets files by age, a week by default: one that is copied with an old date would never be read.
    "maxFileAge": "3650d",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
_EMPTY = "\ue000weever: empty text\ue000"
"""What the parser gives for a quoted empty cell; for an unquoted one it gives null."""
_RFC_4180 = {
    "header": "true",
    "escape": '"',
    "multiLine": "true",
    "emptyValue": _EMPTY,
    # Else such a cell is passed on as raw text, quotes and all: Spark's own writer makes them, by \" for a quote.
    "unescapedQuoteHandling": "RAISE_ERROR",
}
_AS_WRITTEN = {"escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
"""How a rejected row is written again; by default Spark would lose its spaces."""
_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
_SAMPLE = 100
"""Lines of JSON that must show a version somewhere."""


def reader_options(source: FilesSource) -> dict[str, str]:
    """The options of Spark's file reader. Of the two limits of a batch Spark takes one."""
    given = revealed(source.options)
    limit = {} if any(name in given for name in _LIMITS) else {"maxBytesPerTrigger": BATCH_BYTES}
    return {**_READER, **limit, **(_RFC_4180 if source.format == "csv" else {}), **given}


class FilesFeed:
    """A folder of changes."""

    replays = True

    def __init__(
        self, spark: SparkSession, source: FilesSource, key: Sequence[str], columns: Mapping[str, ColumnType]
    ) -> None:
        self._spark, self._source, self._key, self._declared = spark, source, key, columns
        self._options = reader_options(source)
        self._there = self._look()
        if not columns and (self._there is None or source.format != "parquet"):
            raise DataError(
                f"nothing tells the columns of {source.path}",
                hint="give them under `columns:`" + ("" if self._there else ", or add the first file"),
            )
        found = {} if self._there is None else schema_of_spark(self._there)
        refuse_reserved(found)  # also those that nothing reads: a header may have names of ours
        if self._there is not None and source.format != "json":
            for name in (_TYPE, _VERSION):
                if name not in found:
                    raise DataError(
                        f"the files in {source.path} have no column {name}",
                        hint="every row needs _change_type (insert, update_preimage, …) and _commit_version",
                    )
        self._found = {name: kind for name, kind in found.items() if name not in (_TYPE, _VERSION)}
        if source.format == "json":
            self._check_sample()
        check_names(key, self.schema, f"the folder {source.path}")
        for wanted in columns.values():
            spark_type(wanted)

    @property
    def schema(self) -> dict[str, ColumnType | str]:
        """The columns with their declared types, else the files' own."""
        return {**(self._found if self._source.format == "parquet" else {}), **self._declared}

    def recognize(self, noted: Mapping[str, Any] | None, position: Mapping[str, Any] | None) -> dict[str, Any]:
        """Nothing: a folder is what is in it, and Spark remembers the names of the files that it has read."""
        return {}

    def changes(self, names: Sequence[str]) -> DataFrame:
        """The streaming change frame."""
        return self._read(self._spark.readStream, self._source.path, names)

    def history(
        self, names: Sequence[str], position: Mapping[str, Any], since: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """The files that have been read: positions list their `paths`."""
        # As the stream reads them: names are no patterns, and columns may be in the names of folders.
        reader = self._spark.read.option("globPaths", "false")
        if not re.search(r"[*?{}\[\]]", self._source.path):
            reader = reader.option("basePath", self._source.path)
        earlier = set(since["paths"]) if since else set()
        return self._read(reader, [path for path in position["paths"] if path not in earlier], names)

    def locate(self, rejects: DataFrame) -> DataFrame:
        """With the line on which a record begins; Parquet has the row."""
        if self._source.format == "parquet":
            return rejects
        return add_lines(rejects, self._source.format, self._options)

    def _read(self, reader: Any, paths: str | list[str], names: Sequence[str]) -> DataFrame:
        """The change frame of a reader, streaming or not."""
        check_names(names, self.schema, f"the folder {self._source.path}")
        reader = reader.options(**self._options)
        file = F.col("_metadata.file_path").alias(_FILE)
        if self._source.format == "json":
            return read_lines(reader.text(paths).select("value", file), names, self._key, self._declared)
        schema = self._parquet_schema() if self._source.format == "parquet" else self._csv_schema()
        if self._source.format == "parquet":
            row = (F.col("_metadata.row_index") + 1).alias(_ROW)
            rows = reader.schema(schema).format("parquet").load(paths).select("*", file, row)
            return read_parquet_rows(rows, names, self._key, schema_of_spark(schema), self._declared)
        strict = {"header": "true", "enforceSchema": "false", "columnPruning": "false", "mode": "PERMISSIVE",
                  "columnNameOfCorruptRecord": _MISREAD}  # fmt: skip
        rows = reader.options(**strict).schema(schema).csv(paths).select("*", file)
        return read_cells(rows, names, self._key, self._declared, sep=self._options.get("sep", ","))

    def _look(self) -> StructType | None:
        """The schema of the files that are there, or None if there are none yet."""
        reader = self._spark.read.options(**self._options)
        try:
            if self._source.format == "csv":
                return self._header(reader)
            return reader.format("text" if self._source.format == "json" else "parquet").load(self._source.path).schema
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                raise DataError(f"there is no folder {self._source.path}", hint="make it before the start") from None
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                raise
            return None

    def _header(self, reader: Any) -> StructType | None:
        """The columns that the header of a first file names."""
        # As a row, because Spark changes names that are missing or given twice. Only rows must be free of odd quotes.
        lenient = {"header": "false", "unescapedQuoteHandling": "STOP_AT_DELIMITER"}
        first = reader.options(**lenient).csv(self._source.path).first()
        names = [] if first is None else ["" if name in (None, _EMPTY) else str(name) for name in first]
        folded = [name.casefold() for name in names]
        for name in names:
            if not name or folded.count(name.casefold()) > 1:
                said = f"more than one column {name}" if name else "a column without a name"
                raise DataError(
                    f"the header of the files in {self._source.path} has {said}",
                    hint="give each column a name of its own; in pandas, to_csv(index=False) leaves out the index",
                )
        return StructType([StructField(name, StringType()) for name in names]) if names else None

    def _check_sample(self) -> None:
        """Refuses a folder whose first lines know no version: it holds rows, not changes."""
        lines = self._spark.read.options(**self._options).text(self._source.path).limit(_SAMPLE)
        seen = lines.select(F.max(F.contains("value", F.lit(f'"{_VERSION}"'))).alias("seen")).first()
        if seen is not None and seen["seen"] is False:
            raise DataError(
                f"no line in {self._source.path} has a {_VERSION}",
                hint="every row needs _change_type (insert, update_preimage, …) and _commit_version",
            )

    def _parquet_schema(self) -> StructType:
        own = [_widest(field) for field in self._there.fields] if self._there is not None else []
        has = {field.name for field in own}
        extra = [StructField(name, spark_type(kind)) for name, kind in self._declared.items() if name not in has]
        if not own:
            extra += [StructField(_TYPE, StringType()), StructField(_VERSION, LongType())]
        return StructType(own + extra)

    def _csv_schema(self) -> StructType:
        names = self._there.names if self._there is not None else [*self._declared, _TYPE, _VERSION]
        missing = [name for name in self._declared if name not in names]
        if missing:
            raise DataError(f"the files in {self._source.path} have no column {missing[0]}", hint="see their header")
        return StructType([StructField(name, StringType()) for name in (*names, _MISREAD)])


def _widest(field: StructField) -> StructField:
    """Whole numbers as bigint: files may have been written before a column was widened, and after."""
    return StructField(field.name, LongType() if isinstance(field.dataType, IntegralType) else field.dataType)


def read_lines(
    lines: DataFrame, names: Sequence[str], key: Sequence[str], columns: Mapping[str, ColumnType]
) -> DataFrame:
    """The change frame of JSON lines: columns `value` and `_weever_file`."""
    text = F.col("value")
    filled = lines.where(F.trim(text) != "").select(_FILE, "value", F.when(F.is_valid_utf8(text), text).alias("_text"))
    row = Document(F.col("_document"), "$[0]", text)
    documents = filled.withColumn("_document", parsed(F.col("_text"))).withColumn("_sound", row.sound)
    opened, members = row.opened(documents, dict.fromkeys((*key, *names, _TYPE, _VERSION)), "_member")
    kind, version = (members[name].value.cast("string") for name in (_TYPE, _VERSION))
    return change_frame(
        opened,
        [members[name].read(columns[name]) for name in dict.fromkeys((*key, *names))],
        key,
        names=names,
        change=changes_by_name(kind, _CHANGES),
        sequence=whole(version),
        trace=Trace({"file": F.col(_FILE)}, F.make_valid_utf8(text), ("value",)),
        faults=[
            Fault(F.col("_text").isNull(), "the line is not UTF-8 text"),
            Fault(~F.col("_sound"), f"the line {NOT_ONE_DOCUMENT}"),
            Fault(~text.rlike(OBJECT), "the line is not a JSON object"),
            *_faults(kind, version),
        ],
    )


def read_cells(
    rows: DataFrame, names: Sequence[str], key: Sequence[str], columns: Mapping[str, ColumnType], *, sep: str = ","
) -> DataFrame:
    """The change frame of CSV rows: all texts, and the line itself where it does not fit the header."""
    header = [name for name in rows.columns if name not in (_MISREAD, _FILE)]
    cells = {name: F.when(column(name) == _EMPTY, F.lit("")).otherwise(column(name)) for name in header}
    wanted = list(dict.fromkeys((*key, *names)))
    readings = [
        Reading(
            name,
            from_text(cells[name], columns[name]),
            columns[name],
            column(name).isNotNull(),
            # The parser puts U+FFFD in the place of bytes that it cannot decode.
            Fault(F.contains(column(name), F.lit("\ufffd")), not_utf8(name)),
        )
        for name in wanted
    ]
    kind, version = F.col(_TYPE), F.col(_VERSION)
    again = F.to_csv(F.col(_CELLS), {"sep": sep, **_AS_WRITTEN})
    return change_frame(
        rows.withColumn(_CELLS, F.struct(*(cell.alias(f"c{at}") for at, cell in enumerate(cells.values())))),
        readings,
        key,
        names=names,
        change=changes_by_name(kind, _CHANGES),
        sequence=whole(version),
        trace=Trace({"file": F.col(_FILE)}, F.coalesce(F.make_valid_utf8(F.col(_MISREAD)), again), (_MISREAD, _CELLS)),
        faults=[
            Fault(F.col(_MISREAD).isNotNull(), "the line has more or fewer cells than the header"),
            Fault(column(header[-1]).rlike(r"[\r\n]\z"), "the line does not end as the header does: CR LF and LF"),
            *_faults(kind, version),
        ],
    )


def read_parquet_rows(
    rows: DataFrame,
    names: Sequence[str],
    key: Sequence[str],
    found: Mapping[str, ColumnType | str],
    declared: Mapping[str, ColumnType],
) -> DataFrame:
    """The change frame of typed rows with the columns `_weever_file` and `_weever_row`."""
    return read_commits(rows, names, key, found, declared, _CHANGES, {"file": F.col(_FILE), "row": F.col(_ROW)})


def _faults(kind: Column, version: Column) -> list[Fault]:
    known = F.coalesce(kind.isin(*_CHANGES), F.lit(False))
    return [
        Fault(~known, f"{_TYPE} is none of " + ", ".join(_CHANGES)),
        Fault(whole(version).isNull(), f"{_VERSION} is missing or not a whole number"),
    ]
