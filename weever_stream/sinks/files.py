"""Files of JSON lines or Parquet, one folder for each batch: `path/batch_id=<n>/`.

Exactly once for readers that keep to one rule: a folder is whole when it holds `_SUCCESS`, which is written last. A
batch that is written again replaces its folder as a whole, with the same content. Readers that understand folders such
as `batch_id=7` (Spark, DuckDB, pyarrow, Polars) give back the number as a column, so the files do not repeat it. A
batch without violations leaves no folder. Times in JSON are UTC with microseconds. The folders belong to one query
(`folders.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.sinks.batch import DELTA_COLUMNS
from weever_stream.sinks.delta import one_file_if_small
from weever_stream.sinks.failures import writing
from weever_stream.sinks.folders import BatchFolders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from weever_stream.job.options import FilesSink
    from weever_stream.sinks.batch import Batch

__all__ = ["AS_JSON", "Files", "write_folder"]

AS_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    # A rule on one row has no right side: a field that is always there is easier on readers than one that may be.
    "ignoreNullFields": "false",
}
"""How rows become JSON, here and in Kafka, whatever the session's time zone is."""


class Files:
    """The sink of kind `files`."""

    def __init__(self, options: FilesSink, *, take_over: bool = False) -> None:
        self._options = options
        self._folders = BatchFolders(options.path, "violations", sums=True, take_over=take_over)

    def write(self, batch: Batch) -> None:
        """Writes the folder of a batch."""
        spark = batch.deltas.sparkSession
        self._folders.check(spark, batch)
        if batch.added or batch.removed:
            write_folder(batch.deltas, DELTA_COLUMNS, self._options, batch, self._folders.folder(spark, batch))
        else:
            self._folders.refuse_other(batch)


def write_folder(frame: DataFrame, columns: Sequence[str], options: FilesSink, batch: Batch, path: str) -> None:
    """Writes rows of a batch into a folder, in the place of what it held."""
    rows = one_file_if_small(frame.select(*(name for name in columns if name != "batch_id")), batch)
    writer = rows.write.format(options.format).mode("overwrite")
    if options.format == "json":
        writer = writer.options(**AS_JSON)
    with writing(f"the folder {path}"):
        writer.save(path)
